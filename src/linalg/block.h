/// Blocks of rows in memory, the units in which they are counted, and what a factor of one is made
/// of. Plain C++: headers that divide memory name blocks without any SIMD target.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ttr::linalg {

/// Blocks have rows and columns in these units: whole vectors, whole register tiles, whole squares
/// of a transposition. Callers that have fewer fill up with zeros (and ones on a diagonal).
inline constexpr std::int64_t kUnit = 16;

constexpr std::int64_t RoundUp(std::int64_t n, std::int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

/// Rows of a block are an odd number of cache lines apart, or those of a power of two would meet in
/// the same few sets of a cache.
template <class T>
constexpr std::int64_t StrideOf(std::int64_t columns) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  return (RoundUp(columns, kLine) / kLine | 1) * kLine;
}

/// A block in memory: element (i, j) at data[i stride + j].
template <class T>
struct Block {
  T* data = nullptr;
  std::int64_t stride = 0;

  T* Row(std::int64_t i) const { return data + i * stride; }
  /// Columns from j on.
  Block Columns(std::int64_t j) const { return {data + j, stride}; }
  Block Rows(std::int64_t i) const { return {Row(i), stride}; }
};

/// A left factor of any order: element (i, p) at data[i row + p step].
template <class T>
struct Left {
  const T* data = nullptr;
  std::int64_t row = 0;
  std::int64_t step = 0;

  static Left Of(const Block<T>& b) { return {b.data, b.stride, 1}; }
  static Left Transposed(const Block<T>& b) { return {b.data, 1, b.stride}; }
};

/// The upper triangular U of A = U^T U, and what solves keep of its diagonal (ln::Corner):
/// kCornerNumbers for each of its rows.
template <class T>
struct UpperFactor {
  Block<T> u;
  T* corners = nullptr;
};
inline constexpr std::int64_t kCornerNumbers = 9;

template <class T>
void ZeroRows(const Block<T>& block, std::int64_t begin, std::int64_t end, std::int64_t columns) {
  for (std::int64_t i = begin; i < end; ++i) {
    std::fill(block.Row(i), block.Row(i) + columns, T(0));
  }
}

template <class T>
void CopyRows(const Block<T>& from, std::int64_t rows, std::int64_t columns, const Block<T>& to) {
  for (std::int64_t i = 0; i < rows; ++i) {
    std::copy(from.Row(i), from.Row(i) + columns, to.Row(i));
  }
}

/// A staircase of `steps` steps in `rows` x `columns` numbers: row i keeps the columns from i
/// `columns_a_step` on, rows after the last step keep none. The rest becomes zero.
template <class T>
void ZeroBelowStairs(const Block<T>& block, std::int64_t rows, std::int64_t columns,
                     std::int64_t columns_a_step, std::int64_t steps) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t zeros = i < steps ? std::min(i * columns_a_step, columns) : columns;
    std::fill(block.Row(i), block.Row(i) + zeros, T(0));
  }
}

/// The transpose of such a staircase: row j keeps the columns up to j / `rows_a_step`.
template <class T>
void ZeroAboveStairs(const Block<T>& block, std::int64_t rows, std::int64_t columns,
                     std::int64_t rows_a_step) {
  for (std::int64_t j = 0; j < rows; ++j) {
    const std::int64_t kept = std::min(j / rows_a_step + 1, columns);
    std::fill(block.Row(j) + kept, block.Row(j) + columns, T(0));
  }
}

}  // namespace ttr::linalg
