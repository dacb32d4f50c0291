#include "src/layer/check_outputs.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ttr/error.h"

namespace ttr {
namespace {

struct Extent {
  std::string name;
  const std::byte* begin;
  const std::byte* end;
};

/// The bytes between a view's first and last element. Strides are not negative.
Extent ExtentOf(std::string name, const TensorView& view) {
  const auto* begin = view.as<const std::byte>();
  if (!view.defined() || view.shape().elements() == 0) return {std::move(name), begin, begin};
  std::int64_t last = 0;
  for (int axis = 0; axis < view.rank(); ++axis) last += (view.size(axis) - 1) * view.stride(axis);
  const auto bytes = static_cast<std::int64_t>(SizeOf(view.dtype()));
  return {std::move(name), begin, begin + (last + 1) * bytes};
}

bool Overlap(const Extent& a, const Extent& b) {
  const std::less<const std::byte*> before;
  return a.begin != a.end && b.begin != b.end && before(a.begin, b.end) && before(b.begin, a.end);
}

std::string Describe(const TensorView& view) {
  if (!view.defined()) return "absent";
  return std::string(Name(view.dtype())) + " " + view.shape().ToString();
}

void CheckShape(std::string_view op, std::string_view name, const TensorView& view,
                const Shape& shape) {
  if (!(view.shape() == shape)) throw Error(op, name, shape.ToString(), Describe(view));
}

}  // namespace

void CheckOutputs(std::string_view op, const Dims& dims, const Inputs& inputs, const State& state,
                  const Outputs& outputs) {
  const Shape y_shape{dims.batch, dims.tokens, dims.output_heads(), dims.value_dim};
  if (!outputs.y.defined() || !IsFloating(outputs.y.dtype())) {
    throw Error(op, "y", "float32, float64 or bfloat16 [B,T,max(H,Hq),Dv] = " + y_shape.ToString(),
                Describe(outputs.y));
  }
  CheckShape(op, "y", outputs.y, y_shape);
  if (dims.value_dim > 1 && outputs.y.stride(3) != 1) {
    throw Error(op, "y", "contiguous in its last axis",
                "of stride " + std::to_string(outputs.y.stride(3)));
  }
  if (outputs.status.defined()) {
    const Shape shape{dims.batch, dims.tokens, dims.output_heads()};
    if (outputs.status.dtype() != DType::kInt8) {
      throw Error(op, "status", "int8 " + shape.ToString(), Describe(outputs.status));
    }
    CheckShape(op, "status", outputs.status, shape);
  }

  std::vector<Extent> written{ExtentOf("y", outputs.y), ExtentOf("status", outputs.status)};
  for (const State::Entry& entry : state.entries()) {
    written.push_back(ExtentOf(entry.name, entry.view));
  }
  std::vector<Extent> read;
  for (const InputField& field : InputFields()) {
    read.push_back(ExtentOf(std::string(field.name), inputs.*field.view));
  }
  for (std::size_t i = 0; i < written.size(); ++i) {
    for (std::size_t j = i + 1; j < written.size(); ++j) {
      if (Overlap(written[i], written[j])) {
        throw Error(op, written[i].name, "memory of its own", "overlapping " + written[j].name);
      }
    }
    for (const Extent& input : read) {
      if (Overlap(written[i], input)) {
        throw Error(op, written[i].name, "memory of its own", "overlapping " + input.name);
      }
    }
  }
}

void CheckGradients(std::string_view op, const Dims& dims,
                    const Inputs& inputs, const TensorView& dy, const Inputs& dinputs) {
  const Shape y_shape{dims.batch, dims.tokens, dims.output_heads(), dims.value_dim};
  if (!dy.defined() || !(dy.shape() == y_shape)) {
    throw Error(op, "dy", "[B,T,max(H,Hq),Dv] = " + y_shape.ToString(), Describe(dy));
  }
  for (const InputField& field : InputFields()) {
    const TensorView& gradient = dinputs.*field.view;
    if (!gradient.defined()) continue;
    const std::string name = "d" + std::string(field.name);
    const TensorView& input = inputs.*field.view;
    if (!input.defined() || !IsFloating(input.dtype())) {
      throw Error(op, name, "absent, as " + std::string(field.name) + " has no gradient here",
                  Describe(gradient));
    }
    if (!IsFloating(gradient.dtype())) {
      throw Error(op, name, "a floating-point tensor", Describe(gradient));
    }
    CheckShape(op, name, gradient, input.shape());
  }
}

}  // namespace ttr
