// One token: matrices by vectors, in the weights where they lie. Compiled once for every target.

#if defined(TTR_NETWORK_TOKEN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_TOKEN_INL_H_
#undef TTR_NETWORK_TOKEN_INL_H_
#else
#define TTR_NETWORK_TOKEN_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/adapted-inl.h"
#include "src/engines/network/block-inl.h"
#include "src/engines/network/exchange-inl.h"
#include "src/engines/network/rows-inl.h"
#include "src/engines/network/task.h"

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
  bool ReadsAsItWrites() const { return !options_.plain(); }

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
  void Write(const Part& part) const {
    const Rates<T>& rates = s_.rates;
    if (!options_.plain()) {
      for (std::int64_t l = 0; l < shape_.depth; ++l) CarryLayer(l, nullptr, nullptr);
      return;
    }
    const T step = rates.step[0];
    const T row = rates.row[1];
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      if (!options_.has_second()) {
        AddPair(l, -row * step, a_[l]);
        continue;
      }
      AddPair(l, step, b_[l]);
      if (!part.ends) continue;
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
      ForRows(l, weights, row != 0 ? b_[l] : weights, [&](std::int64_t count, T* a, T* b) HWY_ATTR {
        if (!finite) return;
        if (row == 0) {
          finite = AllFinite(count, static_cast<const T*>(a));
          return;
        }
        std::copy(a, a + count, s_.row);
        sn::AddScaled(count, -row, static_cast<const T*>(b), s_.row);
        finite = AllFinite(count, static_cast<const T*>(s_.row));
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

  /// S <- momentum S - step g, A <- decay A + S; z += u A, if they are given.
  void CarryLayer(std::int64_t l, const T* u, T* z) const {
    if (options_.adapts()) return AdaptLayer(l, u, z);
    const Rates<T>& rates = s_.rates;
    const T step = rates.step[0], decay = DecayFactor(options_, rates, 0);
    const T momentum = options_.momentum ? rates.momentum[0] : T(0);
    const std::int64_t count = shape_.Out(l), in = shape_.In(l);
    const LayerRows<T> a = a_[l], s = options_.momentum ? b_[l] : a;
    const bool forgets_s = options_.momentum && momentum == 0, forgets_a = decay == 0;
    if (forgets_s || forgets_a) {  // NaN, too
      ForRows(l, a, s, [&](std::int64_t numbers, T* of_a, T* of_s) HWY_ATTR {
        if (forgets_s) std::fill(of_s, of_s + numbers, T(0));
        if (forgets_a) std::fill(of_a, of_a + numbers, T(0));
      });
    }
    const T* const x = s_.x[l].Row(0);
    T* const dz = s_.dz[l].Row(0);
    if (step == 0) std::fill(dz, dz + count, T(0));
    const auto share = [&](T of) HWY_ATTR { return step == 0 ? T(0) : -step * of; };
    for (std::int64_t first = 0; first < in; first += sn::kRowsTogether) {
      const std::int64_t end = std::min(first + sn::kRowsTogether, in);
      for (std::int64_t r = first; r < end; ++r) {
        CarryRow(count, momentum, decay, share(x[r]), dz, s.Row(r), a.Row(r));
      }
      if (u != nullptr) {
        AddRows(u + first, static_cast<const T*>(a.Row(first)), a.stride, count, end - first, z);
      }
    }
    if (!shape_.bias) return;
    CarryRow(count, momentum, decay, share(1), dz, s.b, a.b);
    if (u != nullptr) AddRow(count, static_cast<const T*>(a.b), z);
  }

  /// The same of steps adapted a weight: V, G and A.
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

  HWY_INLINE void CarryRow(std::int64_t count, T momentum, T decay, T coefficient, const T* dz,
                           T* s, T* a) const {
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const auto m = hn::Set(d, momentum), keep = hn::Set(d, decay), c = hn::Set(d, coefficient);
    if (!options_.momentum) {
      const auto step = [=](auto, auto x, auto g)
                            HWY_ATTR { return hn::MulAdd(x, keep, hn::Mul(g, c)); };
      return sn::MapRows(count, a, step, static_cast<const T*>(a), dz);
    }
    std::int64_t i = 0;
    for (; i + lanes <= count; i += lanes) {
      const auto update = hn::MulAdd(hn::LoadU(d, dz + i), c, hn::Mul(m, hn::LoadU(d, s + i)));
      hn::StoreU(update, d, s + i);
      hn::StoreU(hn::MulAdd(hn::LoadU(d, a + i), keep, update), d, a + i);
    }
    for (; i < count; ++i) {
      s[i] = momentum * s[i] + coefficient * dz[i];
      a[i] = decay * a[i] + s[i];
    }
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
