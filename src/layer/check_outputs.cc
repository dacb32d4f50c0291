#include "src/layer/check_outputs.h"

#include <cstddef>
#include <functional>
#include <iterator>
#include <span>
#include <string>

#include "ttr/error.h"

namespace ttr {
namespace {

/// The bytes between a view's first and last element. Strides are not negative.
struct Extent {
  explicit Extent(const TensorView& view) : begin(view.as<const std::byte>()), end(begin) {
    std::int64_t last = 0;
    for (int axis = 0; axis < view.rank(); ++axis) {
      if (view.size(axis) == 0) return;
      last += (view.size(axis) - 1) * view.stride(axis);
    }
    end += (last + 1) * static_cast<std::int64_t>(SizeOf(view.dtype()));
  }

  const std::byte* begin;
  const std::byte* end;
};

bool Overlap(const TensorView& view_a, const TensorView& view_b) {
  if (!view_a.defined() || !view_b.defined()) return false;
  const Extent a(view_a);
  const Extent b(view_b);
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

/// What is told of every answer, if asked for.
void CheckReport(std::string_view op, std::string_view name, const TensorView& view, DType dtype,
                 const Dims& dims) {
  if (!view.defined()) return;
  const Shape shape{dims.batch, dims.tokens, dims.output_heads()};
  if (view.dtype() != dtype) {
    throw Error(op, name, std::string(Name(dtype)) + " " + shape.ToString(), Describe(view));
  }
  CheckShape(op, name, view, shape);
}

void CheckApart(std::string_view op, std::string_view name, const TensorView& written,
                std::string_view other_name, const TensorView& other) {
  if (Overlap(written, other)) {
    throw Error(op, name, "memory of its own", "overlapping " + std::string(other_name));
  }
}

/// What is written shares no memory with any input, nor with these entries of the state.
void CheckAlone(std::string_view op, std::string_view name, const TensorView& written,
                const Inputs& inputs, std::span<const State::Entry> entries) {
  if (!written.defined()) return;
  for (const InputField& field : InputFields()) {
    CheckApart(op, name, written, field.name, inputs.*field.view);
  }
  for (const State::Entry& entry : entries) {
    CheckApart(op, name, written, entry.name, entry.view);
  }
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
  CheckReport(op, "status", outputs.status, DType::kInt8, dims);
  CheckReport(op, "iterations", outputs.iterations, DType::kInt64, dims);
  CheckReport(op, "residual", outputs.residual, DType::kFloat64, dims);

  struct Written {
    const char* name;
    const TensorView& view;
  };
  const Written written[] = {{"y", outputs.y},
                             {"status", outputs.status},
                             {"iterations", outputs.iterations},
                             {"residual", outputs.residual}};
  for (const Written& one : written) {
    CheckAlone(op, one.name, one.view, inputs, state.entries());
    for (const Written* other = &one + 1; other != std::end(written); ++other) {
      CheckApart(op, one.name, one.view, other->name, other->view);
    }
  }
  std::span<const State::Entry> others = state.entries();
  for (const State::Entry& entry : state.entries()) {
    others = others.subspan(1);
    CheckAlone(op, entry.name, entry.view, inputs, others);
  }
}

void CheckGradients(std::string_view op, const Dims& dims, const Inputs& inputs,
                    const TensorView& dy, const Inputs& dinputs) {
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
