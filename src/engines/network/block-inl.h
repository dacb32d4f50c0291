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
#include "src/engines/network/task.h"
#include "src/linalg/strips-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

namespace ln = ttr::linalg::HWY_NAMESPACE;
using linalg::Left;
using ln::Into;

/// Rows as register tiles take them.
constexpr std::int64_t TileRows(std::int64_t rows) { return linalg::RoundUp(rows, ln::kTileRows); }

/// `rows` rows of `columns` numbers, to columns.
template <class T>
void Turn(const Block<T>& from, std::int64_t rows, std::int64_t columns, const Block<T>& to) {
  ln::Transpose(from, linalg::RoundUp(rows, kUnit), linalg::RoundUp(columns, kUnit), to);
}

template <class T>
class BlockKernel {
 public:
  BlockKernel(const Options& options, const Shape& shape, const Memory& memory,
              const Scratch<T>& scratch)
      : options_(options),
        shape_(shape),
        memory_(memory),
        s_(scratch),
        activated_(options, shape),
        head_{options, shape.value_dim, scratch.ln_weight, scratch.ln_bias} {}

  /// Once a memory: constants, and the input 1 of biases, of so many rows.
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

  /// Keys and values of a part, and its rates.
  void LoadPairs(const Part& part) const {
    for (std::int64_t i = 0; i < part.count; ++i) {
      const std::int64_t t = part.first + i;
      LoadKey(options_, memory_.k, t, shape_.key_dim, 1, s_.x[0].Row(i));
      sn::LoadRow(memory_.v, t, 0, shape_.value_dim, s_.v.Row(i));
    }
    LoadRates(part);
  }

  void LoadRates(const Part& part) const {
    const Rates<T>& rates = s_.rates;
    for (std::int64_t i = 0; i < part.count; ++i) {
      const std::int64_t t = part.first + i;
      rates.step[i] = sn::LoadOne<T>(memory_.step, t);
      rates.momentum[i] = memory_.momentum ? sn::LoadOne<T>(memory_.momentum, t) : T(0);
      rates.decay[i] = memory_.weight_decay ? sn::LoadOne<T>(memory_.weight_decay, t) : T(0);
    }
    for (std::int64_t r = 0; options_.plain() && r <= part.count; ++r) {
      rates.row[r] = RowFactor(part.place + r - 1);
    }
  }

  /// max(1 / (place + 1) + bias, 0), or 1.
  T RowFactor(std::int64_t place) const {
    if (!options_.inverse_rows || place < 0) return 1;
    T bias = 0;
    if (memory_.row_bias) sn::LoadRow(memory_.row_bias, 0, place, 1, &bias);
    return std::max(1 / static_cast<T>(place + 1) + bias, T(0));
  }

  /// x, z and dz of `count` keys at weights W_bar. For whoever goes back: act''(z), and the
  /// gradients for x.
  void FindGradients(const Weights<T>& anchor, std::int64_t count,
                     const TokenRows<T>* bends = nullptr,
                     const TokenRows<T>* before = nullptr) const {
    Evaluate(anchor, count, bends);
    const std::int64_t last = shape_.depth - 1;
    for (std::int64_t i = 0; i < count; ++i) {
      s_.deviations[i] =
          head_.Loss(s_.x[0].Row(i), s_.v.Row(i), s_.z[last].Row(i), s_.dz[last].Row(i));
    }
    for (std::int64_t l = last; l > 0; --l) {
      PassDown(anchor[l], l, s_.dz[l], count, s_.dz[l - 1]);
      if (before != nullptr) linalg::CopyRows(s_.dz[l - 1], count, shape_.In(l), (*before)[l - 1]);
      for (std::int64_t i = 0; i < count; ++i) {
        activated_.PassBack(s_.z[l - 1].Row(i), s_.dz[l - 1].Row(i));
      }
    }
  }

  /// to = or += from W_l, of `count` rows.
  template <Into INTO = Into::kSet>
  void Apply(const Block<T>& weights, std::int64_t l, const Block<T>& from, std::int64_t count,
             const Block<T>& to) const {
    if (count > 1) {
      return ln::MultiplyStrips<INTO>(Left<T>::Of(from), weights, TileRows(count), shape_.Out(l),
                                      shape_.Rows(l), to);
    }
    if constexpr (INTO == Into::kSet) std::fill(to.data, to.data + shape_.Out(l), T(0));
    AddRows(static_cast<const T*>(from.data), static_cast<const T*>(weights.data), weights.stride,
            shape_.Out(l), shape_.Rows(l), to.data);
  }

