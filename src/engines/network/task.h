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
  std::int64_t spacing = 1;    // chunks from one to the next
};

/// A block for every layer, of which those between the first and the last are alike.
template <class T>
class LayerBlocks {
 public:
  LayerBlocks() = default;
  /// rows(l) and columns(l) are those of layer l. The rows of blocks that are not wanted are null.
  template <class RowsOf, class ColumnsOf>
  LayerBlocks(const Shape& shape, bool wanted, const RowsOf& rows, const ColumnsOf& columns,
              ScratchLayout& layout)
      : last_(shape.depth - 1) {
    const std::int64_t layers[] = {0, std::min<std::int64_t>(1, last_), last_};
    for (int i = 0; i < 3; ++i) {
      strides_[i] = linalg::StrideOf<T>(columns(layers[i]));
      sizes_[i] = rows(layers[i]) * strides_[i];
    }
    numbers_ = OffsetOf(last_) + sizes_[last_ > 0 ? 2 : 0];
    if (wanted) data_ = layout.Take<T>(numbers_);
  }

  Block<T> operator[](std::int64_t l) const {
    if (data_ == nullptr) return {};
    return {data_ + OffsetOf(l), strides_[l == 0 ? 0 : l == last_ ? 2 : 1]};
  }
  T* data() const { return data_; }
  std::int64_t numbers() const { return numbers_; }

 private:
  std::int64_t OffsetOf(std::int64_t l) const {
    return l == 0 ? 0 : sizes_[0] + (l - 1) * sizes_[1];
  }

  T* data_ = nullptr;
  std::int64_t last_ = 0, numbers_ = 0;
  std::int64_t strides_[3] = {}, sizes_[3] = {};  // of the first layer, those between, the last
};

/// Weights: row `in` of column `out`, the bias as the row behind them.
template <class T>
struct Weights : LayerBlocks<T> {
  Weights() = default;
  Weights(const Shape& shape, bool wanted, ScratchLayout& layout)
      : LayerBlocks<T>(
            shape, wanted, [&](std::int64_t l) { return linalg::RoundUp(shape.Rows(l), kUnit); },
            [&](std::int64_t l) { return linalg::RoundUp(shape.Out(l), kUnit); }, layout) {}
};

/// A row a token, of what goes into the layer or comes out of it.
template <class T>
struct TokenRows : LayerBlocks<T> {
  enum class Of { kIn, kOut };
  TokenRows(const Shape& shape, Of of, ScratchLayout& layout)
      : LayerBlocks<T>(
            shape, true, [](std::int64_t) { return kBlock; },
            [&](std::int64_t l) {
              return linalg::RoundUp(of == Of::kIn ? shape.Rows(l) : shape.Out(l), kUnit);
            },
            layout) {}
};

/// A row a channel of what goes into the layer, a column a token.
template <class T>
struct TokenColumns : LayerBlocks<T> {
  TokenColumns(const Shape& shape, ScratchLayout& layout)
      : LayerBlocks<T>(
            shape, true, [&](std::int64_t l) { return linalg::RoundUp(shape.Rows(l), kUnit); },
            [](std::int64_t) { return kBlock; }, layout) {}
};

/// A memory's parameters as blocks, or the gradients for them: StateParameters by the same names.
/// What the options lack has no rows.
template <class T>
struct StateBlocks {
  Weights<T> weights, anchors, second, squares;

  StateBlocks() = default;
  StateBlocks(const Options& options, const Shape& shape, ScratchLayout& layout)
      : weights(shape, true, layout),
        anchors(shape, options.has_anchors(), layout),
        second(shape, options.has_second(), layout),
        squares(shape, options.adapts(), layout) {}

  /// Tensors and blocks of one name.
  struct Entry {
    Parameters StateParameters::* tensors;
    Weights<T> StateBlocks::* blocks;
  };
  static constexpr Entry kEntries[] = {{&StateParameters::weights, &StateBlocks::weights},
                                       {&StateParameters::anchors, &StateBlocks::anchors},
                                       {&StateParameters::second, &StateBlocks::second},
                                       {&StateParameters::squares, &StateBlocks::squares}};
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
struct Chunk {
  std::int64_t first = 0, count = 0, place = 0;
  bool ends = false;        // the mini-batch
  bool cut = false;         // before a token that is taken alone
  bool has_anchor = false;  // W_bar is not A
  bool has_second = false;  // B is not zero
};

/// The numbers of a chunk's tokens that weigh their gradients.
template <class T>
struct Rates {
  T *step, *momentum, *decay;  // [token]
  T* row;                      // [place of the chunk and one more]: row factors; that before first

  explicit Rates(ScratchLayout& layout) {
    layout.Take(kBlock, {&step, &momentum, &decay});
    row = layout.Take<T>(kBlock + 1);
  }
};

/// A worker's scratch.
template <class T>
struct Scratch {
  StateBlocks<T> state;
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
      : state(options, shape, layout),
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
