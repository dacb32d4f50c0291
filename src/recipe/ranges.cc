// Ranges of the values of gates and constants: one pass over each.
#include <array>
#include <string>

#include "src/recipe/text.h"
#include "ttr/error.h"
#include "ttr/inputs.h"

namespace ttr {
namespace {

using Index = std::array<std::int64_t, kMaxRank>;

float Widened(float x) { return x; }
double Widened(double x) { return x; }
float Widened(BFloat16 x) { return ToFloat(x); }

// The first place in a row of n elements that is out of range, or n. NaN compares false: it passes.
template <class T>
std::int64_t FirstOutside(const T* row, std::int64_t n, Range range) {
  const bool positive_is_bad = range == Range::kNonPositive;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto x = Widened(row[i]);
    if (positive_is_bad ? x > 0 : x < 0) return i;
  }
  return n;
}

[[noreturn]] void Fail(std::string_view op, const InputSpec& spec, const TensorView& view,
                       double value, const Index& index) {
  std::string place = " at [";
  for (int axis = 0; axis < view.rank(); ++axis) {
    place += (axis > 0 ? "," : "") + std::to_string(index[static_cast<std::size_t>(axis)]);
  }
  throw Error(op, spec.name, spec.range == Range::kNonPositive ? "<= 0" : ">= 0",
              FormatNumber(value) + place + "]");
}

// Steps through all axes but the last, whose elements are next to each other (CheckInputs).
template <class T>
void CheckElements(std::string_view op, const InputSpec& spec, const TensorView& view) {
  if (view.shape().elements() == 0) return;
  const int last = view.rank() - 1;
  Index index{};
  while (true) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < last; ++axis) {
      offset += index[static_cast<std::size_t>(axis)] * view.stride(axis);
    }
    const T* row = view.as<const T>() + offset;
    const std::int64_t bad = FirstOutside(row, view.size(last), spec.range);
    if (bad < view.size(last)) {
      index[static_cast<std::size_t>(last)] = bad;
      Fail(op, spec, view, Widened(row[bad]), index);
    }
    int axis = last - 1;
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
      case DType::kInt64:
      case DType::kInt8: break;
    }
  }
}

}  // namespace ttr
