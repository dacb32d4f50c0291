// The operators around a memory, called as nobody should call them (hostile_test.cc).
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/hostile.h"
#include "ttr/features.h"
#include "ttr/gates.h"
#include "ttr/norm.h"
#include "ttr/short_conv.h"

namespace ttr {
namespace {

using test::Draws;
using test::Memory;
using test::Refuses;
using test::Spoil;

TEST(HostileOperators, AreRefusedOrRun) {
  int refused = 0;
  const int draws = Draws(2000);
  for (int draw = 0; draw < draws; ++draw) {
    SCOPED_TRACE("draw " + std::to_string(draw));
    Memory memory(static_cast<std::uint64_t>(draw) + 5000);
    const Shape rows{2, draw % 3 == 0 ? 1 : 5, 2, 6};
    const auto make = [&](const Shape& shape) {
      return memory.Copy(Tensor(DType::kFloat32, shape));
    };
    TensorView x = make(rows), y = make(rows), dx = make(rows), gate = make(rows);
    TensorView weight = make({2, 6}), bias = make({2, 6}), dweight = make({2, 6});
    TensorView taps = make({2, 6, 4}), dtaps = make({2, 6, 4});
    // As it lies in caches: more rows than W - 1, tokens innermost.
    const std::vector<std::int64_t> cache = {60, 1, 30, 5};
    TensorView state = memory.Make(DType::kFloat32, {2, 5, 2, 6}, cache);
    TensorView dstate = memory.Make(DType::kFloat32, {2, 5, 2, 6}, cache);
    TensorView rates = make({2}), drates = make({2});
    const std::vector<TensorView*> views{&x,    &y,     &dx,     &gate,  &weight, &bias,  &dweight,
                                         &taps, &state, &dstate, &dtaps, &rates,  &drates};
    Spoil(memory, views, *views[static_cast<std::size_t>(memory.Below(13))]);
    const std::int64_t which = memory.Below(12);
    refused += Refuses(memory, [&] {
      switch (which) {
        case 0:
          ApplyNorm({.weight = weight, .bias = bias, .gate_kind = Gate::kSigmoid}, {x, gate}, y);
          break;
        case 1:
          ApplyNormGradient({.weight = weight, .bias = bias, .gate_first = true}, {x, gate}, y,
                            {.dx = dx, .dweight = dweight});
          break;
        case 2: ApplyShortConv({.weight = taps, .bias = bias, .silu = true}, {x}, state, y); break;
        case 3:
          ApplyShortConvGradient({.weight = taps, .bias = bias}, {x}, state, y, {},
                                 {.dx = dx, .dweight = dtaps, .dinitial = dstate});
          break;
        case 4: ApplyFeatures({.features = FeatureMap::kElu1}, {.x = x}, y); break;
        case 5: ApplyDecayGate({.a = rates, .bias = bias}, x, y); break;
        case 6:
          ApplyDecayGateGradient({.a = rates, .bias = bias}, x, y,
                                 {.dx = dx, .da = drates, .dbias = dweight});
          break;
        case 7: ApplyStepGate({.bias = bias, .low = 0.1, .high = 1}, x, y); break;
        case 8: ApplyStepGateGradient({.bias = bias}, x, y, {.dx = dx, .dbias = dweight}); break;
        case 9: ApplySkipGate({.d = rates}, {.y = gate, .x = x, .z = dx}, y); break;
        case 10:
          ApplySkipGateGradient({.d = weight}, {.y = gate, .x = x}, y, {.dx = dx, .dd = dweight});
          break;
        default: ApplyFeaturesGradient({.features = FeatureMap::kElu1}, {.x = x}, y, {.dx = dx});
      }
    });
  }
  EXPECT_GT(refused, draws / 10);
  EXPECT_LT(refused, draws);
}

}  // namespace
}  // namespace ttr
