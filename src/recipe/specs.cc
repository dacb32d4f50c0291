// The inputs of a recipe and their shapes, derived from its values.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "src/recipe/family.h"
#include "src/recipe/feature_maps.h"
#include "ttr/inputs.h"

namespace ttr {
namespace {

using Shapes = std::vector<std::vector<Axis>>;

// Name, member, range, typical numbers, neutral value; true: of one pair. Nothing of the current
// token is in what is read before it, no channel turns, exp(0) is a weight of 1: a neutral value
// takes the input out of the layer's formula.
constexpr InputField kFields[] = {
    {"q", &Inputs::q, Range::kAny, Typical::kKeys, {}},
    {"k", &Inputs::k, Range::kAny, Typical::kKeys, {}, true},
    {"v", &Inputs::v, Range::kAny, Typical::kNormal, {}, true},
    {"v_im", &Inputs::v_im, Range::kAny, Typical::kNormal, 0, true},
    {"log_decay", &Inputs::log_decay, Range::kNonPositive, Typical::kHalving, 0},
    {"phase", &Inputs::phase, Range::kAny, Typical::kNormal, 0},
    {"dt", &Inputs::dt, Range::kNonNegative, Typical::kUnit, 1},
    {"a", &Inputs::a, Range::kNonPositive, Typical::kMinus, 0},
    {"step", &Inputs::step, Range::kNonNegative, Typical::kUnit, {}},
    {"importance", &Inputs::importance, Range::kNonNegative, Typical::kUnit, 1},
    {"log_importance", &Inputs::log_importance, Range::kAny, Typical::kNormal, 0},
    {"pair_bias", &Inputs::pair_bias, Range::kAny, Typical::kNormal, 0},
    {"erase_key", &Inputs::erase_key, Range::kAny, Typical::kKeys, {}, true},
    {"erase_gate", &Inputs::erase_gate, Range::kAny, Typical::kUnit, 1, true},
    {"bonus", &Inputs::bonus, Range::kAny, Typical::kKeys, 0},
    {"momentum", &Inputs::momentum, Range::kAny, Typical::kHalf, 0},
    {"weight_decay", &Inputs::weight_decay, Range::kNonNegative, Typical::kHalf, 0},
    {"ridge", &Inputs::ridge, Range::kNonNegative, Typical::kUnit, {}},
    {"bandwidth", &Inputs::bandwidth, Range::kNonNegative, Typical::kOneUp, {}},
    {"features.w", &Inputs::features_w, Range::kAny, Typical::kKeys, {}},
    {"features.b", &Inputs::features_b, Range::kAny, Typical::kKeys, {}},
    {"ln_weight", &Inputs::ln_weight, Range::kAny, Typical::kNormal, 1},
    {"ln_bias", &Inputs::ln_bias, Range::kAny, Typical::kNormal, 0},
    {"row_bias", &Inputs::row_bias, Range::kAny, Typical::kSmall, 0},
    {"cu_seqlens", &Inputs::cu_seqlens, Range::kAny, Typical::kKeys, {}},
};

// The second axis of k, v and step: rows of their own where a token takes several pairs.
Axis PairAxis(const Recipe& recipe) {
  const bool several = recipe.optimizer.solver == Solver::kSgd && recipe.optimizer.steps > 1;
  return several ? Axis::kRows : Axis::kTokens;
}

enum class Presence { kRequired, kOptional };
constexpr auto kRequired = Presence::kRequired;
constexpr auto kOptional = Presence::kOptional;

class Collector {
 public:
  void Add(std::string_view name, Shapes shapes, Presence presence, std::string_view meaning) {
    const auto field = std::find_if(std::begin(kFields), std::end(kFields),
                                    [&](const InputField& f) { return f.name == name; });
    std::vector<InputSpec>& specs = presence == kRequired ? required_ : optional_;
    specs.push_back({*field, std::move(shapes), presence == kRequired, meaning});
  }