  /// to += sum_i left_i right_i^T, rows of the left of `rows` numbers.
  void AddOuterProducts(std::int64_t l, std::int64_t count, const Block<T>& left, std::int64_t rows,
                        const Block<T>& right, const Block<T>& to) const {
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    if (count > 1) {
      return ln::MultiplyStrips<Into::kAdd>(Left<T>::Transposed(left), right, TileRows(rows),
                                            columns, count, to);
    }
    for (std::int64_t r = 0; r < rows; ++r) {
      sn::AddScaled(columns, left.data[r], static_cast<const T*>(right.data), to.Row(r));
    }
  }

  /// to = from W_l^T: by columns, so that the weights are read as they lie. `rows` of the weights,
  /// or those of the input.
  void PassDown(const Block<T>& weights, std::int64_t l, const Block<T>& from, std::int64_t count,
                const Block<T>& to, std::int64_t rows = 0) const {
    if (rows == 0) rows = shape_.In(l);
    if (count == 1) {
      return DotRows(static_cast<const T*>(weights.data), weights.stride,
                     static_cast<const T*>(from.data), shape_.Out(l), rows, to.data);
    }
    Turn(from, count, shape_.Out(l), s_.across);
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(weights), s_.across, TileRows(rows), count,
                                   shape_.Out(l), s_.back);
    Turn(s_.back, rows, count, to);
  }

  /// Are sums of products of what is loaded far from where numbers end? `bound` is that of A and B;
  /// then, if they are, that after the part.
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

  /// A and B after the part. W_bar stays.
  void Update(const Part& part) const {
    const Coefficients<T>& c = s_.coefficients;
    const std::int64_t n = part.count;
    const bool writes_a = !options_.plain() || part.ends;
    const bool writes_b = options_.has_second() && !(options_.plain() && part.ends);
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      const Block<T> a = s_.a[l], b = s_.b[l];
      const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
      for (std::int64_t r = 0; r < shape_.Rows(l); ++r) {
        if (writes_a) Mix(columns, c.a[n], part.has_second ? c.b[n] : T(0), b.Row(r), a.Row(r));
        if (writes_b) Fade(columns, part.has_second ? *c.kept : T(0), b.Row(r));
        if (part.has_second && !writes_b) std::fill(b.Row(r), b.Row(r) + columns, T(0));
      }
      if (writes_a) TakeOff(l, n, c.Row(n), a);
      if (writes_b) TakeOff(l, n, c.d, b);
    }
  }

  /// to -= sum_j factors_j x_j dz_j^T
  void TakeOff(std::int64_t l, std::int64_t count, const T* factors, const Block<T>& to) const {
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    for (std::int64_t j = 0; j < count; ++j) {
      ScaleRow(columns, factors[j], s_.dz[l].Row(j), s_.scaled.Row(j));
    }
    ln::MultiplyStrips<Into::kSubtract>(Left<T>::Transposed(s_.x[l]), s_.scaled,
                                        TileRows(shape_.Rows(l)), columns, count, to);
  }

  const Head<T>& head() const { return head_; }
  const Activated<T>& activated() const { return activated_; }

 private:
  /// z of every layer, then of all but the last act'(z), and what goes into the next.
  void Evaluate(const Weights<T>& weights, std::int64_t count, const TokenRows<T>* bends) const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      Apply(weights[l], l, s_.x[l], count, s_.z[l]);
      if (l + 1 == shape_.depth) break;
      for (std::int64_t i = 0; i < count; ++i) {
        T* const z = s_.z[l].Row(i);
        activated_.Apply(z, s_.x[l + 1].Row(i), z, bends != nullptr ? (*bends)[l].Row(i) : nullptr);
      }
    }
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

  const Options& options_;
  const Shape& shape_;
  const Memory& memory_;
  const Scratch<T>& s_;
  Activated<T> activated_;
  Head<T> head_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_BLOCK_INL_H_
