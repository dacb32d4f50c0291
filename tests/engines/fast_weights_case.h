/// Cases of the fast-weights engine, which the definition judges.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "src/engines/fast_weights/fast_weights.h"
#include "tests/engines/judge.h"
#include "tests/support/engines.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::fast_weights {

enum class Keys : std::uint8_t { kUnit, kRepeated, kZero, kCollinear, kHuge, kTiny };

/// One case. Gates are dealt out in turn over tokens and heads; an empty list: no such input.
struct Case {
  std::string name;
  Options options{};
  std::int64_t batch = 1, tokens = 17, heads = 1, query_heads = 1, key_heads = 1, value_heads = 1;
  std::int64_t key_dim = 8, value_dim = 8;
  std::vector<double> log_decays{};
  std::vector<double> factors{};
  std::vector<std::int64_t> cu_seqlens{};
  DType data = DType::kFloat32;   // q, k, v, y
  DType gates = DType::kFloat32;  // log_decay, step
  DType state = DType::kFloat32;
  Keys keys = Keys::kUnit;
  bool head_major = false;  // [B, H, T, D] in memory
  bool writes = true, reads = true;
};

std::ostream& operator<<(std::ostream& out, const Case& c);

using test::Data;

/// The inputs and the initial state of a case, drawn from its name. y starts as NaN.
struct Problem {
  Data q, k, v, log_decay, step, state, y;
  std::vector<double> factors{};
  std::vector<std::int64_t> cu_seqlens{};
  Options options;

  explicit Problem(const Case& c);

  Call call() const;

  /// The inputs, restricted to tokens begin .. begin + count (not packed).
  Call Range(std::int64_t begin, std::int64_t count) const;
};

/// What the definition says, and how far from it an engine may be.
///
/// The bounds follow the rounding errors of one token through the recurrence. For one value column
/// m of the memory, u_t the innovation, n = |k|^2 and N_t = g N_{t-1} + b |u_t| |k| (>= |m|, and
/// what sums of products of keys and innovations are made of), a token adds
///     r (g N_{t-1} + b |k| (|v| + |k| g N_{t-1})),   r = eps (4 + sqrt(Dk)),
/// the error of a dot product of Dk terms and some operations more, and passes on
/// g max(1, |1 - b n|) of what was there. A read multiplies by |q|.
using test::Expected;
Expected Define(const Problem& problem);

/// Compares y and the state of `problem` with what is expected.
void ExpectClose(const Problem& problem, const Expected& expected, const std::string& what);

/// A fresh scratch of exactly the size asked for, all NaN, and Forward.
void RunForward(const Problem& problem, const Call& call,
                Executor& executor = SequentialExecutor());

/// The table.
std::vector<Case> AllCases();

}  // namespace ttr::fast_weights
