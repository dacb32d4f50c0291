// Gates of the rows of one head, compiled for every target.

#include "src/engines/rows/gates_kernel.h"

#include <algorithm>
#include <cmath>

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/rows/gates_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/rows/gate_rows-inl.h"
#include "src/engines/rows/row_access-inl.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A parameter as a row: where it lies, or, of one number or none, `otherwise`, in `scratch`.
template <class T>
const T* RowOf(const HeadParameter& parameter, std::int64_t dim, T otherwise, T* scratch) {
  const T* const given = static_cast<const T*>(parameter.data);
  if (given != nullptr && !parameter.one) return given;
  std::fill(scratch, scratch + dim, given == nullptr ? otherwise : *given);
  return scratch;
}

/// The gradient of a parameter, added up as a row: in place, or in `scratch`, whose sum Finish()
/// adds to the one number. Null where it is not asked for.
template <class T>
class RowGradient {
 public:
  RowGradient(const HeadParameter& parameter, std::int64_t dim, T* scratch)
      : gradient_(static_cast<T*>(parameter.gradient)),
        row_(parameter.one && gradient_ != nullptr ? scratch : gradient_),
        dim_(dim) {
    if (row_ != gradient_) std::fill(row_, row_ + dim, T(0));
  }
  T* row() const { return row_; }
  void Finish() const {
    if (row_ == gradient_) return;
    *gradient_ +=
        static_cast<T>(sn::WideSum(dim_, static_cast<const T*>(row_), [](double v) { return v; }));
  }

 private:
  T *gradient_, *row_;
  std::int64_t dim_;
};

template <class T>
HWY_INLINE void AddProduct(std::int64_t count, const T* a, const T* b, T* to) {
  const auto add = [](auto, auto u, auto v, auto sum) HWY_ATTR { return hn::MulAdd(u, v, sum); };
  sn::MapRows(count, to, add, a, b, static_cast<const T*>(to));
}

/// What stands beside x in every row.
template <class T>
struct SoftplusRows {
  SoftplusRows(const SoftplusTask& task, T* scratch)
      : low(static_cast<T>(task.low)),
        high(static_cast<T>(task.high)),
        bias(RowOf(task.bias, task.dim, T(0), scratch)),
        rate(RateOf(task, scratch + task.dim)) {}

  static const T* RateOf(const SoftplusTask& task, T* scratch) {
    const T* const a = static_cast<const T*>(task.a.data);
    if (a == nullptr) {
      std::fill(scratch, scratch + task.dim, T(1));
    } else if (task.a.one) {
      std::fill(scratch, scratch + task.dim, -std::exp(*a));
    } else {
      const auto rate = [](auto d, auto v) HWY_ATTR { return hn::Neg(sn::Exp(d, v)); };
      sn::MapRows(task.dim, scratch, rate, a);
    }
    return scratch;
  }

  /// NaN stays NaN.
  template <class D>
  HWY_INLINE hn::Vec<D> Clamp(D d, hn::Vec<D> v) const {
    const auto least = hn::Set(d, low), most = hn::Set(d, high);
    return hn::IfThenElse(hn::Lt(v, least), least, hn::IfThenElse(hn::Gt(v, most), most, v));
  }
  /// `slope`, or 0 where a limit holds `v`.
  template <class D>
  HWY_INLINE hn::Vec<D> Within(D d, hn::Vec<D> v, hn::Vec<D> slope) const {
    const auto outside = hn::Or(hn::Lt(v, hn::Set(d, low)), hn::Gt(v, hn::Set(d, high)));
    return hn::IfThenZeroElse(outside, slope);
  }

  T low, high;
  const T *bias, *rate;
};

template <class T>
void SoftplusForward(const SoftplusTask& task) {
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_y = scratch_x + task.dim;
  const SoftplusRows<T> beside(task, scratch_y + task.dim);
  const auto value = [&](auto d, auto x, auto bias, auto rate) HWY_ATTR {
    return hn::Mul(rate, beside.Clamp(d, sn::Softplus(d, hn::Add(x, bias)).value));
  };
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    const T* const x = Read(task.x, t, task.dim, scratch_x);
    T* const y = Destination(task.y, t, scratch_y);
    sn::MapRows(task.dim, y, value, x, beside.bias, beside.rate);
    Finish(static_cast<const T*>(y), t, task.dim, task.y);
  }
}

