// What the memory of a recipe consists of.
#include <string>
#include <string_view>

#include "src/recipe/family.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {
namespace {

using Specs = std::vector<StateSpec>;

// Entries in which a call computes.
constexpr std::string_view kMemory = "state", kKeys = "state.k", kValues = "state.v";
constexpr std::string_view kFirstWeights = "state.w1";

constexpr Axis kN = Axis::kStates;
constexpr Axis kH = Axis::kHeads;
constexpr Axis kPhi = Axis::kPhiDim;
constexpr Axis kDv = Axis::kValueDim;

void AddHebbian(const Recipe& recipe, Specs& specs) {
  specs.push_back({.name = std::string(kMemory),
                   .shape = {kN, kH, kPhi, kDv},
                   .meaning = "the memory, M transposed",
                   .role = EntryRole::kWrittenMatrix});
  if (recipe.weights.phase) {
    specs.push_back({"state.im", {kN, kH, kPhi, kDv}, "its imaginary part"});
  }
  if (recipe.reading.normalise_sum != NormaliseSum::kNone) {
    specs.push_back({"state.n", {kN, kH, kPhi}, "the weighted sum of the keys"});
  }
  if (recipe.weights.importance == Importance::kLog) {
    specs.push_back({.name = "state.m",
                     .shape = {kN, kH},
                     .meaning = "running maximum of the log-weights: what is kept of the "
                                "memory and the sum is divided by its exponential",
                     .role = EntryRole::kMaximum});
  }
}

void AddGatedVector(const Recipe& recipe, Specs& specs) {
  specs.push_back({"state", {kN, kH, kDv}, "h"});
  if (recipe.weights.phase) specs.push_back({"state.im", {kN, kH, kDv}, "its imaginary part"});
}

void AddSgd(const Recipe& recipe, Specs& specs) {
  specs.push_back({.name = std::string(kMemory),
                   .shape = {kN, kH, kPhi, kDv},
                   .meaning = "the memory, M transposed",
                   .role = EntryRole::kWrittenMatrix});
  if (recipe.optimizer.momentum) {
    specs.push_back({"state.momentum", {kN, kH, kPhi, kDv}, "the last update"});
  }
  if (HasLowRankCurvature(recipe)) {
    specs.push_back({"state.u",
                     {kN, kH, Axis::kRank, kPhi},
                     "U, orthogonal rows, the longest first, each with its largest entry above 0: "
                     "the curvature "
                     "is U^T U"});
  } else if (recipe.optimizer.preconditioner != Preconditioner::kNone) {
    specs.push_back({"state.d", {kN, kH, kPhi}, "diagonal curvature"});
  }
}

void AddRotatedLeastSquares(const Recipe& recipe, Specs& specs) {
  specs.push_back({"state", {kN, kH, kPhi, kDv}, "W, the values in the rows of L: B = L^T D W"});
  specs.push_back(
      {"state.r",
       {kN, kH, kPhi, kPhi},
       recipe.optimizer.ridge_kind == RidgeKind::kFading
           ? "L, a unit triangle, below its diagonal, on which D is: R = D^1/2 L has R^T "
             "R = A, the weighted Gram matrix of the keys, with the fading ridge"
           : "L, a unit triangle, below its diagonal, on which D is: R = D^1/2 L has R^T "
             "R = H, the weighted Gram matrix of the keys"});
  specs.push_back({"state.rss", {kN, kH, kDv}, "the least weighted sum of squares of each value"});
}

void AddLeastSquares(const Recipe& recipe, Specs& specs) {
  if (IsRotated(recipe)) return AddRotatedLeastSquares(recipe, specs);
  const bool fading = recipe.optimizer.ridge_kind == RidgeKind::kFading && HasRidge(recipe);
  specs.push_back({"state", {kN, kH, kPhi, kDv}, "B transposed: the weighted sum of k v^T"});
  specs.push_back({"state.a",
                   {kN, kH, kPhi, kPhi},
                   fading ? "A: the weighted Gram matrix of the keys, with the fading ridge"
                          : "H: the weighted Gram matrix of the keys"});
}

void AddPairs(const Recipe& recipe, Specs& specs) {
  constexpr Axis kS = Axis::kPairs;
  const auto rows = [&](std::string_view name, Axis columns, std::string_view meaning) {
    specs.push_back({.name = std::string(name),
                     .shape = {kN, kS, kH, columns},
                     .meaning = meaning,
                     .role = EntryRole::kPairs});
  };
  rows(kKeys, Axis::kKeyDim, "the keys, oldest first");
  rows(kValues, kDv, "the values");
  if (recipe.weights.decay != Decay::kNone || recipe.weights.importance != Importance::kNone) {
    specs.push_back({.name = "state.log_weight",
                     .shape = {kN, kS, kH},
                     .meaning = "logarithms of the weights",
                     .role = EntryRole::kPairWeight});
  }
  specs.push_back({.name = "state.length",
                   .shape = {kN, kH},
                   .meaning = "number of valid pairs; what follows is padding",
                   .role = EntryRole::kPairCount});
}

void AddDictionary(Specs& specs) {
  constexpr Axis kBudget = Axis::kBudget;
  specs.push_back({"state", {kN, kH, kBudget, kDv}, "E = R^-T B: the rotated values"});
  specs.push_back({"state.r",
                   {kN, kH, kBudget, kBudget},
                   "R, upper triangular: R^T R = A, the weighted Gram matrix of the keys' "
                   "coordinates, with the ridge; columns of long keys in the units of state.l"});
  specs.push_back({"state.keys",
                   {kN, kH, kBudget, Axis::kKeyDim},
                   "D, the dictionary, oldest first: keys whose span the regression is in"});
  specs.push_back({"state.l",
                   {kN, kH, kBudget, kBudget},
                   "L, lower triangular: L L^T = s(D, D); coordinates are L^-1 s(D, k); the row of "
                   "a key with s(d, d) > 2^32 in units of -sqrt(s(d, d))"});
  specs.push_back({"state.count", {kN, kH}, "keys of the dictionary so far", EntryRole::kKeyCount});
}

void AddNetwork(const Recipe& recipe, Specs& specs) {
  const Optimizer& optimizer = recipe.optimizer;
  const bool batches = optimizer.mini_batch > 1;
  const bool adam = optimizer.adapt == Adapt::kAdam, adapts = optimizer.adapt != Adapt::kNone;
  const bool carries = adapts || optimizer.momentum || optimizer.weight_decay != WeightDecay::kNone;
  const auto add = [&](const std::string& prefix, std::string_view weights, std::string_view biases,
                       EntryRole role = EntryRole::kMemory) {
    for (std::int64_t i = 1; i <= recipe.function.depth; ++i) {
      const Axis in = i == 1 ? Axis::kKeyDim : Axis::kHidden;
      const Axis hidden = recipe.function.gated ? Axis::kGatedHidden : Axis::kHidden;
      const Axis out = i == recipe.function.depth ? kDv : hidden;
      specs.push_back({prefix + "w" + std::to_string(i), {kN, kH, in, out}, weights, role});
      if (recipe.function.bias) {
        specs.push_back({prefix + "b" + std::to_string(i), {kN, kH, out}, biases, role});
      }
    }
  };
  add("state.",
      batches && !carries ? "weights where the mini-batch began, input first"
                          : "weights, input first",
      "biases", EntryRole::kParameters);
  if (batches)
    specs.push_back(
        {"state.position", {kN, kH}, "tokens of the mini-batch so far", EntryRole::kPosition});
  if (batches && !carries) {
    add("state.g_", "sum of step times gradient in this mini-batch", "the same of the biases",
        EntryRole::kMiniBatch);
  }
  if (optimizer.momentum) {
    add("state.s_", adam ? "the mean gradient" : "the last update", "the same of the biases");
  }
  if (adapts) {
    add("state.squares_", adam ? "the mean squared gradient" : "the sum of squared gradients",
        "the same of the biases");
  }
  if (batches && carries) {
    add("state.anchor_", "weights where the mini-batch began", "biases where it began",
        EntryRole::kMiniBatch);
  }
}

}  // namespace

