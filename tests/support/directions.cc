#include "tests/support/directions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/gradients.h"

namespace ttr::test {
namespace {

// An input, what it was, and where it goes.
struct Mover {
  TensorView view, gradient;
  Tensor start, direction;

  double Step(std::int64_t i) const { return start.as<double>()[i] * direction.as<double>()[i]; }
};

std::vector<Mover> MoversOf(const Call& call, const Gradients& gradients) {
  std::vector<Mover> movers;
  std::uint64_t seed = 50;
  for (const InputField& field : InputFields()) {
    const TensorView& view = call.inputs.*field.view;
    if (!view.defined()) continue;
    movers.push_back({view, gradients.inputs.*field.view, Tensor::Copy(view, DType::kFloat64),
                      Normal(DType::kFloat64, view.shape(), seed++)});
  }
  return movers;
}

void MoveBy(double distance, const std::vector<Mover>& movers) {
  for (const Mover& mover : movers) {
    for (std::int64_t i = 0; i < mover.start.elements(); ++i) {
      mover.view.as<double>()[i] = mover.start.as<double>()[i] + distance * mover.Step(i);
    }
  }
}

// <dy, y> at a distance along the direction.
double LossAt(double distance, const std::vector<Mover>& movers, const Call& call,
              const TensorView& dy) {
  MoveBy(distance, movers);
  const Result result = RunWhole(Layer(call.recipe, kDefinition), call);
  double sum = 0;
  for (std::int64_t i = 0; i < dy.shape().elements(); ++i) {
    sum += dy.as<double>()[i] * result.y.as<double>()[i];
  }
  return sum;
}

}  // namespace

void ExpectSlopeOfTheDefinition(const Layer& layer, const Call& call, const TensorView& dy,
                                double tolerance) {
  const Gradients gradients = Differentiate(layer, call.inputs, {}, dy, {});
  const std::vector<Mover> movers = MoversOf(call, gradients);
  double slope = 0;
  double terms = 0;
  for (const Mover& mover : movers) {
    for (std::int64_t i = 0; i < mover.start.elements(); ++i) {
      const double term = mover.gradient.as<double>()[i] * mover.Step(i);
      slope += term;
      terms += std::abs(term);
    }
  }
  constexpr double kStep = 1e-6;  // so that hardly a pair crosses the edge of a compact kernel
  const double difference = LossAt(kStep, movers, call, dy) - LossAt(-kStep, movers, call, dy);
  MoveBy(0, movers);
  EXPECT_NEAR(difference / (2 * kStep), slope, tolerance * terms);
}

}  // namespace ttr::test
