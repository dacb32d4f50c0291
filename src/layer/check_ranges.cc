// Ranges of the values of gates and constants: one pass over each.
#include <array>
#include <string>

#include "src/core/widened.h"
#include "src/recipe/text.h"
#include "src/simd/first_of.h"
#include "ttr/error.h"
#include "ttr/inputs.h"

namespace ttr {
namespace {

using Index = std::array<std::int64_t, kMaxRank>;

[[noreturn]] void Fail(std::string_view op, const InputSpec& spec, const TensorView& view,
                       double value, const Index& index) {
  std::string place = " at [";
  for (int axis = 0; axis < view.rank(); ++axis) {
    place += (axis > 0 ? "," : "") + std::to_string(index[static_cast<std::size_t>(axis)]);
  }
  throw Error(op, spec.name, spec.range == Range::kNonPositive ? "<= 0" : ">= 0",
              FormatNumber(value) + place + "]");
}

// Steps through the axes before those whose elements lie in one run: the last does (CheckInputs),
// and all where the view is contiguous.
template <class T>
void CheckElements(std::string_view op, const InputSpec& spec, const TensorView& view) {
  if (view.shape().elements() == 0) return;
  int first = view.rank() - 1;  // axis of the run
  std::int64_t run = view.size(first);
  while (first > 0 && view.stride(first - 1) == run) run *= view.size(--first);
  const simd::Kind forbidden =
      spec.range == Range::kNonPositive ? simd::Kind::kPositive : simd::Kind::kNegative;
  Index index{};
  while (true) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < first; ++axis) {
      offset += index[static_cast<std::size_t>(axis)] * view.stride(axis);
    }
    const T* elements = view.as<const T>() + offset;
    std::int64_t bad = simd::FirstOf(forbidden, elements, run);
    if (bad < run) {
      const double value = Widened(elements[bad]);
      for (int axis = view.rank() - 1; axis >= first; bad /= view.size(axis--)) {
        index[static_cast<std::size_t>(axis)] = bad % view.size(axis);
      }
      Fail(op, spec, view, value, index);
    }
    int axis = first - 1;
    while (axis >= 0 && ++index[static_cast<std::size_t>(axis)] == view.size(axis)) {
      index[static_cast<std::size_t>(axis--)] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

void CheckRanges(std::string_view op, const Requirements& requirements, const Inputs& inputs) {
  for (const InputSpec& spec : requirements.inputs) {
    const TensorView& view = inputs.*spec.view;
    if (spec.range == Range::kAny || !view.defined()) continue;
    switch (view.dtype()) {
      case DType::kFloat32: CheckElements<float>(op, spec, view); break;
      case DType::kFloat64: CheckElements<double>(op, spec, view); break;
      case DType::kBFloat16: CheckElements<BFloat16>(op, spec, view); break;
      case DType::kFloat16: CheckElements<Float16>(op, spec, view); break;
      case DType::kInt64:
      case DType::kInt8: break;
    }
  }
}

}  // namespace ttr
