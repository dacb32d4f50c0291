/// What the glue hands to the kernels about one memory and one sequence.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/least_squares.h"
#include "src/linalg/block.h"
#include "src/simd/rows.h"

namespace ttr::least_squares {

using linalg::kUnit;
using linalg::RoundUp;
using simd::Rows;

/// What one of several threads does of a sequence: it gives the outputs of tokens first .. end.
/// Chunks begin where they do when one thread does all, so that a chunk across such a bound is run
/// by two threads, each of which stores its own outputs.
struct Segment {
  std::int64_t begin = 0;           // where it begins to run: the chunk of `first`, if it reads
  std::int64_t first = 0, end = 0;  // rounded to blocks, where there are blocks
  bool reads = true;                // false: writes only
  const double* start = nullptr;    // the memory at `begin`, as RunningSums::Save leaves it
  double* finish = nullptr;         // where to save it, if anywhere
  // Set as it runs: the token that comes next as the memory is saved (`end`, or its chunk's first);
  // the outputs that it stores; are they those of the memory after the last token?
  std::int64_t saved_at = 0;
  std::int64_t own_begin = 0, own_end = 0;
  bool reads_last = false;
};

/// Numbers that RunningSums::Save leaves of a memory.
constexpr std::int64_t SavedNumbers(std::int64_t key_dim, std::int64_t value_dim) {
  const std::int64_t keys = RoundUp(key_dim, kUnit);
  return keys * (keys + 1) / 2 + keys * RoundUp(value_dim, kUnit);
}

/// A number that is reported beside every output; null where nobody asked for it.
template <class Number>
struct Report {
  Number* data = nullptr;
  std::int64_t stride = 0, head_stride = 0;  // in elements, between tokens and between queries

  explicit operator bool() const { return data != nullptr; }
  void Set(std::int64_t token, std::int64_t query, Number number) const {
    if (data != nullptr) data[token * stride + query * head_stride] = number;
  }
};

/// A, the step factor and B of the memory that a worker probably runs next, of the same sizes and
/// strides; or nulls. A single token fetches them towards the caches.
struct Upcoming {
  const void* a = nullptr;
  const void* factor = nullptr;
  const void* b = nullptr;
};

/// The caller's state of one memory, and what stays for its next token.
struct MemoryState {
  void* a = nullptr;    // [key_dim] rows of key_dim
  void* b = nullptr;    // [key_dim] rows of value_dim
  void* rss = nullptr;  // value_dim numbers, of rotations
  std::int64_t a_stride = 0, b_stride = 0;
  void* factor = nullptr;  // of FactorLayout, if a single token is to have one
  bool deferred = false;   // the factor holds B as well, and stands for the state while it holds
  std::int64_t key_dim = 1, value_dim = 1;
};

/// One memory and one sequence.
struct Memory {
  MemoryState state;
  Upcoming upcoming;
  Rows k, v, log_decay, importance;
  double decay_factor = 1;
  const double* ridge = nullptr;   // key_dim numbers
  Rows q, y;                       // of the first of `queries` heads
  Rows step;                       // `steps` numbers a token
  Rows momentum;                   // a number a token
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  std::int64_t y_head_stride = 0;
  std::int64_t queries = 0;  // of a token; 0: writes only
  Report<std::int8_t> status;
  Report<std::int64_t> iterations;
  Report<double> residual;
  std::int64_t tokens = 0;
  Segment* segment = nullptr;  // absent: all tokens, from and to the caller's state

  std::int64_t key_dim() const { return state.key_dim; }
  std::int64_t value_dim() const { return state.value_dim; }
  bool writes() const { return static_cast<bool>(v); }
  /// Is the output of this token to be stored?
  bool Stores(std::int64_t token) const {
    return segment == nullptr || (token >= segment->own_begin && token < segment->own_end);
  }
};

inline Segment WholeOf(const Memory& memory) {
  return {.begin = memory.writes() ? 0 : memory.tokens, .end = memory.tokens};
}

/// Head `query` of rows whose first head is `rows`.
inline Rows HeadOf(const Rows& rows, std::int64_t head_stride, std::int64_t query) {
  Rows shifted = rows;
  shifted.data = static_cast<std::byte*>(rows.data) +
                 query * head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
  return shifted;
}
inline Rows QueryRows(const Memory& memory, std::int64_t query) {
  return HeadOf(memory.q, memory.q_head_stride, query);
}
inline Rows OutputRows(const Memory& memory, std::int64_t query) {
  return HeadOf(memory.y, memory.y_head_stride, query);
}

}  // namespace ttr::least_squares
