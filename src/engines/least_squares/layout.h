/// What the glue tells the kernels about one memory, and how they divide their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/least_squares.h"
#include "src/simd/prefetcher.h"
#include "src/simd/rows.h"

namespace ttr::least_squares {

inline constexpr std::size_t kAlignment = 64;

/// Blocks have rows and columns in these units: whole vectors, whole register tiles, whole squares
/// of a transposition.
inline constexpr std::int64_t kUnit = 16;

/// Numbers of a ln::Corner, for each of its rows (of 8 at the most).
inline constexpr std::int64_t kCornerNumbers = 9;

constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

using simd::Prefetcher;
using simd::Rows;

/// What one of several threads does of a sequence: it answers tokens first .. end. Chunks begin
/// where they do when one thread does all, so that a chunk across such a bound is run by two, each
/// of which leaves its own answers.
struct Stretch {
  std::int64_t begin = 0;           // where it begins to run: the chunk of `first`, if it answers
  std::int64_t first = 0, end = 0;  // rounded to blocks, where there are blocks
  bool answers = true;              // false: writes only
  const double* start = nullptr;    // the memory at `begin`, as Carried::Keep leaves it
  double* finish = nullptr;         // where to leave it, if anywhere
  // Set as it runs:
  std::int64_t saved_at =
      0;  // the token that comes next as it is left: `end`, or its chunk's first
  std::int64_t own_begin = 0, own_end = 0;  // of the answers that it leaves
  bool reads_last = false;  // does it answer by the memory after the last token, whatever it wrote?
};

/// Numbers that Carried::Keep leaves of a memory.
constexpr std::int64_t SavedNumbers(std::int64_t key_dim, std::int64_t value_dim) {
  const std::int64_t keys = RoundUp(key_dim, kUnit);
  return keys * (keys + 1) / 2 + keys * RoundUp(value_dim, kUnit);
}

/// A number of every answer that is told beside it; where it is wanted.
template <class Number>
struct Report {
  Number* data = nullptr;
  std::int64_t stride = 0, head_stride = 0;  // in elements, between tokens and between queries

  explicit operator bool() const { return data != nullptr; }
  void Set(std::int64_t token, std::int64_t query, Number number) const {
    if (data != nullptr) data[token * stride + query * head_stride] = number;
  }
};

/// Where the memory that a worker probably does next lies, which is fetched towards the caches
/// while another takes its token: A, the factor and B, of the same sizes and strides; or nulls.
struct Upcoming {
  const void* a = nullptr;
  const void* factor = nullptr;
  const void* b = nullptr;
};

/// One memory and one sequence.
struct Memory {
  Rows q, k, v, y;                 // q and y: of the first of `queries` heads
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  std::int64_t y_head_stride = 0;
  Rows log_decay, importance;
  double decay_factor = 1;
  const double* ridge = nullptr;  // key_dim numbers
  void* a = nullptr;              // [key_dim] rows of key_dim
  void* b = nullptr;              // [key_dim] rows of value_dim
  std::int64_t a_stride = 0, b_stride = 0;
  void* factor = nullptr;  // of FactorLayout: what stays for the next token, if anything
  bool defers = false;     // the factor holds B as well, and stands for the state while it holds
  Upcoming upcoming;
  Report<std::int8_t> status;
  Report<std::int64_t> iterations;
  Report<double> residual;
  std::int64_t tokens = 0;
  std::int64_t key_dim = 1, value_dim = 1;
  std::int64_t queries = 0;    // of a token; 0: writes only
  Stretch* stretch = nullptr;  // absent: all tokens, from and to the caller's state

  bool writes() const { return static_cast<bool>(v); }
  /// Is the answer of this token to be left?
  bool Leaves(std::int64_t token) const {
    return stretch == nullptr || (token >= stretch->own_begin && token < stretch->own_end);
  }
};

inline Stretch WholeOf(const Memory& memory) {
  return {.begin = memory.writes() ? 0 : memory.tokens, .end = memory.tokens};
}

/// Tokens that share the factor of their start. Longer chunks factor less often and solve larger
/// systems; a chunk longer than D would see directions twice.
inline std::int64_t ChunkTokens(std::int64_t key_dim) {
  return std::clamp<std::int64_t>(RoundUp(key_dim, kUnit), kUnit, 64);
}

/// Tokens whose systems are iterated together. A longer chunk writes A less often, and every
/// product with A_t has more keys to go through.
inline constexpr std::int64_t kTokensTogether = 16;
/// The same of those that share a factor: in a longer chunk it costs less, and its ridge is further
/// from what the last tokens should have.
inline constexpr std::int64_t kTokensOfFactor = 32;

inline std::int64_t ChunkTokens(const Options& options, std::int64_t key_dim) {
  if (!options.iterates()) return ChunkTokens(key_dim);
  return options.iteration.preconditioner == Preconditioner::kChunkFactor ? kTokensOfFactor
                                                                          : kTokensTogether;
}

/// What is left of a pivot, as a share of its diagonal, that is rounding and no number: beyond it a
/// direction counts as never seen. Double may take the definition's margin; float cannot afford it.
template <class T>
constexpr double Rounding(std::int64_t key_dim) {
  constexpr double kEpsilon = sizeof(T) == 4 ? 0x1p-23 : 0x1p-52;
  return (sizeof(T) == 4 ? 4 : 64) * static_cast<double>(key_dim) * kEpsilon;
}

/// Below this a diagonal has faded away: its digits are gone.
template <class T>
inline constexpr double kFaded = sizeof(T) == 4 ? 1e-30 : 1e-290;

/// Rows of a block lie an odd number of lines apart, or those of a power of two would meet in the
/// same few sets of a cache.
template <class T>
constexpr std::int64_t StrideOf(std::int64_t columns) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  return (RoundUp(columns, kLine) / kLine | 1) * kLine;
}

