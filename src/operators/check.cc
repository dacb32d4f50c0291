#include "src/operators/check.h"

#include "src/core/view_checks.h"
#include "ttr/error.h"

namespace ttr::operators {
namespace {

constexpr std::string_view kFloating = "float32, float64 or bfloat16";

std::string Describe(const TensorView& view) {
  if (!view.defined()) return "absent";
  return std::string(Name(view.dtype())) + " " + view.shape().ToString();
}

std::string Required(std::string_view axes, const Shape& shape) {
  return std::string(kFloating) + " " + std::string(axes) + " = " + shape.ToString();
}

void CheckMemory(std::string_view op, const Named& argument) {
  ttr::CheckRows(op, argument.name, argument.view);
  CheckAligned(op, argument.name, argument.view);
}

}  // namespace

void CheckTensor(std::string_view op, const Named& argument, std::string_view axes,
                 const Shape& shape) {
  const TensorView& view = argument.view;
  if (!view.defined() || !HasKernels(view.dtype()) || !(view.shape() == shape)) {
    throw Error(op, argument.name, Required(axes, shape), Describe(view));
  }
  CheckMemory(op, argument);
}

void CheckParameter(std::string_view op, const Named& argument, std::string_view axes,
                    const Shape& shape) {
  const TensorView& view = argument.view;
  bool fits = view.defined() && HasKernels(view.dtype()) && view.rank() == shape.rank() &&
              (view.size(0) == 1 || view.size(0) == shape[0]);
  for (int axis = 1; fits && axis < shape.rank(); ++axis) fits = view.size(axis) == shape[axis];
  if (!fits) throw Error(op, argument.name, Required(axes, shape), Describe(view));
  CheckMemory(op, argument);
}

void CheckRows(std::string_view op, const Named& argument, std::string_view axes) {
  const TensorView& view = argument.view;
  const bool fits = view.defined() && HasKernels(view.dtype()) && view.rank() == 4 &&
                    view.size(2) > 0 && view.size(3) > 0;
  if (!fits) {
    throw Error(op, argument.name, std::string(kFloating) + " " + std::string(axes),
                Describe(view));
  }
  CheckMemory(op, argument);
}

void CheckAbsent(std::string_view op, const Named& argument, std::string_view why) {
  if (argument.view.defined()) {
    throw Error(op, argument.name, "absent, for " + std::string(why), Describe(argument.view));
  }
}

void CheckApart(std::string_view op, const Named& written, std::initializer_list<Named> others) {
  const Extent extent(op, written.name, written.view);
  if (!IsDistinct(written.view)) {
    throw Error(op, written.name, "memory in which every element has a place of its own",
                "overlapping itself");
  }
  for (const Named& other : others) {
    if (extent.Meets(Extent(op, other.name, other.view))) {
      throw Error(op, written.name, "memory of its own", "overlapping " + std::string(other.name));
    }
  }
}

bool Same(const TensorView& a, const TensorView& b) {
  bool same = a.data() == b.data() && a.dtype() == b.dtype() && a.shape() == b.shape();
  for (int axis = 0; same && axis < a.rank(); ++axis) same = a.stride(axis) == b.stride(axis);
  return same;
}

void CheckGradients(std::string_view op, std::initializer_list<Gradient> gradients,
                    std::initializer_list<Named> read) {
  for (const Gradient& one : gradients) {
    if (!one.gradient.view.defined()) continue;
    if (!one.input.defined()) CheckAbsent(op, one.gradient, "its input is absent");
    CheckTensor(op, one.gradient, "as its input", one.input.shape());
    CheckApart(op, one.gradient, read);
    for (const Gradient& other : gradients) {
      if (&other != &one) CheckApart(op, one.gradient, {other.gradient});
    }
  }
}

std::span<const std::int64_t> CheckSequences(std::string_view op, const TensorView& cu_seqlens,
                                             std::int64_t batch, std::int64_t tokens) {
  if (!cu_seqlens.defined()) return {};
  CheckAligned(op, "cu_seqlens", cu_seqlens);
  if (cu_seqlens.dtype() != DType::kInt64 || cu_seqlens.rank() != 1 || cu_seqlens.size(0) < 2 ||
      !cu_seqlens.contiguous()) {
    throw Error(op, "cu_seqlens", "contiguous int64 [N+1] with N >= 1", Describe(cu_seqlens));
  }
  if (batch != 1) throw Error(op, "B", "1 beside cu_seqlens", std::to_string(batch));
  const std::span<const std::int64_t> bounds{cu_seqlens.as<const std::int64_t>(),
                                             static_cast<std::size_t>(cu_seqlens.size(0))};
  std::int64_t before = 0;
  for (std::size_t i = 0; i < bounds.size(); ++i) {
    const bool last = i + 1 == bounds.size();
    if ((i == 0 && bounds[i] != 0) || bounds[i] < before || (last && bounds[i] != tokens)) {
      throw Error(op, "cu_seqlens", "from 0 to T = " + std::to_string(tokens) + " without falling",
                  std::to_string(bounds[i]) + " at " + std::to_string(i));
    }
    before = bounds[i];
  }
  return bounds;
}

}  // namespace ttr::operators
