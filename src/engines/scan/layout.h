/// What the glue tells the kernels about one memory, and how they divide their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/scan/scan.h"
#include "src/simd/rows.h"

namespace ttr::scan {

using simd::Rows;

inline constexpr std::size_t kAlignment = 64;

/// Channels of a vector that are taken at a time, so that converted rows stay in the first-level
/// cache; a multiple of every vector.
inline constexpr std::int64_t kPiece = 512;

/// Tokens for which a strip of a matrix stays in registers, and the bytes of a strip's rows.
inline constexpr std::int64_t kBlockTokens = 32;
inline constexpr std::int64_t kStripBytes = 256;

/// Tokens between states that are kept for the backward pass.
inline constexpr std::int64_t kCheckpoint = kBlockTokens;

constexpr std::int64_t Checkpoints(std::int64_t tokens) {
  return (tokens + kCheckpoint - 1) / kCheckpoint;
}

constexpr std::int64_t RoundUp(std::int64_t x, std::int64_t unit) {
  return (x + unit - 1) / unit * unit;
}

/// One vector memory, one sequence, a range of channels (row pointers stand at the first of them).
struct Vector {
  Rows v, v_im, log_decay, phase, y;  // log_decay: of each channel
  Rows gate, importance;              // one number a token
  double decay_factor = 1;
  void* re = nullptr;
  void* im = nullptr;
  std::int64_t state_stride = 0;  // from before a token to after it; 0: the state is updated
  void* saved_re = nullptr;       // the state before token kCheckpoint, if any is kept,
  void* saved_im = nullptr;
  std::int64_t saved_stride = 0;  // and from that to the next one
  std::int64_t tokens = 0;
  std::int64_t channels = 0;
};

/// One matrix memory, one sequence, a range of value columns (row pointers, a and the state stand
/// at the first of them).
struct Matrix {
  Rows q, k, v, dt, y;             // q and y: of the first of `queries` heads
  std::int64_t q_head_stride = 0;  // in elements, between the queries of one memory
  std::int64_t y_head_stride = 0;
  Rows importance;  // one number a token
  Rows a;           // one row a column
  void* state = nullptr;
  std::int64_t state_stride = 0;  // between key rows
  void* saved = nullptr;          // as in Vector, rows kept_row_stride apart
  std::int64_t saved_stride = 0, saved_row_stride = 0;
  std::int64_t tokens = 0;
  std::int64_t key_dim = 1;
  std::int64_t columns = 0;
  std::int64_t queries = 1;
};

/// Does a column have more rates, of so many bytes each, than a line holds? Then those of its
/// neighbours, and with them rows of the state, are met in leaps that hardware does not foresee.
constexpr bool RatesLieApart(std::int64_t key_dim, std::size_t bytes) {
  return static_cast<std::size_t>(key_dim) * bytes > kAlignment;
}

/// Hands out pieces of a worker's scratch; counts alone where there is no memory.
class Arena {
 public:
  explicit Arena(std::byte* memory) : memory_(memory) {}
  template <class T>
  T* Take(std::int64_t count) {
    T* start = memory_ == nullptr ? nullptr : reinterpret_cast<T*>(memory_ + used_);
    // Arrays of the size of a page would compete for the same places of the first-level cache.
    used_ += RoundUp(count * static_cast<std::int64_t>(sizeof(T)), kAlignment) + kStagger;
    return start;
  }
  std::size_t bytes() const { return static_cast<std::size_t>(used_); }

 private:
  static constexpr std::int64_t kStagger = 3 * static_cast<std::int64_t>(kAlignment);
  std::byte* memory_;
  std::int64_t used_ = 0;
};

/// Of a worker on vector memories: a piece of every row that is not used where it lies.
template <class T>
struct VectorScratch {
  T *v, *v_im, *log_decay, *phase, *re, *im;
  T* y;  // a piece, or the whole row where there is a norm
  std::size_t bytes;

  VectorScratch(const Sizes& sizes, std::byte* memory) {
    Arena arena(memory);
    const std::int64_t line = kAlignment / sizeof(T);
    const std::int64_t piece = std::min(kPiece, RoundUp(sizes.value_dim, line));
    for (T** row : {&v, &v_im, &log_decay, &phase, &re, &im}) {
      *row = arena.Take<T>(piece);
    }
    y = arena.Take<T>(sizes.whole_rows ? RoundUp(sizes.value_dim, line) : piece);
    bytes = arena.bytes();
  }
};

/// Of a worker on matrix memories. One for all targets.
template <class T>
struct MatrixScratch {
  static constexpr std::int64_t kStrip = kStripBytes / sizeof(T);
  // Rows of a strip are an odd number of lines apart: all tokens of one vector of columns have
  // their place in the first-level cache.
  static constexpr std::int64_t kRow = kStrip + kAlignment / sizeof(T);
  T* rates;    // [columns / lanes][key_dim][lanes]: a, times its unit
  T* k;        // [token][key_dim]
  T* q;        // [query][token][key_dim]
  T *v, *dt;   // [token][strip]
  T* y;        // [query][token][columns, or a strip of them]
  T* state;    // [key_dim][line]: columns that do not fill a vector
  T* a_rows;   // [line][key_dim]: converted
  T* weights;  // [token]
  std::size_t bytes;

  MatrixScratch(const Sizes& sizes, std::byte* memory) {
    Arena arena(memory);
    const std::int64_t line = kAlignment / sizeof(T);
    const std::int64_t columns = RoundUp(sizes.value_dim, kStrip);
    rates = arena.Take<T>(columns * sizes.key_dim);
    k = arena.Take<T>(kBlockTokens * sizes.key_dim);
    q = arena.Take<T>(sizes.queries * kBlockTokens * sizes.key_dim);
    v = arena.Take<T>(kBlockTokens * kRow);
    dt = arena.Take<T>(kBlockTokens * kRow);
    y = arena.Take<T>(sizes.queries * kBlockTokens * YRow(sizes.whole_rows, columns));
    state = arena.Take<T>(sizes.key_dim * line);
    a_rows = arena.Take<T>(sizes.key_dim * line);
    weights = arena.Take<T>(kBlockTokens);
    bytes = arena.bytes();
  }

  /// From one token's answers to the next one's.
  static std::int64_t YRow(bool whole_rows, std::int64_t columns) {
    return whole_rows ? RoundUp(columns, kStrip) + kRow - kStrip : kRow;
  }
};

}  // namespace ttr::scan
