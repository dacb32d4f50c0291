// Norms of the rows of one head, compiled for every target.

#include "src/engines/rows/norm_kernel.h"

#include <algorithm>
#include <type_traits>

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/rows/norm_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/rows/gate_rows-inl.h"
#include "src/engines/rows/row_access-inl.h"
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

template <GateKind KIND, class T>
void Forward(const NormTask& task) {
  T* const scratch_x = static_cast<T*>(task.scratch);
  T* const scratch_y = scratch_x + task.dim;
  T* const scratch_gate = scratch_y + task.dim;
  for (std::int64_t t = 0; t < task.tokens; ++t) {
    const T* x = Read(task.x, t, task.dim, scratch_x);
    T* const y = Destination(task.y, t, scratch_y);
    const T* const gate = task.gate ? Read(task.gate, t, task.dim, scratch_gate) : nullptr;
    if (gate != nullptr && task.gate_first) {
      ApplyGate<KIND>(task.dim, x, gate, y);
      x = y;
    }
    const Scale scale = ScaleOf(task, x);
    sn::Standardise(task.dim, x, scale.mean, scale.inverse, y);
    ApplyParameters(task, y);
    if (gate != nullptr && !task.gate_first) {
      ApplyGate<KIND>(task.dim, static_cast<const T*>(y), gate, y);
    }
    Finish(y, t, task.dim, task.y);
  }
}

template <GateKind KIND, class T>
class BackwardRows {
 public:
  explicit BackwardRows(const NormTask& task)
      : task_(task),
        scratch_x_(static_cast<T*>(task.scratch)),
        scratch_gate_(scratch_x_ + task.dim),
        n_(scratch_gate_ + task.dim),
        m_(n_ + task.dim),
        h_(m_ + task.dim) {}

  void Run(std::int64_t t) {
    const std::int64_t dim = task_.dim;
    const T* const given = Read(task_.x, t, dim, scratch_x_);
    const T* const gate = task_.gate ? Read(task_.gate, t, dim, scratch_gate_) : nullptr;
    const bool first = gate != nullptr && task_.gate_first;
    const T* x = given;
    if (first) {
      ApplyGate<KIND>(dim, given, gate, m_);
      x = m_;
    }
    const Scale scale = ScaleOf(task_, x);
    sn::Standardise(dim, x, scale.mean, scale.inverse, n_);
    sn::LoadRow(task_.y, t, 0, dim, h_);
    if (gate != nullptr && !first) {
      std::copy(n_, n_ + dim, m_);
      ApplyParameters(task_, m_);
      ThroughGate(t, gate);
    }
    AddToParameters();
    if (!task_.dx && !(first && task_.dgate)) return;
    ThroughNorm(scale);
    if (first) {
      std::copy(given, given + dim, m_);
      ThroughGate(t, gate);
    }
    if (task_.dx) sn::StoreRow(static_cast<const T*>(h_), t, 0, dim, task_.dx);
  }

 private:
  void ThroughGate(std::int64_t t, const T* gate) {
    GateGradient<KIND>(task_.dim, gate, m_, h_);
    if (task_.dgate) sn::StoreRow(static_cast<const T*>(m_), t, 0, task_.dim, task_.dgate);
  }

  void AddToParameters() {
    T* const dweight = static_cast<T*>(task_.dweight);
    T* const dbias = static_cast<T*>(task_.dbias);
    if (dbias != nullptr) sn::AddScaled(task_.dim, T(1), static_cast<const T*>(h_), dbias);
    if (dweight == nullptr) return;
    const auto add_product = [](auto, auto u, auto v, auto sum)
                                 HWY_ATTR { return hn::MulAdd(u, v, sum); };
    sn::MapRows(task_.dim, dweight, add_product, static_cast<const T*>(h_),
                static_cast<const T*>(n_), static_cast<const T*>(dweight));
  }

  void ThroughNorm(const Scale& scale) {
    const std::int64_t dim = task_.dim;
    if (task_.weight != nullptr) MultiplyBy(dim, static_cast<const T*>(task_.weight), h_);
    const double count = task_.kind == NormKind::kL2 ? 1 : static_cast<double>(dim);
    const double mean =
        task_.kind == NormKind::kLayer
            ? sn::WideSum(dim, static_cast<const T*>(h_), [](double v) { return v; }) / count
            : 0;
    sn::UnitGradient(dim, static_cast<const T*>(n_), scale.inverse, count,
                     static_cast<const T*>(h_), h_, mean);
  }

  const NormTask& task_;
  T *scratch_x_, *scratch_gate_, *n_;
  T* m_;  // the row before the gate, then the gradient of the gate
  T* h_;  // the gradient on its way from y to x
};

template <GateKind KIND, class T>
void Backward(const NormTask& task) {
  BackwardRows<KIND, T> rows(task);
  for (std::int64_t t = 0; t < task.tokens; ++t) rows.Run(t);
}

/// run(the kind of gate as a constant).
template <class Run>
HWY_INLINE void WithGate(GateKind kind, const Run& run) {
  kind == GateKind::kSilu ? run(std::integral_constant<GateKind, GateKind::kSilu>())
                          : run(std::integral_constant<GateKind, GateKind::kSigmoid>());
}

void Norm(DType arithmetic, const NormTask& task) {
  WithGate(task.gate_kind, [&](auto kind) HWY_ATTR {
    arithmetic == DType::kFloat64 ? Forward<kind(), double>(task) : Forward<kind(), float>(task);
  });
}
void NormGradient(DType arithmetic, const NormTask& task) {
  WithGate(task.gate_kind, [&](auto kind) HWY_ATTR {
    arithmetic == DType::kFloat64 ? Backward<kind(), double>(task) : Backward<kind(), float>(task);
  });
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
