// What has no meaning is refused, with the reason and the nearest recipe that has one.
#include "src/recipe/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "src/recipe/parse.h"
#include "src/recipe/rules.h"
#include "tests/recipe/message.h"
#include "tests/support/random_recipe.h"
#include "ttr/recipe.h"

namespace ttr {
namespace {

struct Refusal {
  std::string_view recipe;
  std::string_view reason;  // how it begins
  std::string_view nearest;
};

void Expect(std::span<const Refusal> refusals) {
  for (const Refusal& c : refusals) {
    const Recipe recipe = ParseUnchecked(c.recipe);
    const std::string message = Message([&] { Validate(recipe); });
    const std::string begin = "[recipe] " + ToString(recipe) + " has no meaning: ";
    EXPECT_EQ(message.substr(0, begin.size() + c.reason.size()), begin + std::string(c.reason));
    const std::string end = "; the nearest that has one is " + std::string(c.nearest);
    const std::size_t at = message.rfind("; the nearest");
    EXPECT_EQ(at == std::string::npos ? "" : message.substr(at), end) << message;
  }
}

TEST(Validate, FunctionsAndOptimizersThatDoNotGoTogether) {
  constexpr Refusal kCases[] = {
      {"similarity(exponential) | linear | gradient", "one linear map serves all queries",
       "similarity(exponential) | polynomial(degree: 1) | exact"},
      {"uniform | polynomial | exact", "a polynomial around the query needs a similarity",
       "similarity(exponential) | polynomial(degree: 1) | exact"},
      {"uniform | kernel(none) | exact", "the function class kernel needs a kernel",
       "uniform | kernel(exponential) | exact"},
      {"uniform | kernel(inverse_distance) | exact", "the inverse distance is infinite at a hit",
       "uniform | kernel(exponential) | exact"},
      {"similarity(linear) | constant | exact",
       "the linear kernel is below 0 for half of all pairs",
       "similarity(exponential) | constant | exact"},
      {"uniform | kernel(linear) | gradient", "the linear kernel is below 0 for half of all pairs",
       "uniform | kernel(exponential) | gradient"},
      {"uniform | kernel(epanechnikov, bandwidth: 1) | exact", "a compact kernel is not positive",
       "similarity(epanechnikov, bandwidth: 1) | constant | exact"},
      {"similarity(gaussian) | constant | exact", "this kernel needs a bandwidth > 0",
       "similarity(gaussian, bandwidth: 1) | constant | exact"},
      {"uniform | network | exact", "a network is trained by sgd", "uniform | network | sgd"},
      {"similarity(exponential) | polynomial | gradient", "a local polynomial is solved exactly",
       "similarity(exponential) | polynomial(degree: 1) | exact"},
      {"similarity(exponential) | constant | sgd", "a weighted mean is solved exactly",
       "similarity(exponential) | constant | exact"},
      {"decay(scalar) | constant | exact", "a constant without similarity is one vector",
       "decay(scalar) | constant | gradient"},
      {"uniform | kernel(exponential) | sgd", "a regression in a kernel's space is solved exactly",
       "uniform | kernel(exponential) | exact"},
      {"uniform | kernel(exponential) | chebyshev(steps: 2, ridge: 1)",
       "a regression in a kernel's space is solved exactly, by gradient descent",
       "uniform | kernel(exponential) | exact(ridge: 1)"},
      {"uniform | kernel(biweight, bandwidth: 1) | gradient(steps: 2)",
       "a compact kernel is not positive definite",
       "similarity(biweight, bandwidth: 1) | constant | exact"},
      {"decay(scalar) | constant | gradient(steps: 2)", "a vector without keys",
       "decay(scalar) | constant | gradient"},
      {"uniform | linear | chebyshev(steps: 3)", "chebyshev needs a ridge > 0",
       "uniform | linear | chebyshev(steps: 3, ridge: 0.02)"},
  };
  Expect(kCases);
}

TEST(Validate, WeightsThatTheMemoryCannotHave) {
  constexpr Refusal kCases[] = {
      {"decay(scalar, phase) | linear | gradient", "phase turns the channels of decay(channel)",
       "decay(channel, phase) | linear | gradient"},
      {"decay(channel, phase) | linear | sgd", "a complex decay goes with one gradient step",
       "decay(channel) | linear | sgd"},
      {"decay(matrix) | linear | sgd",
       "a decay per entry of the memory goes with one gradient step",
       "decay(scalar) | linear | sgd"},
      {"decay(channel) | linear | exact",
       "a decay per key channel weighs no association as a whole",
       "decay(scalar) | linear | exact"},
      {"decay(channel) x similarity(exponential) | constant | exact",
       "a decay per key channel weighs no association as a whole",
       "decay(scalar) x similarity(exponential) | constant | exact"},
      {"decay(channel) | linear(features: taylor2) | gradient", "a decay per key channel needs",
       "decay(channel) | linear | gradient"},
      {"decay(channel) | affine | sgd", "a decay per key channel needs",
       "decay(channel) | linear | sgd"},
      {"decay(scalar) | network | sgd", "a network forgets by weight_decay",
       "uniform | network | sgd"},
      {"importance(input) | network | sgd", "a network weighs a pair by its step",
       "uniform | network | sgd"},
      {"importance(input) | linear | sgd", "sgd weighs a pair by its step",
       "uniform | linear | sgd"},
      {"importance(complement) | linear | gradient", "this importance is formed from the decay",
       "decay(channel) x importance(complement) | linear | gradient"},
      {"decay(channel) x importance(complement) | linear(features: elu1) | gradient",
       "this importance takes the place of the key",
       "decay(channel) x importance(complement) | linear | gradient"},
      {"decay(scalar) x importance(log) | linear | exact", "importance(log) goes with one gradient",
       "decay(scalar) x importance(input) | linear | exact"},
      {"window(4) | linear | gradient", "a window forgets single pairs",
       "uniform | linear | gradient"},
      {"decay(2) | linear | gradient", "decay must be one of none, retention, scalar, channel",
       "uniform | linear | gradient"},
      {"window(-1) x similarity(exponential) | constant | exact", "window must be a whole number",
       "similarity(exponential) | constant | exact"},
  };
  Expect(kCases);
}

TEST(Validate, StepsThatContradictEachOther) {
  constexpr Refusal kCases[] = {
      {"uniform | linear | gradient(steps: 0)", "steps must be a whole number >= 1",
       "uniform | linear | gradient"},
      {"uniform | linear | sgd(preconditioner: block_diagonal)",
       "the preconditioner of sgd is diagonal or of low rank",
       "uniform | linear | sgd(preconditioner: diagonal)"},
      {"uniform | linear | sgd(preconditioner: low_rank)",
       "a curvature of low rank has an inverse by its ridge",
       "uniform | linear | sgd(preconditioner: low_rank, ridge: 1)"},
      {"uniform | linear | conjugate_gradient(steps: 4, preconditioner: chunk_factor)",
       "chunk_factor is shared by the tokens of a chunk",
       "uniform | linear | conjugate_gradient(steps: 4, preconditioner: chunk_factor, tolerance: "
       "0.001)"},
      {"uniform | linear | gradient(steps: 4, preconditioner: chunk_factor)",
       "chunk_factor is shared by the tokens of a chunk",
       "uniform | linear | conjugate_gradient(steps: 4, preconditioner: chunk_factor, tolerance: "
       "0.001)"},
      {"uniform | linear | sgd(preconditioner: chunk_factor)",
       "the preconditioner of sgd is diagonal", "uniform | linear | sgd(preconditioner: diagonal)"},
      {"uniform | linear | sgd(step: longhorn, erase: erase_key)", "this step rule is derived",
       "uniform | linear | sgd(erase: erase_key)"},
      {"uniform | linear | sgd(erase: undecayed)",
       "erase: undecayed writes its value with step: one",
       "uniform | linear | sgd(step: one, erase: undecayed)"},
      {"uniform | linear | sgd(momentum: true, erase: gated_key)", "momentum sums gradients",
       "uniform | linear | sgd(erase: gated_key)"},
      {"uniform | linear | sgd(steps: 2, momentum: true)", "momentum is given once a token",
       "uniform | linear | sgd(steps: 2)"},
      {"uniform | linear | sgd(steps: 2, weight_decay: coupled)",
       "weight decay is given once a token", "uniform | linear | sgd(steps: 2)"},
      {"uniform | network | sgd(steps: 2)", "several steps a token are plain delta steps",
       "uniform | network | sgd"},
      {"uniform | network | sgd(momentum: true, mini_batch: 4, row_factor: inverse)",
       "a row factor scales the sum", "uniform | network | sgd(momentum: true, mini_batch: 4)"},
      {"uniform | network | sgd(momentum: true, adapt: adam, eps: 0.1, mini_batch: 4)",
       "steps adapted a weight are taken token by token",
       "uniform | network | sgd(eps: 0.1, momentum: true, adapt: adam)"},
      {"uniform | network | sgd(adapt: adam, eps: 0.1)", "adam averages gradients",
       "uniform | network | sgd(eps: 0.1, momentum: true, adapt: adam)"},
      {"uniform | network | sgd(momentum: true, adapt: adagrad, eps: 0.1)",
       "adagrad divides single gradients", "uniform | network | sgd(eps: 0.1, adapt: adagrad)"},
      {"uniform | network | sgd(adapt: adagrad)", "an adapted step needs an eps > 0",
       "uniform | network | sgd(eps: 1e-08, adapt: adagrad)"},
      {"uniform | linear(features: dpfp) | sgd(erase: erase_key)",
       "an erase key has the channels of k", "uniform | linear | sgd(erase: erase_key)"},
  };
  Expect(kCases);
}

TEST(Validate, ReadingThatTheMemoryDoesNotOffer) {
  constexpr Refusal kCases[] = {
      {"uniform | linear | sgd | reading(causal: false)", "a sequence of steps has no order-free",
       "uniform | linear | sgd"},
      {"uniform | linear | sgd | reading(read: batch_start)",
       "queries read where mini-batches begin or end",
       "uniform | linear | sgd | reading(read: before)"},
      {"uniform | network | sgd | reading(read: batch_end)",
       "queries read where mini-batches begin or end", "uniform | network | sgd"},
      {"uniform | linear | exact | reading(read: before, causal: false)",
       "read: before is about order", "uniform | linear | exact | reading(causal: false)"},
      {"decay(scalar) | constant | gradient | reading(causal: false)",
       "without queries every token", "decay(scalar) | constant | gradient"},
      {"uniform | linear | gradient | reading(bonus: true)",
       "a bonus stands in for the current token", "uniform | linear | gradient"},
      {"similarity(exponential) | constant | exact | reading(read: before, bonus: true)",
       "a bonus has the channels of k",
       "similarity(exponential) | constant | exact | reading(read: "
       "before)"},
      {"decay(channel, phase) | linear | gradient | reading(normalise_sum: sum)",
       "a sum of complex weights is no denominator", "decay(channel, phase) | linear | gradient"},
      {"decay(matrix) | linear | gradient | reading(normalise_sum: sum)", "under a decay per entry",
       "decay(matrix) | linear | gradient"},
      {"uniform | linear | gradient | reading(normalise_sum: stabilised)", "stabilised divides by",
       "uniform | linear | gradient | reading(normalise_sum: sum)"},
      {"uniform | linear | exact | reading(normalise_sum: sum)", "dividing by the sum of weights",
       "uniform | linear | exact"},
      {"decay(channel) | constant | gradient | reading(normalise_qk: true)",
       "this memory reads no keys", "decay(channel) | constant | gradient"},
      {"uniform | linear | sgd | reading(correction: 0.1)",
       "the correction of q is along erase_key", "uniform | linear | sgd"},
      {"similarity(gaussian, bandwidth: 2) | constant | exact | reading(scale: 2)",
       "scale multiplies q", "similarity(gaussian, bandwidth: 2) | constant | exact"},
  };
  Expect(kCases);
}

// Every option that some recipe cannot use is refused there when it says something, and no option
// slips through without a home: those that every recipe uses are listed here.
TEST(Validate, EveryOptionHasAHomeOrIsForAll) {
  const std::set<std::string_view> for_all = {"decay", "importance",  "function", "optimizer",
                                              "read",  "output_norm", "causal"};
  for (const OptionInfo& info : RecipeOptions()) {
    bool has_scope = false;
    for (const OptionScope& scope : OptionScopes()) has_scope |= scope.option == info.name;
    EXPECT_NE(has_scope, for_all.contains(info.name)) << info.name;
  }
}

TEST(Validate, RefusesWhatWouldBeIgnored) {
  constexpr Refusal kCases[] = {
      {"uniform | linear | sgd(adapt: adam)", "steps adapted a weight belong to networks",
       "uniform | linear | sgd"},
      {"uniform | linear | sgd(loss: dot_product)", "losses belong to networks",
       "uniform | linear | sgd"},
      {"uniform | network(gated: true) | sgd", "a gate stands between two weight matrices",
       "uniform | network | sgd"},
      {"uniform | linear | exact(steps: 3)", "an exact solution takes no steps",
       "uniform | linear | exact"},
      {"uniform | linear | sgd(ridge: 1)", "this optimizer has no ridge", "uniform | linear | sgd"},
      {"uniform | linear | gradient(ridge: 1)", "this optimizer has no ridge",
       "uniform | linear | gradient"},
      {"uniform | constant | gradient(eta_kind: relative)",
       "kinds of step sizes belong to gradient on a linear memory",
       "uniform | constant | gradient"},
      {"uniform | linear | gradient(steps: 4, eta_kind: input, preconditioner: diagonal)",
       "step sizes that are an input go without a preconditioner",
       "uniform | linear | gradient(steps: 4, eta_kind: input)"},
      {"uniform | linear | gradient(steps: 4, eta_kind: input, eta: 0.5)",
       "eta belongs to gradient and to sgd(step: nlms)",
       "uniform | linear | gradient(steps: 4, eta_kind: input)"},
      {"uniform | linear | exact(momentum: true)", "momentum belongs to sgd, and to gradient",
       "uniform | linear | exact"},
      {"uniform | linear | gradient(momentum: true)",
       "the first step of gradient descent has none before it", "uniform | linear | gradient"},
      {"uniform | linear | gradient(steps: 4, momentum: true, eta_kind: input)",
       "momentum of gradient descent goes with one step size",
       "uniform | linear | gradient(steps: 4, eta_kind: input)"},
      {"uniform | linear | gradient(weight_decay: coupled)", "weight decay belongs to sgd",
       "uniform | linear | gradient"},
      {"uniform | linear | exact(step: nlms)", "step rules belong to sgd",
       "uniform | linear | exact"},
      {"uniform | linear | exact(erase: erase_key)", "erase keys belong to sgd",
       "uniform | linear | exact"},
      {"uniform | linear | sgd(mini_batch: 4)", "mini-batches belong to networks",
       "uniform | linear | sgd"},
      {"uniform | linear | sgd(eta: 2)", "eta belongs to gradient", "uniform | linear | sgd"},
      {"uniform | linear(nu: 2) | sgd", "nu belongs to features: dpfp", "uniform | linear | sgd"},
      {"uniform | linear(seed: 2) | sgd", "seed belongs to random features",
       "uniform | linear | sgd"},
      {"uniform | network(seed: 2) | sgd", "seed belongs to random features",
       "uniform | network | sgd"},
      {"uniform | network(activation: gelu) | sgd", "activation stands between",
       "uniform | network | sgd"},
      {"similarity(exponential, bandwidth: 2) | constant | exact", "bandwidth belongs to",
       "similarity(exponential) | constant | exact"},
      {"uniform | linear | exact(tolerance: 1)", "tolerance belongs to conjugate_gradient",
       "uniform | linear | exact"},
      {"uniform | kernel(exponential) | exact(ridge: 1, ridge_kind: constant)", "kinds of ridge",
       "uniform | kernel(exponential) | exact(ridge: 1)"},
  };
  Expect(kCases);
}

TEST(Validate, NumbersThatTextCannotHold) {
  Recipe recipe;
  recipe.weights.decay_factor = 0.5;  // beside Decay::kNone
  EXPECT_NE(Message([&] { Validate(recipe); }), "");
  recipe = {};
  recipe.reading = {.scale = 2, .scale_rsqrt = true};
  EXPECT_NE(Message([&] { Validate(recipe); }), "");
  recipe = {};
  recipe.reading.scale = std::nan("");
  EXPECT_NE(Message([&] { Validate(recipe); }), "");
  recipe = {};
  recipe.function.features = static_cast<FeatureMap>(200);
  EXPECT_NE(Message([&] { Validate(recipe); }), "");
  EXPECT_EQ(NearestValid(recipe), Recipe());
}

TEST(Validate, AllowsWhatHasAMeaningBeyondTheZoo) {
  for (const std::string_view text : {
           "decay(retention) | affine | sgd(step: nlms, eta: 0.5, eps: 0.1)",
           "decay(scalar) | linear | sgd(momentum: true, weight_decay: coupled)",
           "decay(channel) | linear | sgd(steps: 3)",
           "decay(scalar) | linear(features: taylor2) | sgd(step: longhorn)",
           "decay(channel) x importance(root_complement) | linear | gradient",
           "decay(0.9) | constant | gradient",
           "decay(retention) x importance(input) | linear | conjugate_gradient(steps: 5, "
           "preconditioner: diagonal, ridge: 0.1, tolerance: 1e-06)",
           "decay(scalar) | linear | gradient(steps: 3, eta: 0.1, preconditioner: block_diagonal, "
           "block: 4, ridge: 1)",
           "decay(scalar) x importance(log) x window(8) x similarity(gaussian, bandwidth: 2) | "
           "polynomial(degree: 2) | exact(ridge: 0.1)",
           "decay(scalar) x importance(input) x window(8) | kernel(laplace, bandwidth: 2) | "
           "exact(ridge: 0.1) | reading(read: before)",
           "uniform | kernel(triweight, bandwidth: 2) | gradient | reading(output_norm: rms)",
           "similarity(exponential) | constant | exact | reading(normalise_qk: true, scale: 4, "
           "causal: false)",
           "uniform | linear(features: elu1) | gradient | reading(normalise_sum: sum, causal: "
           "false)",
           "importance(input) | linear | gradient | reading(read: before, bonus: true, "
           "normalise_sum: sum)",
           "uniform | network(depth: 3, residual: true) | sgd(weight_decay: coupled, mini_batch: "
           "4) "
           "| reading(read: before)",
       }) {
    EXPECT_EQ(Message([&] { EXPECT_EQ(ToString(ParseRecipe(text)), text); }), "");
  }
}

// No rule is hidden behind the others: each is the first that some recipe breaks.
TEST(Validate, EveryRuleIsReached) {
  RandomRecipes random(9);
  std::set<std::string_view> reached;
  for (int i = 0; i < 12000; ++i) {
    Recipe recipe = random.Next();
    for (int mended = 0; mended < 10; ++mended) {
      const Rule* broken = nullptr;
      for (const Rule& rule : PairRules()) {
        if (broken == nullptr && rule.broken(recipe)) broken = &rule;
      }
      if (broken == nullptr) break;
      reached.insert(broken->reason);
      broken->fix(recipe);
    }
  }
  for (const Rule& rule : PairRules()) EXPECT_TRUE(reached.contains(rule.reason)) << rule.reason;
}

TEST(Validate, TheNearestRecipeOfAnyHasAMeaning) {
  RandomRecipes random(6);
  int refused = 0;
  for (int i = 0; i < 12000; ++i) {
    const Recipe recipe = random.Next();
    const Recipe nearest = NearestValid(recipe);
    const bool has_meaning = Message([&] { Validate(recipe); }).empty();
    EXPECT_EQ(has_meaning, nearest == recipe) << ToString(recipe);
    ASSERT_EQ(Message([&] { Validate(nearest); }), "");
    refused += has_meaning ? 0 : 1;
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace ttr
