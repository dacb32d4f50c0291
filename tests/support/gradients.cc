#include "tests/support/gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/calls.h"
#include "ttr/util/random.h"

namespace ttr::test {
namespace {

double Largest(const TensorView& view) {
  const Tensor copy = Tensor::Copy(view, DType::kFloat64);
  double largest = 1;
  for (const double x : copy.as<double>()) largest = std::max(largest, std::abs(x));
  return largest;
}

// Each view of `a` beside the one of `b`, with what to call it.
template <class Compare>
void ForEachGradient(const Gradients& a, const Gradients& b, const Compare& compare) {
  for (const InputField& field : InputFields()) {
    const TensorView& x = a.inputs.*field.view;
    if (x.defined()) compare(x, b.inputs.*field.view, field.name);
  }
  ASSERT_EQ(a.initial.entries().size(), b.initial.entries().size());
  for (const State::Entry& entry : a.initial.entries()) {
    compare(entry.view, b.initial.Get(entry.name), entry.name);
  }
}

}  // namespace

Tensor Normal(DType dtype, const Shape& shape, std::uint64_t seed) {
  Tensor tensor(dtype, shape);
  CounterRandom random(seed, 0);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(tensor.data(), dtype, i, random.Normal());
  }
  return tensor;
}

State RandomState(const Layer& layer, const Inputs& inputs, std::uint64_t seed) {
  State start = layer.InitialState(inputs);
  if (start.Get("state.count").defined()) {
    // The root of a dictionary goes with its keys: of those that it has read.
    layer.Memorize(inputs, start);
    return start;
  }
  constexpr std::int64_t kPairs = 5;
  const bool keeps_pairs = start.Get("state.length").defined();
  State drawn;
  for (const State::Entry& entry : start.entries()) {
    Shape shape = entry.view.shape();
    if (keeps_pairs && shape.rank() == 4) shape = {shape[0], kPairs, shape[2], shape[3]};
    if (keeps_pairs && shape.rank() == 3) shape = {shape[0], kPairs, shape[2]};
    Tensor tensor = Normal(entry.view.dtype(), shape, seed++);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      const double x = LoadElement(tensor.data(), tensor.dtype(), i);
      const bool squares = entry.name == "state.d" || entry.name.starts_with("state.squares_");
      if (squares) StoreElement(tensor.data(), tensor.dtype(), i, x * x);
      if (entry.name == "state.length") {
        StoreElement(tensor.data(), tensor.dtype(), i, static_cast<double>(2 + i % 3));
      }
      if (entry.name == "state.position") StoreElement(tensor.data(), tensor.dtype(), i, 3);
    }
    drawn.Set(entry.name, std::move(tensor));
  }
  return drawn;
}

Gradients Differentiate(const Layer& layer, const Inputs& inputs, const State& initial,
                        const TensorView& dy, const State& dstate, const CallOptions& options,
                        DType dtype) {
  Gradients result;
  for (const InputField& field : InputFields()) {
    const TensorView& input = inputs.*field.view;
    if (!input.defined() || !IsFloating(input.dtype())) continue;
    result.tensors.push_back(Normal(dtype, input.shape(), 99));
    result.inputs.*field.view = result.tensors.back().view();
  }
  layer.Backward(inputs, initial, dy, dstate, result.inputs, result.initial, options);
  return result;
}

void ExpectClose(const Gradients& a, const Gradients& b, double tolerance) {
  ForEachGradient(a, b, [=](const TensorView& x, const TensorView& y, std::string_view name) {
    EXPECT_LE(LargestDifference(x, y), tolerance * Largest(y)) << name;
  });
}

void ExpectWithin(const Gradients& a, const Gradients& b, double distance) {
  ForEachGradient(a, b, [=](const TensorView& x, const TensorView& y, std::string_view name) {
    EXPECT_LE(LargestDifference(x, y), distance) << name;
  });
}

}  // namespace ttr::test
