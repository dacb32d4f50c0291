/// Cases of the scan engine, which the definition judges.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "src/engines/scan/scan.h"
#include "tests/engines/judge.h"
#include "tests/support/engines.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::scan {

enum class Gate : std::uint8_t { kNone, kFactor, kScalar, kChannel };

/// One case. Decays are dealt out in turn over tokens, heads and channels (of a matrix: over a).
struct Case {
  std::string name;
  Options options{};
  bool matrix = false;
  std::int64_t batch = 1, tokens = 17, heads = 2, query_heads = 2, key_heads = 2, value_heads = 2;
  std::int64_t key_dim = 8, value_dim = 8;
  Gate gate = Gate::kChannel;
  bool phase = false, v_im = false, importance = false;
  std::vector<double> log_decays{-0.1, -1e-3, -0.5};
  double largest_phase = 4;
  std::vector<std::int64_t> cu_seqlens{};
  DType data = DType::kFloat32;   // q, k, v, y
  DType gates = DType::kFloat32;  // log_decay, phase, importance, dt, a
  DType state = DType::kFloat32;
  bool head_major = false;  // [B, H, T, D] in memory
  bool writes = true, reads = true;
};

std::ostream& operator<<(std::ostream& out, const Case& c);

using test::Data;

/// The inputs and the initial state of a case, drawn from its name. y starts as NaN.
struct Problem {
  Data v, v_im, importance, log_decay, phase, q, k, dt, a, state, state_im, y;
  std::vector<double> factors{};
  std::vector<std::int64_t> cu_seqlens{};
  Options options;

  explicit Problem(const Case& c);
  Call call() const;
  /// The inputs, restricted to tokens begin .. begin + count (not packed).
  Call Range(std::int64_t begin, std::int64_t count) const;
};

/// What the recurrence says, and how far an engine may be from it.
///
/// With r = 8 eps and S_t = |g| S_{t-1} + |w v| (>= |h|), a token adds
///     r ((1 + |log g| + |phase|) |g| S_{t-1} + |w v|)
/// to the error of an entry (|log g| and |phase|: they may be rounded to the arithmetic's type) and
/// passes on |g| of what was there. Entries of a matrix: w v k_n in the place of w v; an answer is
/// off by sum_n |q_n| (error_n + r (1 + sqrt(Dk)) S_n).
using test::Expected;
Expected Define(const Problem& problem, bool bounds = true);

/// Compares y and the states of `problem` with what is expected.
void ExpectClose(const Problem& problem, const Expected& expected, const std::string& what);

/// A fresh scratch of exactly the size asked for, all NaN, and Forward.
void RunForward(const Problem& problem, const Call& call,
                Executor& executor = SequentialExecutor());

/// The table.
std::vector<Case> AllCases();

}  // namespace ttr::scan