template <class T>
void SoftplusBackward(const SoftplusTask& task) {
  const std::int64_t dim = task.dim;
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const h = scratch_x + dim;
  const SoftplusRows<T> beside(task, h + dim);
  const RowGradient<T> da(task.a, dim, h + 3 * dim), dbias(task.bias, dim, h + 4 * dim);
  // The gradient of a is y, its own derivative.
  const auto of_rate = [&](auto d, auto x, auto bias, auto rate, auto dy, auto sum) HWY_ATTR {
    const auto y = hn::Mul(rate, beside.Clamp(d, sn::Softplus(d, hn::Add(x, bias)).value));
    return hn::MulAdd(dy, y, sum);
  };
  const auto of_x = [&](auto d, auto x, auto bias, auto rate, auto dy) HWY_ATTR {
    const auto at = sn::Softplus(d, hn::Add(x, bias));
    return hn::Mul(hn::Mul(dy, rate), beside.Within(d, at.value, at.slope));
  };
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    const T* const x = Read(task.x, t, dim, scratch_x);
    sn::LoadRow(task.y, t, 0, dim, h);
    if (da.row() != nullptr) {
      sn::MapRows(dim, da.row(), of_rate, x, beside.bias, beside.rate, static_cast<const T*>(h),
                  static_cast<const T*>(da.row()));
    }
    if (!task.dx && dbias.row() == nullptr) continue;
    sn::MapRows(dim, h, of_x, x, beside.bias, beside.rate, static_cast<const T*>(h));
    if (dbias.row() != nullptr) {
      sn::AddScaled(dim, T(1), static_cast<const T*>(h), dbias.row());
    }
    if (task.dx) sn::StoreRow(static_cast<const T*>(h), t, 0, dim, task.dx);
  }
  da.Finish();
  dbias.Finish();
}

/// y + d (.) x, in `to`.
template <class T>
void AddSkip(std::int64_t dim, const T* y, const T* d, const T* x, T* to) {
  const auto add = [](auto, auto u, auto v, auto w) HWY_ATTR { return hn::MulAdd(u, v, w); };
  sn::MapRows(dim, to, add, d, x, y);
}

template <class T>
void SkipForward(const SkipTask& task) {
  const std::int64_t dim = task.dim;
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_z = scratch_x + dim;
  T* const scratch_out = scratch_z + dim;
  T* const scratch_y = scratch_out + dim;
  const T* const d = RowOf(task.d, dim, T(0), scratch_y + dim);
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    const T* m = Read(task.y, t, dim, scratch_y);
    T* const out = Destination(task.out, t, scratch_out);
    if (task.x) {
      AddSkip(dim, m, d, Read(task.x, t, dim, scratch_x), out);
      m = out;
    }
    if (task.z) {
      ApplyGate<GateKind::kSilu>(dim, m, Read(task.z, t, dim, scratch_z), out);
    } else if (m != out) {
      std::copy(m, m + dim, out);
    }
    Finish(static_cast<const T*>(out), t, dim, task.out);
  }
}

template <class T>
void SkipBackward(const SkipTask& task) {
  const std::int64_t dim = task.dim;
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_z = scratch_x + dim;
  T* const m = scratch_z + dim;  // the row before the gate, then the gradient of the gate
  T* const h = m + dim;          // the gradient of that row
  const T* const d = RowOf(task.d, dim, T(0), h + dim);
  const RowGradient<T> dd(task.d, dim, h + 2 * dim);
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    const T* const x = task.x ? Read(task.x, t, dim, scratch_x) : nullptr;
    sn::LoadRow(task.out, t, 0, dim, h);
    if (task.z) {
      sn::LoadRow(task.y, t, 0, dim, m);
      if (x != nullptr) AddSkip(dim, static_cast<const T*>(m), d, x, m);
      GateGradient<GateKind::kSilu>(dim, Read(task.z, t, dim, scratch_z), m, h);
      if (task.dz) sn::StoreRow(static_cast<const T*>(m), t, 0, dim, task.dz);
    }
    if (task.dy) sn::StoreRow(static_cast<const T*>(h), t, 0, dim, task.dy);
    if (dd.row() != nullptr) AddProduct(dim, static_cast<const T*>(h), x, dd.row());
    if (!task.dx) continue;
    const auto multiply = [](auto, auto u, auto v) HWY_ATTR { return hn::Mul(u, v); };
    sn::MapRows(dim, h, multiply, static_cast<const T*>(h), d);
    sn::StoreRow(static_cast<const T*>(h), t, 0, dim, task.dx);
  }
  dd.Finish();
}

void Softplus(DType arithmetic, const SoftplusTask& task) {
  arithmetic == DType::kFloat64 ? SoftplusForward<double>(task) : SoftplusForward<float>(task);
}
void SoftplusGradient(DType arithmetic, const SoftplusTask& task) {
  arithmetic == DType::kFloat64 ? SoftplusBackward<double>(task) : SoftplusBackward<float>(task);
}
void Skip(DType arithmetic, const SkipTask& task) {
  arithmetic == DType::kFloat64 ? SkipForward<double>(task) : SkipForward<float>(task);
}
void SkipGradient(DType arithmetic, const SkipTask& task) {
  arithmetic == DType::kFloat64 ? SkipBackward<double>(task) : SkipBackward<float>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::rows {

HWY_EXPORT(Softplus);
HWY_EXPORT(SoftplusGradient);
HWY_EXPORT(Skip);
HWY_EXPORT(SkipGradient);

void RunSoftplus(DType arithmetic, const SoftplusTask& task) {
  TTR_DISPATCH(Softplus)(arithmetic, task);
}
void RunSoftplusGradient(DType arithmetic, const SoftplusTask& task) {
  TTR_DISPATCH(SoftplusGradient)(arithmetic, task);
}
void RunSkip(DType arithmetic, const SkipTask& task) { TTR_DISPATCH(Skip)(arithmetic, task); }
void RunSkipGradient(DType arithmetic, const SkipTask& task) {
  TTR_DISPATCH(SkipGradient)(arithmetic, task);
}

}  // namespace ttr::rows
#endif  // HWY_ONCE
