// What CONTRIBUTING.md adds: outputs and gradients of the step rule `clipped`, of the kernel
// `cauchy` and of the gate `erase_share` against the definition; the switch `finite` by its name,
// as Python's front ends set it.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "python/switches.h"
#include "ttr/error.h"
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

struct Result {
  ttr::Tensor y, dq, dk, dv, dstep, dshare;
};

Result Run(const ttr::Layer& layer, const ttr::Inputs& inputs, const ttr::Tensor& dy) {
  const auto like = [](const ttr::TensorView& view) {
    return view.defined() ? ttr::Tensor(ttr::DType::kFloat64, view.shape()) : ttr::Tensor();
  };
  Result result{like(dy),       like(inputs.q),    like(inputs.k),
                like(inputs.v), like(inputs.step), like(inputs.erase_share)};
  ttr::State state, dinitial;
  layer.Forward(inputs, state, {.y = result.y});
  ttr::Inputs gradients{.q = result.dq, .k = result.dk, .v = result.dv};
  if (result.dstep.defined()) gradients.step = result.dstep;
  if (result.dshare.defined()) gradients.erase_share = result.dshare;
  layer.Backward(inputs, {}, dy, {}, gradients, dinitial);
  return result;
}

void ExpectTheDefinition(const std::string& name, const ttr::Inputs& inputs,
                         const ttr::Tensor& dy) {
  const ttr::Recipe recipe = ttr::ParseRecipe(name);
  const ttr::Layer engine(recipe), definition(recipe, ttr::kDefinition);
  Expect(engine.plan().engine != ttr::kDefinition, name + ": an engine runs it");
  const Result got = Run(engine, inputs, dy), expected = Run(definition, inputs, dy);
  Expect(Difference(got.y, expected.y) < 1e-11, name + ": outputs");
  Expect(Difference(got.dq, expected.dq) < 1e-6, name + ": gradient of q");
  Expect(Difference(got.dk, expected.dk) < 1e-6, name + ": gradient of k");
  Expect(Difference(got.dv, expected.dv) < 1e-6, name + ": gradient of v");
  if (got.dstep.defined()) {
    Expect(Difference(got.dstep, expected.dstep) < 1e-6, name + ": gradient of step");
  }
  if (got.dshare.defined()) {
    Expect(Difference(got.dshare, expected.dshare) < 1e-6, name + ": gradient of erase_share");
  }
}

/// A share of 0 writes as linear attention does, 1 is the delta rule, and one that is not finite
/// counts for nothing where the step is 0.
void ExpectTheGate(ttr::Inputs inputs, const ttr::Tensor& dy) {
  const std::string name = "deltanet{erase: share}";
  ExpectTheDefinition(name, inputs, dy);
  const ttr::Layer gated(name);
  ttr::Tensor share = ttr::Tensor::Copy(inputs.erase_share);
  inputs.erase_share = share;
  std::ranges::fill(share.as<double>(), 1.0);
  ttr::Inputs plain = inputs;
  plain.erase_share = {};
  Expect(Difference(Run(gated, inputs, dy).y, Run(ttr::Layer("deltanet"), plain, dy).y) < 1e-14,
         name + ": 1 is the delta rule");
  std::ranges::fill(share.as<double>(), 0.0);
  plain.step = {};
  plain.importance = inputs.step;
  const ttr::Layer written("linear_attention{importance: input}");
  Expect(Difference(Run(gated, inputs, dy).y, Run(written, plain, dy).y) < 1e-14,
         name + ": 0 only writes");
  ttr::Tensor step = ttr::Tensor::Copy(inputs.step);
  inputs.step = step;
  step.as<double>()[4] = 0;
  share.as<double>()[4] = std::nan("");
  for (const std::string_view engine : {ttr::Layer(name).plan().engine, ttr::kDefinition}) {
    const ttr::Layer layer(ttr::ParseRecipe(name), engine);
    const ttr::Tensor y = Run(layer, inputs, dy).y;
    Expect(std::ranges::all_of(y.as<double>(), [](double x) { return std::isfinite(x); }),
           name + ": a step of 0 takes nothing, on " + std::string(engine));
  }
}

/// What a call with the switches of these names says: nothing, or its error.
std::string Refusal(const ttr::Inputs& inputs, const std::vector<std::string>& names) {
  ttr::CallOptions options;
  for (const ttr::CallSwitch& known : ttr::kCallSwitches) {
    options.*known.value = std::ranges::find(names, known.name) != names.end();
  }
  const ttr::Tensor y(ttr::DType::kFloat64, inputs.v.shape());
  ttr::State state;
  try {
    ttr::Layer("linear_attention").Forward(inputs, state, {.y = y}, options);
  } catch (const ttr::Error& error) {
    return error.what();
  }
  return {};
}

/// CallOptions as the rooms have it that are not compiled again.
struct WithoutFinite {
  ttr::Executor* executor;
  std::span<std::byte> scratch, saved;
  bool bfloat16_products;
};
static_assert(sizeof(WithoutFinite) == sizeof(ttr::CallOptions));

void ExpectTheSwitch(const ttr::Inputs& inputs) {
  Expect(Refusal(inputs, {"finite"}).empty(), "finite: answers that are");
  ttr::Tensor v = ttr::Tensor::Copy(inputs.v);
  v.as<double>()[4] = std::nan("");
  ttr::Inputs holed = inputs;
  holed.v = v;
  Expect(Refusal(holed, {}).empty(), "finite: NaN is data where nothing is asked");
  const std::string refused = Refusal(holed, {"finite"});
  Expect(refused == "[Forward] y must be finite but is nan", "finite: " + refused);
}

}  // namespace

int main() {
  const ttr::Shape rows{1, 20, 1, 3}, gates{1, 20, 1};
  const ttr::Tensor q = Drawn(rows, 1, false), k = Drawn(rows, 2, false), v = Drawn(rows, 3, false);
  const ttr::Tensor step = Drawn(gates, 4, true), dy = Drawn(rows, 5, false);
  // Both sides of the corner occur.
  int clipped = 0;
  for (std::int64_t t = 0; t < 20; ++t) {
    double n = 0;
    for (std::int64_t i = 0; i < 3; ++i) n += std::pow(k.view().At({0, t, 0, i}), 2);
    clipped += step.view().At({0, t, 0}) * n > 1 ? 1 : 0;
  }
  Expect(clipped > 2 && clipped < 18, "both sides of the corner occur");
  ExpectTheDefinition("deltanet{step: clipped}", {.q = q, .k = k, .v = v, .step = step}, dy);
  const ttr::Tensor share = Drawn(gates, 6, true);
  ExpectTheGate({.q = q, .k = k, .v = v, .step = step, .erase_share = share}, dy);
  for (const char* name : {"nadaraya_watson{kernel: cauchy, bandwidth: 0.7}",
                           "kernel_ridge{kernel: cauchy, bandwidth: 0.7}",
                           "kernel_ridge{kernel: cauchy, bandwidth: 0.7, ridge: 0}",
                           "kernel_rls{kernel: cauchy, bandwidth: 0.7}",
                           "local_linear{kernel: cauchy, bandwidth: 0.7}"}) {
    ExpectTheDefinition(name, {.q = q, .k = k, .v = v}, dy);
  }
  ExpectTheSwitch({.q = q, .k = k, .v = v});
  return failures == 0 ? 0 : 1;
}