  void AddOfQuery(std::string_view name, std::vector<Axis> shape, std::string_view meaning) {
    Add(name, {std::move(shape)}, kRequired, meaning);
    required_.back().of_query = true;
  }

  std::vector<InputSpec> RequiredFirst() {
    std::vector<InputSpec> specs = std::move(required_);
    std::move(optional_.begin(), optional_.end(), std::back_inserter(specs));
    return specs;
  }

 private:
  std::vector<InputSpec> required_;
  std::vector<InputSpec> optional_;
};

void AddPairs(const Recipe& recipe, Collector& specs) {
  using enum Axis;
  if (FamilyOf(recipe) == Family::kGatedVector) {
    specs.Add("v", {{kBatch, kTokens, kHeads, kValueDim}}, kRequired, "values");
    if (recipe.weights.phase) {
      specs.Add("v_im", {{kBatch, kTokens, kHeads, kValueDim}}, kOptional,
                "imaginary part of the values");
    }
    return;
  }
  const Axis rows = PairAxis(recipe);
  specs.AddOfQuery("q", {kBatch, kTokens, kQueryHeads, kKeyDim}, "queries");
  if (ReadsKeys(recipe)) {
    specs.Add("k", {{kBatch, rows, kKeyHeads, kKeyDim}}, kRequired, "keys");
  }
  specs.Add("v", {{kBatch, rows, kValueHeads, kValueDim}}, kRequired, "values");
}

void AddWeights(const Recipe& recipe, Collector& specs) {
  using enum Axis;
  const Weights& weights = recipe.weights;
  const Axis channel = FamilyOf(recipe) == Family::kGatedVector ? kValueDim : kKeyDim;
  if (weights.decay == Decay::kScalar) {
    specs.Add("log_decay", {{kBatch, kTokens, kHeads}}, kRequired,
              "logarithm of the forgetting factor; -inf forgets all");
  }
  if (weights.decay == Decay::kChannel) {
    specs.Add("log_decay", {{kBatch, kTokens, kHeads, channel}}, kRequired,
              "logarithm of the forgetting factor of each channel; -inf forgets all");
  }
  if (weights.phase) {
    specs.Add("phase", {{kBatch, kTokens, kHeads, channel}}, kRequired,
              "angle of the complex decay");
  }
  if (weights.decay == Decay::kMatrix) {
    specs.Add("dt", {{kBatch, kTokens, kHeads, kValueDim}}, kRequired,
              "time step: the memory's entries decay by exp(dt a)");
    specs.Add("a", {{kHeads, kValueDim, kKeyDim}}, kRequired, "rates of the decay exp(dt a)");
  }
  if (weights.importance == Importance::kInput) {
    specs.Add("importance", {{kBatch, kTokens, kHeads}}, kOptional,
              "weight of this association (1)");
  }
  if (weights.importance == Importance::kLog) {
    specs.Add("log_importance", {{kBatch, kTokens, kHeads}}, kRequired,
              "logarithm of the weight of this association");
  }
  if (weights.pair_bias == PairBias::kInput) {
    specs.AddOfQuery("pair_bias", {kBatch, kTokens, kQueryHeads, kPairs},
                     "added to the logarithm of the weight of pair s for this query; -inf: none");
  }
}

void AddFeatures(const Recipe& recipe, Collector& specs) {
  using enum Axis;
  const Shapes rows = {{kHeads, kFeatures, kKeyDim}};
  switch (recipe.function.features) {
    case FeatureMap::kT2r:
      specs.Add("features.w", rows, kRequired, "W of relu(W x + b)");
      specs.Add("features.b", {{kHeads, kFeatures}}, kOptional, "b of relu(W x + b) (0)");
      break;
    case FeatureMap::kHedgehogExp:
    case FeatureMap::kHedgehogSoftmax:
      specs.Add("features.w", rows, kRequired, "W of the feature map");
      break;
    case FeatureMap::kRebased:
      specs.Add("features.w", {{kHeads, kOne, kKeyDim}}, kOptional, "scale of the layer norm (1)");
      specs.Add("features.b", {{kHeads, kKeyDim}}, kOptional, "shift of the layer norm (0)");
      break;
    case FeatureMap::kDijiang:
      specs.Add("features.w", rows, kOptional, "directions (drawn from the seed)");
      specs.Add("features.b", {{kHeads, kFeatures}}, kOptional,
                "logarithms of the weights of the directions (0)");
      break;
    case FeatureMap::kRfa:
    case FeatureMap::kFavor:
      specs.Add("features.w", rows, kOptional, "directions (drawn from the seed)");
      break;
    default: break;
  }
}

void AddSgd(const Recipe& recipe, Collector& specs) {
  using enum Axis;
  const Optimizer& optimizer = recipe.optimizer;
  if (optimizer.step != StepRule::kNlms && optimizer.step != StepRule::kOne) {
    specs.Add("step", {{kBatch, PairAxis(recipe), kHeads}}, kRequired, "step size");
  }
  const std::vector<Axis> per_channel = {kBatch, kTokens, kHeads, kKeyDim};
  if (optimizer.erase == Erase::kEraseKey || optimizer.erase == Erase::kUndecayed) {
    specs.Add("erase_key", {per_channel}, kRequired, "the key along which the memory erases");
  }
  if (optimizer.erase == Erase::kGatedKey || optimizer.erase == Erase::kUndecayed) {
    specs.Add("erase_gate", {per_channel}, kRequired, "how much each channel of the key erases");
  }
  if (optimizer.momentum) {
    specs.Add("momentum", {{kBatch, kTokens, kHeads}}, kRequired,
              "share of the last update that is kept");
  }
  if (optimizer.weight_decay != WeightDecay::kNone) {
    specs.Add("weight_decay", {{kBatch, kTokens, kHeads}}, kRequired, "shrinking of the memory");
  }
}

void AddGradientDescent(const Recipe& recipe, Collector& specs) {
  using enum Axis;
  if (recipe.optimizer.eta_kind == EtaKind::kInput) {
    specs.AddOfQuery("step", {kBatch, kTokens, kHeads, kSteps},
                     "sizes of the steps of gradient descent");
  }
  if (recipe.optimizer.momentum) {
    specs.AddOfQuery("momentum", {kBatch, kTokens, kHeads},
                     "share of the last step of gradient descent that is kept");
  }
}

void AddNetwork(const Recipe& recipe, Collector& specs) {
  using enum Axis;
  if (recipe.function.norm) {
    specs.Add("ln_weight", {{kHeads, kValueDim}}, kOptional, "scale of the layer norm (1)");
    specs.Add("ln_bias", {{kHeads, kValueDim}}, kOptional, "shift of the layer norm (0)");
  }
  if (recipe.optimizer.row_factor == RowFactor::kInverse) {
    specs.Add("row_bias", {{kHeads, kMiniBatch}}, kOptional, "added to the row factor 1/(i+1) (0)");
  }
}

void AddRidge(const Recipe& recipe, Collector& specs) {
  using enum Axis;
  Shapes shapes = {{kHeads}};
  const bool per_channel = FamilyOf(recipe) == Family::kLeastSquares &&
                           recipe.optimizer.ridge_kind != RidgeKind::kRelative &&
                           KeepsKeyDim(recipe.function.features);
  if (per_channel) shapes.push_back({kHeads, kKeyDim});
  specs.Add("ridge", std::move(shapes), kOptional, "takes the place of the recipe's ridge");
}

/// Is the input the weight of a pair? That is a step of sgd and networks, and else an importance,
/// or the complement 1 - g of a decay, which is zero where nothing fades.
bool IsWeight(const Recipe& recipe, std::string_view name) {
  const Importance importance = recipe.weights.importance;
  const bool complement =
      importance == Importance::kComplement || importance == Importance::kRootComplement;
  if (recipe.optimizer.solver == Solver::kSgd) return name == "step";
  if (complement && FamilyOf(recipe) == Family::kHebbian) return name == "log_decay";
  return name == "importance" || name == "log_importance";
}

void AddWeighed(const Recipe& recipe, std::vector<InputSpec>& specs) {
  const Optimizer& optimizer = recipe.optimizer;
  const bool sgd = optimizer.solver == Solver::kSgd;
  // RWKV-7 erases along its gate (.) kappa, whatever the step.
  const bool undecayed = sgd && optimizer.erase == Erase::kUndecayed;
  const bool shrinks = sgd && optimizer.weight_decay == WeightDecay::kCoupled;  // 1 - b lambda
  for (InputSpec& spec : specs) {
    if (spec.name == "log_importance") spec.weightless = -std::numeric_limits<double>::infinity();
    if (undecayed && spec.name == "erase_gate") spec.weighs = {&Inputs::erase_key};
    if (!IsWeight(recipe, spec.name)) continue;
    for (const InputSpec& other : specs) {
      const bool erases = other.name == "erase_key" || other.name == "erase_gate";
      const bool weighed = other.of_pair && !(undecayed && erases);
      if (weighed || (shrinks && other.name == "weight_decay")) spec.weighs.push_back(other.view);
    }
  }
}

}  // namespace

std::span<const InputField> InputFields() { return kFields; }

std::string_view Name(Axis axis) {
  switch (axis) {
    case Axis::kBatch: return "B";
    case Axis::kTokens: return "T";
    case Axis::kRows: return "T n";
    case Axis::kQueryHeads: return "Hq";
    case Axis::kKeyHeads: return "Hk";
    case Axis::kValueHeads: return "Hv";
    case Axis::kHeads: return "H";
    case Axis::kKeyDim: return "Dk";
    case Axis::kValueDim: return "Dv";
    case Axis::kPhiDim: return "Dphi";
    case Axis::kFeatures: return "F";
    case Axis::kOne: return "1";
    case Axis::kMiniBatch: return "mini_batch";
    case Axis::kSteps: return "n";
    case Axis::kHidden: return "hidden";
    case Axis::kGatedHidden: return "2 hidden";
    case Axis::kSequencesPlus1: return "N+1";
    case Axis::kBudget: return "budget";
    case Axis::kRank: return "rank";
    case Axis::kStates: return "N";
    case Axis::kPairs: return "S";
  }
  return "?";
}

std::vector<InputSpec> InputSpecs(const Recipe& recipe) {
  using enum Axis;
  Collector specs;
  AddPairs(recipe, specs);
  AddWeights(recipe, specs);
  if (recipe.optimizer.solver == Solver::kSgd) AddSgd(recipe, specs);
  if (recipe.reading.bonus) {
    specs.Add("bonus", {{kHeads, kKeyDim}}, kRequired, "extra weight of the current token");
  }
  AddFeatures(recipe, specs);
  if (FamilyOf(recipe) == Family::kNetwork) AddNetwork(recipe, specs);
  if (recipe.optimizer.solver == Solver::kGradient) AddGradientDescent(recipe, specs);
  if (HasRidge(recipe)) AddRidge(recipe, specs);
  if (HasBandwidth(recipe.similarity.kernel)) {
    specs.Add("bandwidth", {{kHeads}}, kOptional, "takes the place of the recipe's bandwidth");
  }
  specs.Add("cu_seqlens", {{kSequencesPlus1}}, kOptional,
            "first token of each packed sequence, and T (B = 1, int64)");
  std::vector<InputSpec> found = specs.RequiredFirst();
  AddWeighed(recipe, found);
  return found;
}

std::int64_t PhiDim(const Recipe& recipe, const Dims& dims) {
  const bool affine = recipe.function.kind == FunctionClass::kAffine;
  if (!affine && recipe.function.kind != FunctionClass::kLinear) return dims.key_dim;
  return FeatureDim(recipe.function, dims.key_dim, dims.features) + (affine ? 1 : 0);
}

}  // namespace ttr
