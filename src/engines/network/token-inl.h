// One token: matrices by vectors, in the weights where they lie. Compiled once for every target.

#if defined(TTR_NETWORK_TOKEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_TOKEN_INL_H_
#undef TTR_NETWORK_TOKEN_INL_H_
#else
#define TTR_NETWORK_TOKEN_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/network/adapted-inl.h"
#include "src/engines/network/block-inl.h"
#include "src/engines/network/exchange-inl.h"
#include "src/engines/network/rows-inl.h"
#include "src/engines/network/task.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// Where the parameters of a memory lie.
template <class T>
struct Places {
  Place<T> a, anchor, b, squares;
};

template <class T>
class TokenKernel {
 public:
  TokenKernel(const Options& options, const Shape& shape, const Scratch<T>& scratch,
              const BlockKernel<T>& blocks, const Places<T>& places)
      : options_(options),
        shape_(shape),
        s_(scratch),
        activated_(blocks.activated()),
        head_(blocks.head()),
        a_(places.a),
        anchor_(places.anchor),
        b_(places.b),
        squares_(places.squares) {}

  /// x, z and dz of the key in row 0.
  void FindGradient(bool has_anchor) const {
    const Place<T>& weights = has_anchor ? anchor_ : a_;
    const std::int64_t last = shape_.depth - 1;
    for (std::int64_t l = 0; l <= last; ++l) {
      T* const z = s_.z[l].Row(0);
      Apply(weights[l], l, s_.x[l].Row(0), z);
      if (l < last) {
        activated_.Apply(z, s_.x[l + 1].Row(0), z);
      }
    }
    head_.Loss(s_.x[0].Row(0), s_.v.Row(0), s_.z[last].Row(0), s_.dz[last].Row(0));
    for (std::int64_t l = last; l > 0; --l) {
      const LayerRows<T> w = weights[l];
      T* const dz = s_.dz[l - 1].Row(0);
      DotRows(static_cast<const T*>(w.w), w.stride, static_cast<const T*>(s_.dz[l].Row(0)),
              shape_.Out(l), shape_.In(l), dz);
      activated_.PassBack(s_.z[l - 1].Row(0), dz);
    }
  }

