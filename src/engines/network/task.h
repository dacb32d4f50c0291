/// What is done with one memory: what the glue hands to the kernels, and how these divide their
/// scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/row_views.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/network/network.h"
#include "src/linalg/block.h"
#include "src/parallel/team.h"
#include "src/simd/rows.h"

namespace ttr::network {

using common::HeadRows;
using common::ScratchLayout;
using linalg::Block;
using linalg::kUnit;
using simd::Rows;

/// Tokens that are taken together at the most: those of one mini-batch.
inline constexpr std::int64_t kBlock = 32;

/// One memory, one sequence. Its parameters lie in the tensors of `call`.
struct Memory {
  const Call* call = nullptr;
  std::int64_t state_row = 0, head = 0;
  HeadRows q, y, status;  // of the queries that read this memory
  Rows k, v, step, momentum, weight_decay;
  Rows ln_weight, ln_bias, row_bias;
  std::int64_t* position = nullptr;
  std::int64_t tokens = 0, queries = 1;
};

struct Task {
  const Options& options;
  const Shape& shape;
  Team& team;
  Memory memory;
  std::byte* scratch = nullptr;
  std::byte* saved = nullptr;  // checkpoints for the backward pass, or null
  std::int64_t spacing = 1;    // parts from one to the next
};

/// Where layer l begins, of arrays of which the layers between the first and the last are alike.
constexpr std::int64_t OffsetOf(std::int64_t l, std::int64_t first, std::int64_t middle) {
  return l == 0 ? 0 : first + (l - 1) * middle;
}

/// A block for every layer's weights: row `in` of column `out`, the bias as the row behind them.
/// Weights that are not wanted are blocks whose every row is null.
template <class T>
class Weights {
 public:
  Weights() = default;
  Weights(const Shape& shape, bool wanted, ScratchLayout& layout) : shape_(&shape) {
    numbers_ = OffsetOf(shape.depth, Size(0), Size(1)) +
               (shape.depth > 1 ? Size(shape.depth - 1) - Size(1) : 0);
    if (wanted) data_ = layout.Take<T>(numbers_);
  }

  Block<T> operator[](std::int64_t l) const {
    if (data_ == nullptr) return {};
    return {data_ + OffsetOf(l, Size(0), Size(1)), Stride(l)};
  }
  T* data() const { return data_; }
  std::int64_t numbers() const { return numbers_; }

 private:
  std::int64_t Stride(std::int64_t l) const {
    return linalg::StrideOf<T>(linalg::RoundUp(shape_->Out(l), kUnit));
  }
  std::int64_t Size(std::int64_t l) const {
    return linalg::RoundUp(shape_->Rows(l), kUnit) * Stride(l);
  }

  const Shape* shape_ = nullptr;
  T* data_ = nullptr;
  std::int64_t numbers_ = 0;
};

/// A block for every layer: a row a token, of what goes into the layer or comes out of it.
template <class T>
class TokenRows {
 public:
  enum class Of { kIn, kOut };
  TokenRows() = default;
  TokenRows(const Shape& shape, Of of, ScratchLayout& layout) : shape_(&shape), of_(of) {
    numbers_ = OffsetOf(shape.depth, Size(0), Size(1)) +
               (shape.depth > 1 ? Size(shape.depth - 1) - Size(1) : 0);
    data_ = layout.Take<T>(numbers_);
  }

  Block<T> operator[](std::int64_t l) const {
    return {data_ + OffsetOf(l, Size(0), Size(1)), Stride(l)};
  }
  T* data() const { return data_; }
  std::int64_t numbers() const { return numbers_; }

 private:
  std::int64_t Stride(std::int64_t l) const {
    return linalg::StrideOf<T>(
        linalg::RoundUp(of_ == Of::kIn ? shape_->Rows(l) : shape_->Out(l), kUnit));
  }
  std::int64_t Size(std::int64_t l) const { return kBlock * Stride(l); }

  const Shape* shape_ = nullptr;
  Of of_ = Of::kIn;
  T* data_ = nullptr;
  std::int64_t numbers_ = 0;
};

/// A block for every layer: a row a channel of what goes into it, a column a token.
template <class T>
class TokenColumns {
 public:
  TokenColumns() = default;
  TokenColumns(const Shape& shape, ScratchLayout& layout) : shape_(&shape) {
    data_ = layout.Take<T>(OffsetOf(shape.depth, Size(0), Size(1)));
  }
  Block<T> operator[](std::int64_t l) const {
    return {data_ + OffsetOf(l, Size(0), Size(1)), Stride()};
  }

 private:
  static std::int64_t Stride() { return linalg::StrideOf<T>(kBlock); }
  std::int64_t Size(std::int64_t l) const {
    return linalg::RoundUp(shape_->Rows(l), kUnit) * Stride();
  }