/// The scratch of one worker.
template <class T>
struct Scratch {
  std::int64_t keys_unit, values_unit, chunk, columns;  // D, Dv, tokens, queries: rounded up
  // A (its upper triangle) and B as they go.
  T *a, *b;
  // For T = float: the same in double, which they are rounded from.
  double *a_sum, *b_sum;
  // The memory as a chunk began that has to be answered in parts.
  double* saved;
  // K, V and Q of the chunk, K and V times sqrt(w / c).
  T *k, *v, *q;
  // [A | K^T | Q^T | B], then [U | Wk | Wq | Wb].
  T* first;
  // [S | V | M], then [L^T | E | P].
  T* second;
  T* corners;  // of U and of L^T (ln::Corner)
  T* pivots;   // two numbers for every pivot of one of them
  T* y;
  std::int64_t a_stride, b_stride, k_stride, v_stride, first_stride, second_stride, y_stride;
  std::size_t bytes;

  Scratch(const Options& options, const Sizes& sizes, std::byte* memory) {
    keys_unit = RoundUp(sizes.key_dim, kUnit);
    values_unit = RoundUp(sizes.value_dim, kUnit);
    chunk = std::min(ChunkTokens(options, sizes.key_dim),
                     RoundUp(std::max<std::int64_t>(sizes.tokens, 1), kUnit));
    columns = RoundUp(chunk * sizes.queries, kUnit);
    a_stride = StrideOf<T>(keys_unit);
    b_stride = v_stride = y_stride = StrideOf<T>(values_unit);
    k_stride = StrideOf<T>(keys_unit);
    first_stride = StrideOf<T>(first_end() + kUnit);
    second_stride = StrideOf<T>(second_end() + kUnit);
    std::int64_t used = 0;
    const auto take = [&](std::int64_t count) {
      T* const at = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory) + used;
      used += RoundUp(count, static_cast<std::int64_t>(kAlignment / sizeof(T)));
      return at;
    };
    a = take(keys_unit * a_stride);
    b = take(keys_unit * b_stride);
    // Two floats a double; the strides are the same.
    constexpr std::int64_t kDouble = sizeof(T) == sizeof(float) ? 2 : 0;
    a_sum = reinterpret_cast<double*>(take(kDouble * keys_unit * a_stride));
    b_sum = reinterpret_cast<double*>(take(kDouble * keys_unit * b_stride));
    saved = reinterpret_cast<double*>(take(static_cast<std::int64_t>(sizeof(double) / sizeof(T)) *
                                           SavedNumbers(sizes.key_dim, sizes.value_dim)));
    k = take(chunk * k_stride);
    v = take(chunk * v_stride);
    q = take(columns * k_stride);
    first = take(options.iterates() ? 0 : keys_unit * first_stride);
    second = take(options.iterates() ? 0 : chunk * second_stride);
    corners = take(options.iterates() ? 0 : (keys_unit + chunk) * kCornerNumbers);
    pivots = take(options.iterates() ? 0 : 2 * most_pivots());
    y = take(columns * y_stride);
    bytes = static_cast<std::size_t>(used) * sizeof(T);
  }

  std::int64_t most_pivots() const { return std::max(keys_unit, chunk); }

  // Where the parts of `first` and `second` begin.
  std::int64_t first_k() const { return keys_unit; }
  std::int64_t first_q() const { return first_k() + chunk; }
  std::int64_t first_b() const { return first_q() + columns; }
  std::int64_t first_end() const { return first_b() + values_unit; }
  std::int64_t second_v() const { return chunk; }
  std::int64_t second_q() const { return second_v() + values_unit; }
  std::int64_t second_end() const { return second_q() + columns; }
};

}  // namespace ttr::least_squares
