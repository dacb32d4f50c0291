/// What the glue tells the kernels about one memory, and how they divide their scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/fast_weights.h"

namespace ttr::fast_weights {

/// Tokens of a chunk. Longer chunks read and write the memory less often and solve larger systems:
/// per token 6 Dk Dv flops against kChunk (2 Dk + Dv) of Gram matrices and substitution.
inline constexpr int kChunk = 8;

/// Chunks prepared at a time. All strips of the memory pass over a block before the next one is
/// fetched, so that every line of q, k, v and y comes and goes once.
inline constexpr int kBlockChunks = 4;
inline constexpr int kBlockTokens = kChunk * kBlockChunks;

/// Sequences up to this length are updated token by token where the state lies.
inline constexpr std::int64_t kDirectTokens = 3;

inline constexpr std::size_t kAlignment = 64;

/// One row of numbers a token: element i of token t at data[t * stride + i]. Inputs are not
/// written.
struct Rows {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t stride = 0;
  explicit operator bool() const { return data != nullptr; }
};

/// One memory, one sequence, a range of value columns.
struct Memory {
  Rows q, k, v, y;                 // q and y: of the first of `queries` heads
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  std::int64_t y_head_stride = 0;
  Rows log_decay, step;  // one number a token
  double decay_factor = 1;
  void* state = nullptr;  // [key_dim] rows of value_dim columns
  std::int64_t state_stride = 0;
  std::int64_t tokens = 0;
  std::int64_t key_dim = 1;
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;
  std::int64_t first_column = 0;  // a multiple of the strip's width
  std::int64_t end_column = 0;
};

constexpr std::int64_t RoundUp(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

/// The arrays of a worker's scratch, in elements of T. One for all targets: rows are padded to
/// eight and columns to 64 bytes.
template <class T>
struct Scratch {
  T* strips;        // the memory, strip by strip: [columns / W][key rows][W]
  T* keys;          // [chunk][key rows][kChunk]: keys of a chunk as columns
  T* queries;       // [chunk][query][key rows][kChunk]
  T* coefficients;  // [chunk][CoefficientCount]
  T* values;        // [block token][columns]: converted values, where not read where they lie
  T* outputs;       // [query][block token][columns]
  T* rows;          // [kChunk][key rows]: converted, normalised rows; also the rows of direct steps
  T* innovations;   // [2][kChunk][W] of a strip: as solved, and decayed to the chunk's end
  T* early;         // [query][W]: answers from a memory that is then forgotten
  T* zeros;         // [key rows]
  std::size_t bytes;

  static std::int64_t CoefficientCount(std::int64_t queries) {
    return (queries + 1) * kChunk * kChunk + 4 * kChunk;
  }

  Scratch(const Sizes& sizes, std::byte* memory) {
    const std::int64_t line = kAlignment / sizeof(T);
    const bool chunked = sizes.tokens > kDirectTokens;
    const std::int64_t chunks = chunked ? kBlockChunks : 0;
    const std::int64_t tokens = chunked ? kBlockTokens : 1;
    const std::int64_t key_rows = RoundUp(sizes.key_dim, line);
    const std::int64_t columns = RoundUp(sizes.value_dim, line);
    std::int64_t used = 0;
    auto take = [&](std::int64_t count) {
      T* start = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory) + used;
      used += RoundUp(count, line);
      return start;
    };
    strips = take(key_rows * (chunked ? columns : line));
    keys = take(chunks * key_rows * kChunk);
    queries = take(chunks * sizes.queries * key_rows * kChunk);
    coefficients = take(chunks * CoefficientCount(sizes.queries));
    values = take(tokens * columns);
    outputs = take(tokens * sizes.queries * columns);
    rows = take((chunked ? kChunk : sizes.queries + 1) * key_rows);
    innovations = take(2 * kChunk * 2 * line);
    early = take(sizes.queries * 2 * line);
    zeros = take(key_rows);
    bytes = static_cast<std::size_t>(used) * sizeof(T);
  }
};

}  // namespace ttr::fast_weights
