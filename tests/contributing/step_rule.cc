// Outputs and gradients of the step rule `clipped`, which CONTRIBUTING.md adds, against the
// definition.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace {

ttr::Tensor Drawn(const ttr::Shape& shape, std::uint64_t stream, bool positive) {
  ttr::Tensor tensor(ttr::DType::kFloat64, shape);
  ttr::CounterRandom random(7, stream);
  for (double& x : tensor.as<double>()) x = positive ? random.Uniform() : 0.6 * random.Normal();
  return tensor;
}

double Difference(const ttr::Tensor& a, const ttr::Tensor& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.as<double>().size(); ++i) {
    largest = std::max(largest, std::abs(a.as<double>()[i] - b.as<double>()[i]));
  }
  return largest;
}

int failures = 0;
void Expect(bool right, const std::string& what) {
  std::printf("%s: %s\n", right ? "right" : "WRONG", what.c_str());
  failures += right ? 0 : 1;
}

}  // namespace

int main() {
  const ttr::Recipe recipe = ttr::ParseRecipe("deltanet{step: clipped}");
  const ttr::Layer engine(recipe), definition(recipe, ttr::kDefinition);
  Expect(engine.plan().engine == "fast_weights", "an engine runs it");
  const ttr::Shape rows{1, 20, 1, 3}, gates{1, 20, 1};
  const ttr::Tensor q = Drawn(rows, 1, false), k = Drawn(rows, 2, false), v = Drawn(rows, 3, false);
  const ttr::Tensor step = Drawn(gates, 4, true), dy = Drawn(rows, 5, false);
  const ttr::Inputs inputs{.q = q, .k = k, .v = v, .step = step};
  // Both sides of the corner occur.
  int clipped = 0;
  for (std::int64_t t = 0; t < 20; ++t) {
    double n = 0;
    for (std::int64_t i = 0; i < 3; ++i) n += std::pow(k.view().At({0, t, 0, i}), 2);
    clipped += step.view().At({0, t, 0}) * n > 1 ? 1 : 0;
  }
  Expect(clipped > 2 && clipped < 18, "both sides of the corner occur");

  struct Result {
    ttr::Tensor y, dq, dk, dv, dstep;
  };
  const auto run = [&](const ttr::Layer& layer) {
    const auto empty = [](const ttr::Shape& shape) {
      return ttr::Tensor(ttr::DType::kFloat64, shape);
    };
    Result result{empty(rows), empty(rows), empty(rows), empty(rows), empty(gates)};
    ttr::State state, dinitial;
    layer.Forward(inputs, state, {.y = result.y});
    layer.Backward(inputs, {}, dy, {},
                   {.q = result.dq, .k = result.dk, .v = result.dv, .step = result.dstep},
                   dinitial);
    return result;
  };
  const Result got = run(engine), expected = run(definition);
  Expect(Difference(got.y, expected.y) < 1e-12, "outputs");
  Expect(Difference(got.dq, expected.dq) < 1e-7, "gradient of q");
  Expect(Difference(got.dk, expected.dk) < 1e-7, "gradient of k");
  Expect(Difference(got.dv, expected.dv) < 1e-7, "gradient of v");
  Expect(Difference(got.dstep, expected.dstep) < 1e-7, "gradient of step");
  return failures == 0 ? 0 : 1;
}
