// A new engine is one row: what it does not say has a default, and no other file knows of it.
#include "src/adapters/registry.h"

#include <gtest/gtest.h>

#include "tests/support/calls.h"
#include "ttr/error.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

// Answers every query with the number of its token.
class Counting final : public Engine {
 public:
  std::string_view name() const override { return "counting"; }
  bool Covers(const Recipe& recipe) const override {
    return recipe.function.kind == FunctionClass::kNetwork;
  }
  const char* Obstacle(const Recipe& recipe) const override {
    return recipe.function.depth > 1 ? "more than one layer" : nullptr;
  }
  std::string_view How(const Recipe&) const override { return "it counts"; }
  double FlopsPerToken(const Recipe&, const Dims&) const override { return 7; }
  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    AddMissing(call.recipe(), call.requirements.state, call.dims, DType::kFloat32, state);
    const TensorView& y = outputs.y;
    for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
      const Tensor row(y.dtype(), y.Slice(1, t, 1).shape());
      for (std::int64_t i = 0; i < row.elements(); ++i) {
        StoreElement(row.data(), row.dtype(), i, static_cast<double>(t));
      }
      CopyInto(row.view(), y.Slice(1, t, 1));
    }
  }
};

TEST(Registry, TakesAnEngineOfAFewLines) {
  const Counting counting;
  const Recipe taken = ParseRecipe("titans{depth: 1}"), deeper = ParseRecipe("titans{depth: 2}");
  {
    const RegisteredEngine registered(counting);
    const Layer layer(taken);
    EXPECT_EQ(layer.plan().engine, "counting");
    EXPECT_EQ(layer.plan().why, "it counts");
    EXPECT_FALSE(layer.HasGradients());
    EXPECT_FALSE(layer.HasBFloat16Products());
    const test::Call call(taken, test::SmallDims(taken), DType::kFloat32, 1);
    EXPECT_EQ(layer.ScratchBytes(call.dims, 2), 0U);
    EXPECT_EQ(layer.SavedBytes(call.dims), 0U);
    EXPECT_EQ(EstimateCost(taken, layer.plan(), call.dims).flops_per_token, 7);
    const test::Result result = RunWhole(layer, call);
    EXPECT_EQ(result.y.view().At({1, 3, 0, 0}), 3);
    EXPECT_EQ(RunDecoder(layer, call).y.view().At({1, 3, 0, 0}), 0);
    EXPECT_EQ(Engines().front(), "counting");

    const Plan plan = MakePlan(deeper);
    EXPECT_EQ(plan.engine, kDefinition);
    EXPECT_NE(plan.why.find("more than one layer"), std::string::npos) << plan.why;
    EXPECT_EQ(MakePlan(ParseRecipe("retnet")).engine, "fast_weights");
    EXPECT_EQ(Layer(taken, kDefinition).plan().engine, kDefinition);
    EXPECT_THROW(Layer(taken, "scan"), Error);
  }
  EXPECT_EQ(MakePlan(taken).engine, "network");
  EXPECT_EQ(Engines().back(), kDefinition);
}

TEST(Registry, HasAnEngineOfEveryName) {
  for (const std::string_view name : Engines()) {
    ASSERT_NE(FindEngine(name), nullptr);
    EXPECT_EQ(FindEngine(name)->name(), name);
  }
  EXPECT_EQ(FindEngine("none"), nullptr);
}

}  // namespace
}  // namespace ttr