  const Shape* shape_ = nullptr;
  T* data_ = nullptr;
};

/// What tokens of a mini-batch make of the weights before them. After r of them
///
///     A_r = a_r A_0 + b_r B_0 - sum_{j < r} c_rj g_j
///     B_n = kept B_0 - sum_j d_j g_j
///
/// with A the weights, B the sum of steps times gradients or the last update.
template <class T>
struct Coefficients {
  static constexpr std::int64_t kRow = kBlock;
  T* a;  // [after r tokens]
  T* b;
  T* c;     // [after r tokens][token]
  T* d;     // [token]
  T* kept;  // one number

  explicit Coefficients(ScratchLayout& layout) {
    layout.Take((kBlock + 1), {&a, &b});
    c = layout.Take<T>((kBlock + 1) * kRow);
    d = layout.Take<T>(kBlock);
    kept = layout.Take<T>(1);
  }
  T* Row(std::int64_t r) const { return c + r * kRow; }
};

/// Rows of tokens, or of weights: those that one of a team has.
struct Range {
  std::int64_t begin = 0, end = 0;

  std::int64_t count() const { return end - begin; }
};

/// Tokens first .. first + count of a call, at places of one mini-batch.
struct Part {
  std::int64_t first = 0, count = 0, place = 0;
  bool ends = false;        // the mini-batch
  bool cut = false;         // before a token that is taken alone
  bool has_anchor = false;  // W_bar is not A
  bool has_second = false;  // B is not zero
};

/// The numbers of a part's tokens that weigh their gradients.
template <class T>
struct Rates {
  T *step, *momentum, *decay;  // [token]
  T* row;                      // [place of the part and one more]: row factors; that before first

  explicit Rates(ScratchLayout& layout) {
    layout.Take(kBlock, {&step, &momentum, &decay});
    row = layout.Take<T>(kBlock + 1);
  }
};

/// A worker's scratch.
template <class T>
struct Scratch {
  Weights<T> a, anchor, b, squares;
  TokenRows<T> x;              // what goes into every layer, of keys
  TokenColumns<T> transposed;  // x, a column a token
  TokenRows<T> z;          // what comes out of it, then act'(z); of the last (z - mean) / deviation
  TokenRows<T> dz;         // the gradient for it
  TokenRows<T> u, zq;      // x and z of queries
  Block<T> out_columns;    // [channel of a layer's outputs][token]
  Block<T> in_columns;     // [channel of its inputs][token]
  Block<T> scaled;         // [token][channel]
  Block<T> below;          // [token][channel]: gradients for what goes into a layer
  Block<T> scores;         // [query][token]
  Block<T> v;              // [token][channel]
  T* deviations;           // [token]: their inverses
  T *ln_weight, *ln_bias;  // [channel]
  T* row;                  // [channel]
  Coefficients<T> coefficients;
  Rates<T> rates;

  Scratch(const Options& options, const Shape& shape, ScratchLayout& layout)
      : a(shape, true, layout),
        anchor(shape, options.has_anchors(), layout),
        b(shape, options.has_second(), layout),
        squares(shape, options.adapts(), layout),
        x(shape, TokenRows<T>::Of::kIn, layout),
        transposed(shape, layout),
        z(shape, TokenRows<T>::Of::kOut, layout),
        dz(shape, TokenRows<T>::Of::kOut, layout),
        u(shape, TokenRows<T>::Of::kIn, layout),
        zq(shape, TokenRows<T>::Of::kOut, layout),
        coefficients(layout),
        rates(layout) {
    const std::int64_t width = Widest(shape);
    const auto block = [&](std::int64_t rows, std::int64_t columns) {
      const std::int64_t stride = linalg::StrideOf<T>(columns);
      return Block<T>{layout.Take<T>(rows * stride), stride};
    };
    out_columns = block(width, kBlock);
    in_columns = block(width, kBlock);
    scaled = block(kBlock, width);
    below = block(kBlock, width);
    scores = block(kBlock, kBlock);
    v = block(kBlock, linalg::RoundUp(shape.value_dim, kUnit));
    deviations = layout.Take<T>(kBlock);
    layout.Take(shape.value_dim, {&ln_weight, &ln_bias});
    row = layout.Take<T>(width);
  }

  static std::int64_t Widest(const Shape& shape) {
    std::int64_t most = shape.value_dim;
    for (std::int64_t l = 0; l < std::min<std::int64_t>(shape.depth, 3); ++l) {
      most = std::max({most, shape.Rows(l), shape.Out(l)});
    }
    return linalg::RoundUp(std::max(most, shape.Rows(shape.depth - 1)), kUnit);
  }
};

/// One memory through one sequence; Task::scratch, at a multiple of 64, has the bytes of Scratch.
void Run(const Task& task, DType dtype);

}  // namespace ttr::network
