// Norms of the rows of one head, compiled for every target.

#include "src/engines/rows/norm_kernel.h"

#include <algorithm>

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/rows/norm_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/rows/row_access-inl.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/unit_length-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// What a row is shifted and divided by.
struct Scale {
  double mean;
  double inverse;  // see InverseRoot()
};

template <class T>
Scale ScaleOf(const NormTask& task, const T* x) {
  const double count = static_cast<double>(task.dim);
  const bool layer = task.kind == NormKind::kLayer;
  const double mean = layer ? sn::WideSum(task.dim, x, [](double v) { return v; }) / count : 0;
  double square = sn::WideSum(task.dim, x, [=](double v) { return (v - mean) * (v - mean); });
  if (task.kind != NormKind::kL2) square /= count;
  return {mean, sn::InverseRoot(square, task.eps)};
}

template <class T>
HWY_INLINE void MultiplyBy(std::int64_t count, const T* factors, T* x) {
  const auto multiply = [](auto, auto u, auto v) HWY_ATTR { return hn::Mul(u, v); };
  sn::MapRows(count, x, multiply, static_cast<const T*>(x), factors);
}

/// n (.) weight + bias
template <class T>
void ApplyParameters(const NormTask& task, T* n) {
  if (task.weight != nullptr) MultiplyBy(task.dim, static_cast<const T*>(task.weight), n);
  if (task.bias != nullptr) sn::AddScaled(task.dim, T(1), static_cast<const T*>(task.bias), n);
}

template <class T>
void Forward(const NormTask& task) {
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_y = scratch_x + task.dim;
  T* const scratch_gate = scratch_y + task.dim;
  const auto gated = [](auto d, auto n, auto g) HWY_ATTR {
    const auto one = hn::Set(d, T(1));
    return hn::Mul(n, hn::Div(g, hn::Add(one, sn::Exp(d, hn::Neg(g)))));
  };
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    const T* const x = Read(task.x, t, task.dim, scratch_x);
    T* const y = Destination(task.y, t, scratch_y);
    const Scale scale = ScaleOf(task, x);
    sn::Standardise(task.dim, x, scale.mean, scale.inverse, y);
    ApplyParameters(task, y);
    if (task.gate) {
      const T* const gate = Read(task.gate, t, task.dim, scratch_gate);
      sn::MapRows(task.dim, y, gated, static_cast<const T*>(y), gate);
    }
    Finish(y, t, task.dim, task.y);
  }
}

/// m, the row before the gate, becomes the gradient of the gate; dy becomes that of m.
template <class T>
void GateGradient(std::int64_t dim, const T* gate, T* m, T* dy) {
  const auto own = [](auto d, auto g, auto row, auto gradient) HWY_ATTR {
    const auto s = sn::Sigmoid(d, g);
    const auto silu = hn::Mul(g, s);
    const auto slope = hn::Add(s, hn::NegMulAdd(silu, s, silu));  // s (1 + g (1 - s))
    return hn::Mul(hn::Mul(gradient, row), slope);
  };
  const auto passed = [](auto d, auto gradient, auto g)
                          HWY_ATTR { return hn::Mul(gradient, hn::Mul(g, sn::Sigmoid(d, g))); };
  sn::MapRows(dim, m, own, gate, static_cast<const T*>(m), static_cast<const T*>(dy));
  sn::MapRows(dim, dy, passed, static_cast<const T*>(dy), gate);
}

template <class T>
void Backward(const NormTask& task) {
  const std::int64_t dim = task.dim;
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_gate = scratch_x + dim;
  T* const n = scratch_gate + dim;
  T* const m = n + dim;
  T* const h = m + dim;  // the gradient on its way from y to x
  T* const dweight = static_cast<T*>(task.dweight);
  T* const dbias = static_cast<T*>(task.dbias);
  const auto add_product = [](auto, auto u, auto v, auto sum)
                               HWY_ATTR { return hn::MulAdd(u, v, sum); };
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    const T* const x = Read(task.x, t, dim, scratch_x);
    const Scale scale = ScaleOf(task, x);
    sn::Standardise(dim, x, scale.mean, scale.inverse, n);
    sn::LoadRow(task.y, t, 0, dim, h);
    if (task.gate) {
      std::copy(n, n + dim, m);
      ApplyParameters(task, m);
      GateGradient(dim, Read(task.gate, t, dim, scratch_gate), m, h);
      if (task.dgate) sn::StoreRow(static_cast<const T*>(m), t, 0, dim, task.dgate);
    }
    if (dbias != nullptr) sn::AddScaled(dim, T(1), static_cast<const T*>(h), dbias);
    if (dweight != nullptr) {
      sn::MapRows(dim, dweight, add_product, static_cast<const T*>(h), static_cast<const T*>(n),
                  static_cast<const T*>(dweight));
    }
    if (!task.dx) continue;
    if (task.weight != nullptr) MultiplyBy(dim, static_cast<const T*>(task.weight), h);
    const double count = task.kind == NormKind::kL2 ? 1 : static_cast<double>(dim);
    const double mean =
        task.kind == NormKind::kLayer
            ? sn::WideSum(dim, static_cast<const T*>(h), [](double v) { return v; }) / count
            : 0;
    sn::UnitGradient(dim, static_cast<const T*>(n), scale.inverse, count, static_cast<const T*>(h),
                     h, mean);
    sn::StoreRow(static_cast<const T*>(h), t, 0, dim, task.dx);
  }
}

void Norm(DType arithmetic, const NormTask& task) {
  arithmetic == DType::kFloat64 ? Forward<double>(task) : Forward<float>(task);
}
void NormGradient(DType arithmetic, const NormTask& task) {
  arithmetic == DType::kFloat64 ? Backward<double>(task) : Backward<float>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::rows {

HWY_EXPORT(Norm);
HWY_EXPORT(NormGradient);

void RunNorm(DType arithmetic, const NormTask& task) { TTR_DISPATCH(Norm)(arithmetic, task); }

void RunNormGradient(DType arithmetic, const NormTask& task) {
  TTR_DISPATCH(NormGradient)(arithmetic, task);
}

}  // namespace ttr::rows
#endif  // HWY_ONCE