std::vector<StateSpec> StateSpecs(const Recipe& recipe) {
  Specs specs;
  if (!recipe.reading.causal) return specs;
  switch (FamilyOf(recipe)) {
    case Family::kHebbian: AddHebbian(recipe, specs); break;
    case Family::kGatedVector: AddGatedVector(recipe, specs); break;
    case Family::kSgd: AddSgd(recipe, specs); break;
    case Family::kLeastSquares: AddLeastSquares(recipe, specs); break;
    case Family::kKernelDescent:
    case Family::kKernelRegression:
      HasBudget(recipe) ? AddDictionary(specs) : AddPairs(recipe, specs);
      break;
    case Family::kKernelSmoother:
    case Family::kLocalPolynomial: AddPairs(recipe, specs); break;
    case Family::kNetwork: AddNetwork(recipe, specs); break;
  }
  if (recipe.function.features == FeatureMap::kCosformer) {
    specs.push_back({"state.position", {kN, kH}, "tokens so far", EntryRole::kPosition});
  }
  return specs;
}

DType ArithmeticType(const Inputs& inputs, const State& state) {
  const auto is_wide = [](const TensorView& view) {
    return view.defined() && view.dtype() == DType::kFloat64;
  };
  bool carried = false, wide = false;
  for (const State::Entry& entry : state.entries()) {
    const std::string_view name = entry.name;
    if (name != kMemory && name != kKeys && name != kValues && name != kFirstWeights) continue;
    carried = true;
    wide = wide || is_wide(entry.view);
  }
  if (!carried) wide = is_wide(inputs.v.defined() ? inputs.v : inputs.q);
  return wide ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace ttr
