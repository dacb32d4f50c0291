// Back through one step with momentum. Compiled once for every target.

#if defined(TTR_NETWORK_CARRIED_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_CARRIED_GRADIENT_INL_H_
#undef TTR_NETWORK_CARRIED_GRADIENT_INL_H_
#else
#define TTR_NETWORK_CARRIED_GRADIENT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// A' = a A + b B - c x dz^T and B' = kept B - d x dz^T of one token, back, in one pass over the
/// rows of the weights: dA and dB are read and written once, A and B read once.
template <class T>
class CarriedGradient {
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

 public:
  struct Factors {
    T a, b, c, d, kept;
  };
  /// Matrices of one layer, or null: A and B, and gradients by A' and B' that become those by A and
  /// B.
  struct Layer {
    Block<T> a, b, da, db;
  };

  CarriedGradient(const Factors& factors, const T* dz, T* ddz, std::int64_t columns)
      : f_(factors), dz_(dz), ddz_(ddz), columns_(columns) {}

  /// Row r of the weights, whose input is x: subtracts its share from ddz, and returns what is to
  /// be subtracted from dx_r.
  HWY_INLINE T PassRow(const Layer& weights, std::int64_t r, T x) {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const Row row{weights.a.Row(r), weights.b.Row(r), weights.da.Row(r), weights.db.Row(r)};
    V down = hn::Zero(d);
    std::int64_t i = 0;
    for (; i + lanes <= columns_; i += lanes) {
      const auto load = [=](const T* from) HWY_ATTR { return hn::LoadU(d, from); };
      const auto store = [=](V v, T* to) HWY_ATTR { hn::StoreU(v, d, to); };
      PassVector(row, i, x, load, store, down);
    }
    if (const std::int64_t rest = columns_ - i; rest > 0) {
      const auto load = [=](const T* from) HWY_ATTR { return sn::LoadSome(d, from, rest); };
      const auto store = [=](V v, T* to) HWY_ATTR { sn::StoreSome(v, d, to, rest); };
      PassVector(row, i, x, load, store, down);
    }
    return hn::GetLane(hn::SumOfLanes(d, down));
  }

  /// Adds gradients for the factors.
  HWY_INLINE void AddTo(T& a, T& b, T& c, T& d, T& kept) const {
    const auto sum = [](V v) HWY_ATTR { return hn::GetLane(hn::SumOfLanes(D(), v)); };
    a += sum(of_a_);
    b += sum(of_b_);
    c -= sum(of_c_);
    d -= sum(of_d_);
    kept += sum(of_kept_);
  }

 private:
  struct Row {
    const T *a, *b;
    T *da, *db;
  };

  template <class Load, class Store>
  HWY_INLINE void PassVector(const Row& row, std::int64_t i, T x, const Load& load,
                             const Store& store, V& down) {
    const D d;
    const auto a = load(row.a + i), b = load(row.b + i), dz = load(dz_ + i);
    const auto da = load(row.da + i), db = load(row.db + i);
    const auto input = hn::Set(d, x), pair = hn::Mul(dz, input);
    const auto taken = hn::MulAdd(da, hn::Set(d, f_.c), hn::Mul(db, hn::Set(d, f_.d)));
    down = hn::MulAdd(taken, dz, down);
    store(hn::NegMulAdd(taken, input, load(ddz_ + i)), ddz_ + i);
    of_c_ = hn::MulAdd(da, pair, of_c_);
    of_d_ = hn::MulAdd(db, pair, of_d_);
    of_a_ = hn::MulAdd(da, a, of_a_);
    of_b_ = hn::MulAdd(da, b, of_b_);
    of_kept_ = hn::MulAdd(db, b, of_kept_);
    store(hn::MulAdd(db, hn::Set(d, f_.kept), hn::Mul(da, hn::Set(d, f_.b))), row.db + i);
    store(hn::Mul(da, hn::Set(d, f_.a)), row.da + i);
  }

  Factors f_;
  const T* dz_;
  T* ddz_;
  std::int64_t columns_;
  V of_a_ = hn::Zero(D()), of_b_ = hn::Zero(D()), of_c_ = hn::Zero(D()), of_d_ = hn::Zero(D()),
    of_kept_ = hn::Zero(D());
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_CARRIED_GRADIENT_INL_H_
