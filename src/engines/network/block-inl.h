// Tokens of one mini-batch together: gradients at the weights where it began, and one update for
// all. Compiled once for every target.

#if defined(TTR_NETWORK_BLOCK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_BLOCK_INL_H_
#undef TTR_NETWORK_BLOCK_INL_H_
#else
#define TTR_NETWORK_BLOCK_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/activation-inl.h"
#include "src/engines/network/coefficients.h"
#include "src/engines/network/head-inl.h"
#include "src/engines/network/products-inl.h"
#include "src/engines/network/task.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
class BlockKernel : public Products<T> {
 public:
  using Products<T>::ForTokens, Products<T>::ForWeights, Products<T>::Apply;

  BlockKernel(const Options& options, const Shape& shape, const Memory& memory, Team& team,
              const Scratch<T>& scratch)
      : Products<T>(shape, team, scratch),
        options_(options),
        memory_(memory),
        activated_(options, shape),
        head_{options, shape.value_dim, scratch.ln_weight, scratch.ln_bias} {}

  /// Called once a memory: sets constants, and the input 1 of biases, for so many rows.
  void Begin(std::int64_t rows) const {
    const auto constant = [&](const Rows& of, T absent, T* to) {
      if (of) {
        sn::LoadRow(of, 0, 0, shape_.value_dim, to);
      } else {
        std::fill(to, to + shape_.value_dim, absent);
      }
    };
    constant(memory_.ln_weight, 1, s_.ln_weight);
    constant(memory_.ln_bias, 0, s_.ln_bias);
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      for (const TokenRows<T>* of : {&s_.x, &s_.z, &s_.dz, &s_.u, &s_.zq}) {
        const Block<T> block = (*of)[l];
        std::fill(block.data, block.Row(rows), T(0));
      }
      for (std::int64_t i = 0; shape_.bias && i < rows; ++i) {
        s_.x[l].Row(i)[shape_.In(l)] = s_.u[l].Row(i)[shape_.In(l)] = 1;
      }
    }
  }

  /// Loads keys and values of a chunk, and its rates.
  void LoadPairs(const Chunk& chunk) const {
    LoadPairs(chunk, {0, chunk.count});
    LoadRates(chunk);
  }

  /// Loads keys and values of some of its tokens.
  void LoadPairs(const Chunk& chunk, Range rows) const {
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      const std::int64_t t = chunk.first + i;
      LoadKey(options_, memory_.k, t, shape_.key_dim, 1, s_.x[0].Row(i));
      sn::LoadRow(memory_.v, t, 0, shape_.value_dim, s_.v.Row(i));
    }
  }

  void LoadRates(const Chunk& chunk) const {
    const Rates<T>& rates = s_.rates;
    for (std::int64_t i = 0; i < chunk.count; ++i) {
      const std::int64_t t = chunk.first + i;
      rates.step[i] = sn::LoadOne<T>(memory_.step, t);
      rates.momentum[i] = memory_.momentum ? sn::LoadOne<T>(memory_.momentum, t) : T(0);
      rates.decay[i] = memory_.weight_decay ? sn::LoadOne<T>(memory_.weight_decay, t) : T(0);
    }
    for (std::int64_t r = 0; options_.plain() && r <= chunk.count; ++r) {
      rates.row[r] = RowFactor(chunk.place + r - 1);
    }
  }

  /// max(1 / (place + 1) + bias, 0), or 1.
  T RowFactor(std::int64_t place) const {
    if (!options_.inverse_rows || place < 0) return 1;
    T bias = 0;
    if (memory_.row_bias) sn::LoadRow(memory_.row_bias, 0, place, 1, &bias);
    return std::max(1 / static_cast<T>(place + 1) + bias, T(0));
  }

  /// Loads a chunk's pairs, and finds their x, z and dz at the weights W_bar. The backward pass
  /// asks for act''(z) and the gradients for x, too.
  void FindGradients(const Chunk& chunk, const Weights<T>& anchor,
                     const TokenRows<T>* curvatures = nullptr,
                     const TokenRows<T>* before = nullptr) const {
    const std::int64_t last = shape_.depth - 1;
    ForTokens(chunk.count, [&](Range rows) HWY_ATTR {
      LoadPairs(chunk, rows);
      Evaluate(anchor, rows, curvatures);
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        s_.deviations[i] =
            head_.Loss(s_.x[0].Row(i), s_.v.Row(i), s_.z[last].Row(i), s_.dz[last].Row(i));
      }
    });
    for (std::int64_t l = last; l > 0; --l) Descend(anchor[l], l, chunk.count, before);
    if (chunk.count > 1) TransposeRows(s_.x[0], chunk.count, shape_.Rows(0), s_.transposed[0]);
  }

  /// Are sums of products of the loaded numbers far from overflow? `bound` is that of A and B; if
  /// they are, it becomes that after the chunk.
  bool IsSafe(std::int64_t count, T& bound) const {
    const Coefficients<T>& c = s_.coefficients;
    T pairs = 0;
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      T in = 0, out = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        in += Mass(shape_.Rows(l), s_.x[l].Row(i));
        out += Mass(shape_.Out(l), s_.dz[l].Row(i));
      }
      pairs = std::max(pairs, in * out);
      if (!std::isfinite(in) || !std::isfinite(out)) return false;
    }
    T most = Mass(count, c.d);
    for (std::int64_t r = 0; r <= count; ++r) most = std::max(most, Mass(count, c.Row(r)));
    T share = std::abs(*c.kept);
    for (std::int64_t r = 0; r <= count; ++r) {
      share = std::max(share, std::abs(c.a[r]) + std::abs(c.b[r]));
    }
    const T after = share * bound + most * pairs;
    if (!(after < std::numeric_limits<T>::max() / 1000)) return false;
    bound = after;
    return true;
  }

  /// Computes A and B after the chunk for which FindGradients() was called. W_bar stays.
  void Update(const Chunk& chunk) const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      ForWeights(shape_.Rows(l), [&](Range rows) HWY_ATTR { UpdateRows(chunk, l, rows); });
    }
  }

  const Head<T>& head() const { return head_; }
  const Activated<T>& activated() const { return activated_; }

 private:
  /// z of every layer, then of all but the last act'(z), and what goes into the next.
  void Evaluate(const Weights<T>& weights, Range rows, const TokenRows<T>* curvatures) const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      Apply(weights[l], l, s_.x[l], rows, s_.z[l]);
      if (l + 1 == shape_.depth) break;
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        T* const z = s_.z[l].Row(i);
        activated_.Apply(z, s_.x[l + 1].Row(i), z,
                         curvatures != nullptr ? (*curvatures)[l].Row(i) : nullptr);
      }
    }
  }

  /// Goes from dz of layer l to that of the layer before; leaves x of layer l by columns.
  void Descend(const Block<T>& weights, std::int64_t l, std::int64_t count,
               const TokenRows<T>* before) const {
    const Block<T> to = s_.dz[l - 1], slopes = s_.z[l - 1];
    const auto pass = [&](Range of) HWY_ATTR {
      for (std::int64_t i = 0; i < count; ++i) {
        const T* const row = to.Row(i);
        if (before != nullptr) {
          std::copy(row + of.begin, row + of.end, (*before)[l - 1].Row(i) + of.begin);
        }
        activated_.PassBack(slopes.Row(i), to.Row(i), of);
      }
    };
    const std::int64_t in = shape_.In(l);
    if (count == 1) {
      PassDownOne(weights, l, s_.dz[l].data, in, to.data);
      return pass({0, in});
    }
    TransposeRows(s_.dz[l], count, shape_.Out(l), s_.out_columns);
    // Squares of a transposition reach beyond the last channel, into the other half of gated rows.
    const std::int64_t rows = shape_.Rows(l), unit = shape_.gated && in % kUnit != 0 ? rows : kUnit;
    team_.Divide(rows, unit, [&](std::int64_t begin, std::int64_t end) HWY_ATTR {
      TransposeRows(s_.x[l].Columns(begin), count, end - begin, s_.transposed[l].Rows(begin));
      const Range of{begin, std::min(end, in)};
      if (of.count() <= 0) return;
      PassDownRows(weights, l, count, of, to);
      pass(of);
    });
  }

  void UpdateRows(const Chunk& chunk, std::int64_t l, Range rows) const {
    const Coefficients<T>& c = s_.coefficients;
    const std::int64_t n = chunk.count, columns = linalg::RoundUp(shape_.Out(l), kUnit);
    const bool writes_a = !options_.plain() || chunk.ends;
    const bool writes_b = options_.has_second() && !(options_.plain() && chunk.ends);
    const Block<T> a = s_.state.weights[l], b = s_.state.second[l];
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      if (writes_a) Mix(columns, c.a[n], chunk.has_second ? c.b[n] : T(0), b.Row(r), a.Row(r));
      if (writes_b) Fade(columns, chunk.has_second ? *c.kept : T(0), b.Row(r));
      if (chunk.has_second && !writes_b) std::fill(b.Row(r), b.Row(r) + columns, T(0));
    }
    if (writes_a) TakeOff(l, n, c.Row(n), rows, a);
    if (writes_b) TakeOff(l, n, c.d, rows, b);
  }

  /// to -= sum_j factors_j x_j dz_j^T
  void TakeOff(std::int64_t l, std::int64_t count, const T* factors, Range rows,
               const Block<T>& to) const {
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    const auto multiply = [](auto, auto a, auto b) HWY_ATTR { return hn::Mul(a, b); };
    if (count == 1) {
      for (std::int64_t r = rows.begin; r < rows.end; ++r) {
        sn::AddScaled(columns, -*factors * s_.x[l].data[r], static_cast<const T*>(s_.dz[l].data),
                      to.Row(r));
      }
      return;
    }
    for (std::int64_t r = rows.begin; r < rows.end; ++r) {
      sn::MapRows(count, s_.in_columns.Row(r), multiply,
                  static_cast<const T*>(s_.transposed[l].Row(r)), factors);
    }
    const std::int64_t tiles = TileRows(rows.count());
    ZeroRows(s_.in_columns, rows.end, rows.begin + tiles, count);
    ln::MultiplyStrips<Into::kSubtract>(Left<T>::Of(s_.in_columns.Rows(rows.begin)), s_.dz[l],
                                        tiles, columns, count, to.Rows(rows.begin));
  }

  /// a <- factor a + share b
  static HWY_INLINE void Mix(std::int64_t count, T factor, T share, const T* b, T* a) {
    if (share != 0) {
      const auto mix = [=](auto d, auto x, auto y) HWY_ATTR {
        return hn::MulAdd(x, hn::Set(d, factor), hn::Mul(y, hn::Set(d, share)));
      };
      sn::MapRows(count, a, mix, static_cast<const T*>(a), b);
    } else if (factor != 1) {
      Fade(count, factor, a);
    }
  }
  static HWY_INLINE void Fade(std::int64_t count, T factor, T* x) {
    if (factor == 0) {
      std::fill(x, x + count, T(0));
    } else if (factor != 1) {
      ScaleRow(count, factor, static_cast<const T*>(x), x);
    }
  }

  using Products<T>::shape_, Products<T>::team_, Products<T>::s_;
  using Products<T>::PassDownRows, Products<T>::PassDownOne;

  const Options& options_;
  const Memory& memory_;
  Activated<T> activated_;
  Head<T> head_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_BLOCK_INL_H_