  /// What the query in row 0 reads, in zq of the last layer: W_bar, or A - row B, or A where row is
  /// 0.
  void Read(bool of_anchor, T row) const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      const T* const u = s_.u[l].Row(0);
      T* const z = s_.zq[l].Row(0);
      Apply(of_anchor ? anchor_[l] : a_[l], l, u, z);
      if (row != 0) {
        Apply(b_[l], l, u, s_.row);
        sn::AddScaled(shape_.Out(l), -row, static_cast<const T*>(s_.row), z);
      }
      Activate(l);
    }
  }

  /// Is Write() of such steps one pass with what a query reads?
  bool ReadsAsItWrites() const { return !options_.plain() || !options_.has_second(); }

  /// Write(), then Read(0): eight rows of weights at a time, while they are in the first-level
  /// cache.
  void WriteAndRead() const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      T* const z = s_.zq[l].Row(0);
      std::fill(z, z + shape_.Out(l), T(0));
      CarryLayer(l, s_.u[l].Row(0), z);
      Activate(l);
    }
  }

  /// A and B with this token. W_bar stays.
  void Write(const Chunk& chunk) const {
    if (ReadsAsItWrites()) {
      for (std::int64_t l = 0; l < shape_.depth; ++l) CarryLayer(l, nullptr, nullptr);
      return;
    }
    const T step = s_.rates.step[0], row = s_.rates.row[1];
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      AddPair(l, step, b_[l]);
      if (!chunk.ends) continue;
      ForRows(l, a_[l], b_[l], [&](std::int64_t count, T* a, T* b) HWY_ATTR {
        if (row != 0) sn::AddScaled(count, -row, static_cast<const T*>(b), a);
        std::fill(b, b + count, T(0));
      });
    }
  }

  /// Are the weights as they would be read all finite?
  bool Finite(bool of_anchor, T row) const {
    bool finite = true;
    for (std::int64_t l = 0; l < shape_.depth && finite; ++l) {
      const LayerRows<T> weights = of_anchor ? anchor_[l] : a_[l];
      const std::int64_t count = shape_.Out(l);
      if (row == 0) {
        finite = AllFinite<T>(weights.w, weights.stride, count, shape_.In(l)) &&
                 (!shape_.bias || AllFinite<T>(count, weights.b));
        continue;
      }
      ForRows(l, weights, b_[l], [&](std::int64_t numbers, T* a, T* b) HWY_ATTR {
        if (!finite) return;
        std::copy(a, a + numbers, s_.row);
        sn::AddScaled(numbers, -row, static_cast<const T*>(b), s_.row);
        finite = AllFinite<T>(numbers, s_.row);
      });
    }
    return finite;
  }

  /// visit(numbers, a row of one, the row of the other) for every row and the bias of layer l.
  template <class Visit>
  void ForRows(std::int64_t l, const LayerRows<T>& one, const LayerRows<T>& other,
               const Visit& visit) const {
    const std::int64_t count = shape_.Out(l);
    for (std::int64_t r = 0; r < shape_.In(l); ++r) visit(count, one.Row(r), other.Row(r));
    if (shape_.bias) visit(count, one.b, other.b);
  }

 private:
  /// What goes into the next layer of the query.
  void Activate(std::int64_t l) const {
    T* const z = s_.zq[l].Row(0);
    if (l + 1 == shape_.depth) return;
    activated_.Apply(z, s_.u[l + 1].Row(0), z);
  }

  /// z = W^T x + b
  void Apply(const LayerRows<T>& weights, std::int64_t l, const T* x, T* z) const {
    const std::int64_t count = shape_.Out(l);
    if (weights.b != nullptr) {
      std::copy(weights.b, weights.b + count, z);
    } else {
      std::fill(z, z + count, T(0));
    }
    AddRows(x, static_cast<const T*>(weights.w), weights.stride, count, shape_.In(l), z);
  }

  /// to += factor x dz^T; nothing, not even NaN, where the factor is 0.
  void AddPair(std::int64_t l, T factor, const LayerRows<T>& to) const {
    if (factor == 0) return;
    const std::int64_t count = shape_.Out(l);
    const T* const x = s_.x[l].Row(0);
    const T* const dz = s_.dz[l].Row(0);
    for (std::int64_t r = 0; r < shape_.In(l); ++r) {
      sn::AddScaled(count, factor * x[r], dz, to.Row(r));
    }
    if (shape_.bias) sn::AddScaled(count, factor, dz, to.b);
  }

  /// S <- momentum S - step g, A <- decay A + S; z += u A, if they are given. A plain step has its
  /// row factor.
  void CarryLayer(std::int64_t l, const T* u, T* z) const {
    if (options_.adapts()) return AdaptLayer(l, u, z);
    const Rates<T>& rates = s_.rates;
    const T step = options_.plain() ? rates.row[1] * rates.step[0] : rates.step[0];
    const Carried by{.count = shape_.Out(l),
                     .step = step,
                     .momentum = options_.momentum ? rates.momentum[0] : T(0),
                     .decay = DecayFactor(options_, rates, 0),
                     .dz = s_.dz[l].Row(0)};
    const LayerRows<T> a = a_[l], s = options_.momentum ? b_[l] : a;
    Forget(l, by, s, a);
    const auto carry = [&](auto momentum, auto reads) HWY_ATTR {
      CarryRows<momentum.value, reads.value>(by, s_.x[l].Row(0), s, a, shape_.In(l), u, z);
      if (!shape_.bias) return;
      const T one = 1;
      Carry<1, momentum.value, reads.value>(by, {&one, s.b, 0, a.b, 0, &one}, z);
    };
    const auto split = [&](auto momentum) HWY_ATTR {
      u != nullptr ? carry(momentum, std::true_type()) : carry(momentum, std::false_type());
    };
    options_.momentum ? split(std::true_type()) : split(std::false_type());
  }

  /// What one token makes of every row.
  struct Carried {
    std::int64_t count;
    T step, momentum, decay;
    T* dz;
  };
  /// Some rows, their inputs, and what a query has there.
  struct CarriedRows {
    const T* x;
    T* s;
    std::int64_t s_stride;
    T* a;
    std::int64_t a_stride;
    const T* u;
  };

  /// A factor of zero takes nothing, not even NaN.
  void Forget(std::int64_t l, const Carried& by, const LayerRows<T>& s,
              const LayerRows<T>& a) const {
    if (by.step == 0) std::fill(by.dz, by.dz + by.count, T(0));
    const bool forgets_s = options_.momentum && by.momentum == 0, forgets_a = by.decay == 0;
    if (!forgets_s && !forgets_a) return;
    ForRows(l, a, s, [&](std::int64_t numbers, T* of_a, T* of_s) HWY_ATTR {
      if (forgets_s) std::fill(of_s, of_s + numbers, T(0));
      if (forgets_a) std::fill(of_a, of_a + numbers, T(0));
    });
  }

  template <bool MOMENTUM, bool READS>
  void CarryRows(const Carried& by, const T* x, const LayerRows<T>& s, const LayerRows<T>& a,
                 std::int64_t rows, const T* u, T* z) const {
    const auto from = [&](std::int64_t r) {
      return CarriedRows{x + r, s.Row(r), s.stride, a.Row(r), a.stride, READS ? u + r : nullptr};
    };
    constexpr int kRows = static_cast<int>(sn::kRowsTogether);
    std::int64_t r = 0;
    for (; r + kRows <= rows; r += kRows) Carry<kRows, MOMENTUM, READS>(by, from(r), z);
    for (; r < rows; ++r) Carry<1, MOMENTUM, READS>(by, from(r), z);
  }

  /// So many rows, each number of which is loaded once.
  template <int ROWS, bool MOMENTUM, bool READS>
  HWY_INLINE void Carry(const Carried& by, const CarriedRows& rows, T* z) const {
    T shares[ROWS];
    for (int j = 0; j < ROWS; ++j) shares[j] = by.step == 0 ? T(0) : -by.step * rows.x[j];
    ForRow<T>(by.count, [&](auto d, std::int64_t i, const auto& load, const auto& store) HWY_ATTR {
      const auto dz = load(by.dz + i);
      auto sum = hn::Zero(d);
      if constexpr (READS) sum = load(z + i);
      TTR_UNROLL
      for (int j = 0; j < ROWS; ++j) {
        T* const a = rows.a + j * rows.a_stride + i;
        auto update = hn::Mul(dz, hn::Set(d, shares[j]));
        if constexpr (MOMENTUM) {
          T* const s = rows.s + j * rows.s_stride + i;
          update = hn::MulAdd(hn::Set(d, by.momentum), load(s), update);
          store(update, s);
        }
        const auto w = hn::MulAdd(hn::Set(d, by.decay), load(a), update);
        store(w, a);
        if constexpr (READS) sum = hn::MulAdd(hn::Set(d, rows.u[j]), w, sum);
      }
      if constexpr (READS) store(sum, z + i);
    });
  }

  /// Writes one token into V, G and A of layer l, where the step is adapted a weight. Where there
  /// is a query, adds what it reads of the new A to z.
  void AdaptLayer(std::int64_t l, const T* u, T* z) const {
    const Rates<T>& rates = s_.rates;
    const AdaptedStep<T> step(options_, rates);
    const std::int64_t count = shape_.Out(l), in = shape_.In(l);
    const LayerRows<T> a = a_[l], v = squares_[l], mean = options_.momentum ? b_[l] : v;
    const T* const x = s_.x[l].Row(0);
    const T* const dz = s_.dz[l].Row(0);
    for (std::int64_t first = 0; first < in; first += sn::kRowsTogether) {
      const std::int64_t end = std::min(first + sn::kRowsTogether, in);
      for (std::int64_t r = first; r < end; ++r) {
        step.WriteRow(count, x[r], dz, v.Row(r), mean.Row(r), a.Row(r));
      }
      if (u != nullptr) {
        AddRows(u + first, static_cast<const T*>(a.Row(first)), a.stride, count, end - first, z);
      }
    }
    if (!shape_.bias) return;
    step.WriteRow(count, T(1), dz, v.b, mean.b, a.b);
    if (u != nullptr) AddRow(count, static_cast<const T*>(a.b), z);
  }

  const Options& options_;
  const Shape& shape_;
  const Scratch<T>& s_;
  const Activated<T>& activated_;
  const Head<T>& head_;
  Place<T> a_, anchor_, b_, squares_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_TOKEN_INL_H_
