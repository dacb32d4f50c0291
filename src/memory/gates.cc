#include "src/memory/gates.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "src/recipe/family.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using Sizes = AssociativeMemory::Sizes;

// 0 for the number of features, which nothing but the gate itself determines.
std::int64_t SizeOfAxis(Axis axis, const Recipe& recipe, const Sizes& sizes) {
  switch (axis) {
    case Axis::kRows: return RowsPerToken(recipe);
    case Axis::kHeads: return sizes.heads;
    case Axis::kKeyDim: return sizes.key_dim;
    case Axis::kValueDim: return sizes.value_dim;
    case Axis::kMiniBatch: return recipe.optimizer.mini_batch;
    case Axis::kSteps: return recipe.optimizer.steps;
    case Axis::kFeatures: return 0;
    default: return 1;  // B, T and 1
  }
}

std::optional<Shape> ShapeOf(const std::vector<Axis>& axes, const Recipe& recipe,
                             const Sizes& sizes, std::int64_t count) {
  std::array<std::int64_t, kMaxRank> shape{};
  std::int64_t known = 1;
  std::int64_t* features = nullptr;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    shape[i] = SizeOfAxis(axes[i], recipe, sizes);
    if (shape[i] == 0) {
      features = &shape[i];
    } else if (__builtin_mul_overflow(known, shape[i], &known)) {
      return std::nullopt;
    }
  }
  if (features != nullptr) {
    if (count == 0 || count % known != 0) return std::nullopt;
    *features = count / known;
  } else if (count != known) {
    return std::nullopt;
  }
  return Shape(std::span<const std::int64_t>(shape.data(), axes.size()));
}

}  // namespace

bool IsGate(const InputSpec& spec) {
  return spec.name != "q" && spec.name != "k" && spec.name != "v" && spec.name != "cu_seqlens";
}

bool IsPerToken(const InputSpec& spec) {
  const std::vector<Axis>& axes = spec.shapes.front();
  return std::any_of(axes.begin(), axes.end(),
                     [](Axis axis) { return axis == Axis::kTokens || axis == Axis::kRows; });
}

Dims SizesOfCalls(const Recipe& recipe, const Sizes& sizes, const TensorView& features_w) {
  const auto specs = InputSpecs(recipe);
  const bool keyless = std::none_of(specs.begin(), specs.end(), [](const InputSpec& spec) {
    return spec.name == "q" || spec.name == "k";
  });
  Dims dims;
  dims.query_heads = dims.key_heads = dims.value_heads = dims.heads = sizes.heads;
  dims.key_dim = keyless ? sizes.value_dim : sizes.key_dim;
  dims.value_dim = sizes.value_dim;
  dims.tokens = 1;
  if (features_w.defined()) dims.features = features_w.size(1);
  const bool network = recipe.function.kind == FunctionClass::kNetwork;
  if (network && recipe.function.depth > 1) dims.hidden = recipe.function.expansion * dims.key_dim;
  return dims;
}

const InputSpec& RequireGate(std::string_view op, const std::vector<InputSpec>& specs,
                             std::string_view name) {
  std::string known;
  for (const InputSpec& spec : specs) {
    if (!IsGate(spec)) continue;
    if (spec.name == name) return spec;
    known += (known.empty() ? "one of " : ", ") + std::string(spec.name);
  }
  throw Error(op, "gate", known.empty() ? "absent, as this recipe takes none" : known,
              "'" + std::string(name) + "'");
}

TensorView GateView(std::string_view op, const InputSpec& spec, const Recipe& recipe,
                    const Sizes& sizes, std::span<const double> values) {
  for (const std::vector<Axis>& axes : spec.shapes) {
    const auto count = static_cast<std::int64_t>(values.size());
    if (const auto shape = ShapeOf(axes, recipe, sizes, count)) {
      return TensorView::Of(values.data(), *shape);
    }
  }
  throw Error(op, "gate '" + std::string(spec.name) + "'", GateText(spec, sizes),
              std::to_string(values.size()) + " numbers");
}

std::string GateText(const InputSpec& spec, const Sizes& sizes) {
  std::string text;
  for (const std::vector<Axis>& axes : spec.shapes) {
    text += text.empty() ? "[" : " or [";
    for (std::size_t i = 0; i < axes.size(); ++i) {
      text += (i > 0 ? "," : "") + std::string(Name(axes[i]));
    }
    text += "]";
  }
  return text + " with H = " + std::to_string(sizes.heads) +
         ", Dk = " + std::to_string(sizes.key_dim) + ", Dv = " + std::to_string(sizes.value_dim);
}

}  // namespace ttr
