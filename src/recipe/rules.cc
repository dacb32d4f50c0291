// Pairs of choices that contradict each other, with the reason and what fixes them.
#include "src/recipe/rules.h"

#include <iterator>
#include <vector>

#include "src/recipe/family.h"

namespace ttr {
namespace {

using R = const Recipe&;

bool IsFunction(R r, FunctionClass kind) { return r.function.kind == kind; }
bool IsSolver(R r, Solver solver) { return r.optimizer.solver == solver; }
bool IsFamily(R r, Family family) { return FamilyOf(r) == family; }
bool IsDecay(R r, Decay decay) { return r.weights.decay == decay; }
bool IsImportance(R r, Importance importance) { return r.weights.importance == importance; }
bool HasPreconditioner(R r) { return r.optimizer.preconditioner != Preconditioner::kNone; }
bool HasOwnErasure(R r) { return FamilyOf(r) == Family::kSgd && r.optimizer.erase != Erase::kKey; }
bool IsFadedKey(R r) {
  return IsImportance(r, Importance::kComplement) || IsImportance(r, Importance::kRootComplement);
}
// Is phi(k) as long as k, channel by channel?
bool KeepsChannels(R r) {
  return KeepsKeyDim(r.function.features) && !IsFunction(r, FunctionClass::kAffine);
}
bool IsCompact(Kernel kernel) {
  return kernel == Kernel::kEpanechnikov || kernel == Kernel::kBiweight ||
         kernel == Kernel::kTriweight;
}

bool HasMomentumOfDescent(R r) { return IsSolver(r, Solver::kGradient) && r.optimizer.momentum; }

bool IsRegressionOfKernel(R r) {
  return IsFamily(r, Family::kKernelRegression) || IsFamily(r, Family::kKernelDescent);
}

// Is its linear system approached by steps?
bool IsLeastSquaresIteration(R r) {
  return IsFamily(r, Family::kLeastSquares) && !IsSolver(r, Solver::kExact);
}

void NoDecay(Recipe& r) {
  r.weights.decay = Decay::kNone;
  r.weights.decay_factor = 1;
  r.weights.phase = false;
}
void ScalarDecay(Recipe& r) {
  NoDecay(r);
  r.weights.decay = Decay::kScalar;
}
void ChannelDecay(Recipe& r) {
  NoDecay(r);
  r.weights.decay = Decay::kChannel;
}
void NoPhase(Recipe& r) { r.weights.phase = false; }
void NoImportance(Recipe& r) { r.weights.importance = Importance::kNone; }
void NoNormaliser(Recipe& r) { r.reading.normalise_sum = NormaliseSum::kNone; }
void NoPreconditioner(Recipe& r) { r.optimizer.preconditioner = Preconditioner::kNone; }
void NoBonus(Recipe& r) { r.reading.bonus = false; }
void NoMomentum(Recipe& r) { r.optimizer.momentum = false; }
void NoWeightDecay(Recipe& r) { r.optimizer.weight_decay = WeightDecay::kNone; }
void OneStep(Recipe& r) { r.optimizer.steps = 1; }
void StepInput(Recipe& r) { r.optimizer.step = StepRule::kInput; }
void Exact(Recipe& r) { r.optimizer.solver = Solver::kExact; }
void Gradient(Recipe& r) { r.optimizer.solver = Solver::kGradient; }
void Causal(Recipe& r) { r.reading.causal = true; }
void Exponential(Recipe& r) { r.similarity.kernel = Kernel::kExponential; }
void PlainKeys(Recipe& r) {
  r.function.features = FeatureMap::kNone;
  if (r.function.kind == FunctionClass::kAffine) r.function.kind = FunctionClass::kLinear;
}

constexpr Rule kRules[] = {
    // The function class, its kernel and its optimizer.
    {[](R r) {
       return (IsFunction(r, FunctionClass::kLinear) || IsFunction(r, FunctionClass::kAffine)) &&
              r.similarity.kernel != Kernel::kNone;
     },
     "one linear map serves all queries, so no similarity to one of them can weigh its pairs; "
     "around every query it is a polynomial of degree 1",
     [](Recipe& r) {
       r.function = {.kind = FunctionClass::kPolynomial};
       r.optimizer.solver = Solver::kExact;
     }},
    {[](R r) {
       return IsFunction(r, FunctionClass::kPolynomial) && r.similarity.kernel == Kernel::kNone;
     },
     "a polynomial around the query needs a similarity that says what is near", Exponential},
    {[](R r) {
       return IsFunction(r, FunctionClass::kKernel) && r.similarity.kernel == Kernel::kNone;
     },
     "the function class kernel needs a kernel", Exponential},
    {[](R r) {
       return IsFunction(r, FunctionClass::kKernel) &&
              r.similarity.kernel == Kernel::kInverseDistance;
     },
     "the inverse distance is infinite at a hit, so it spans no space of functions", Exponential},
    {[](R r) { return IsRegressionOfKernel(r) && IsCompact(r.similarity.kernel); },
     "a compact kernel is not positive definite, so there is no regression in its space; it can "
     "weigh pairs around the query",
     [](Recipe& r) { r.function = {.kind = FunctionClass::kConstant}; }},
    {[](R r) { return r.similarity.kernel == Kernel::kLinear && !IsRegressionOfKernel(r); },
     "the linear kernel is below 0 for half of all pairs, so it weighs none; it spans the "
     "functions of a regression (kernel | exact)",
     Exponential},
    {[](R r) { return HasBandwidth(r.similarity.kernel) && r.similarity.bandwidth <= 0; },
     "this kernel needs a bandwidth > 0", [](Recipe& r) { r.similarity.bandwidth = 1; }},
    {[](R r) { return IsFunction(r, FunctionClass::kNetwork) && !IsSolver(r, Solver::kSgd); },
     "a network is trained by sgd", [](Recipe& r) { r.optimizer.solver = Solver::kSgd; }},
    {[](R r) { return IsFunction(r, FunctionClass::kPolynomial) && !IsSolver(r, Solver::kExact); },
     "a local polynomial is solved exactly", Exact},
    {[](R r) {
       return IsFunction(r, FunctionClass::kConstant) && r.similarity.kernel != Kernel::kNone &&
              !IsSolver(r, Solver::kExact);
     },
     "a weighted mean is solved exactly", Exact},
    {[](R r) { return IsFamily(r, Family::kGatedVector) && !IsSolver(r, Solver::kGradient); },
     "a constant without similarity is one vector, written by one gradient step", Gradient},
    {[](R r) {
       return IsFunction(r, FunctionClass::kKernel) &&
              (IsSolver(r, Solver::kSgd) || IsSolver(r, Solver::kChebyshev));
     },
     "a regression in a kernel's space is solved exactly, by gradient descent or by conjugate "
     "gradients",
     Exact},
    {[](R r) { return r.optimizer.steps != 1 && IsFamily(r, Family::kGatedVector); },
     "a vector without keys has one gradient step, from 0", OneStep},
    {[](R r) {
       return r.optimizer.eta_kind == EtaKind::kInput &&
              r.optimizer.preconditioner != Preconditioner::kNone;
     },
     "step sizes that are an input go without a preconditioner",
     [](Recipe& r) { r.optimizer.preconditioner = Preconditioner::kNone; }},
    {[](R r) { return HasMomentumOfDescent(r) && r.optimizer.steps == 1; },
     "the first step of gradient descent has none before it to keep a share of", NoMomentum},
    {[](R r) {
       return HasMomentumOfDescent(r) && (r.optimizer.eta_kind == EtaKind::kInput ||
                                          r.optimizer.preconditioner != Preconditioner::kNone);
     },
     "momentum of gradient descent goes with one step size for all steps, without a preconditioner",
     NoMomentum},
    {[](R r) { return IsSolver(r, Solver::kChebyshev) && r.optimizer.ridge <= 0; },
     "chebyshev needs a ridge > 0, which bounds its eigenvalues from below",
     [](Recipe& r) { r.optimizer.ridge = 0.02; }},
    {[](R r) {
       return IsLeastSquaresIteration(r) &&
              r.optimizer.preconditioner == Preconditioner::kChunkFactor &&
              !(IsSolver(r, Solver::kConjugateGradient) && r.optimizer.tolerance > 0);
     },
     "chunk_factor is shared by the tokens of a chunk, so after a fixed number of steps answers "
     "would depend on where chunks begin; it preconditions conjugate_gradient with a tolerance > 0",
     [](Recipe& r) {
       r.optimizer.solver = Solver::kConjugateGradient;
       r.optimizer.tolerance = 1e-3;
     }},

    {[](R r) { return IsRotated(r) && r.optimizer.ridge_kind == RidgeKind::kRelative; },
     "a relative ridge is a share of the Gram matrix, which factor: qr never forms",
     [](Recipe& r) { r.optimizer.ridge_kind = RidgeKind::kConstant; }},
    {[](R r) { return IsFamily(r, Family::kLeastSquares) && r.weights.window > 0; },
     "least squares over a window keep its pairs: in the space of the linear kernel they are the "
     "same regression",
     [](Recipe& r) {
       r.function = {.kind = FunctionClass::kKernel};
       r.similarity.kernel = Kernel::kLinear;
       Exact(r);
     }},
    {[](R r) { return HasBudget(r) && !IsDecay(r, Decay::kNone); },
     "under a budget sums of pairs are kept with their ridge, which a decay would fade, too",
     NoDecay},
    {[](R r) { return HasBudget(r) && r.optimizer.tolerance >= 1; },
     "a tolerance of 1 neglects every key whole", [](Recipe& r) { r.optimizer.tolerance = 0; }},

    // Decay and importance.
    {[](R r) { return r.weights.phase && !IsDecay(r, Decay::kChannel); },
     "phase turns the channels of decay(channel)",
     [](Recipe& r) {
       ChannelDecay(r);
       r.weights.phase = true;
     }},
    {[](R r) { return IsFunction(r, FunctionClass::kNetwork) && !IsDecay(r, Decay::kNone); },
     "a network forgets by weight_decay", NoDecay},
    {[](R r) { return IsDecay(r, Decay::kMatrix) && !IsFamily(r, Family::kHebbian); },
     "a decay per entry of the memory goes with one gradient step on a linear memory", ScalarDecay},
    {[](R r) {
       return IsDecay(r, Decay::kChannel) && (KeepsPairs(r) || IsFamily(r, Family::kLeastSquares));
     },
     "a decay per key channel weighs no association as a whole, so the regression has no such "
     "weights",
     ScalarDecay},
    {[](R r) {
       const bool per_channel = IsDecay(r, Decay::kMatrix) || IsDecay(r, Decay::kChannel);
       return per_channel && !KeepsChannels(r);
     },
     "a decay per key channel needs features that keep the channels (none, elu1, relu) and a "
     "linear function",
     PlainKeys},
    {[](R r) {
       return r.weights.phase && !IsFamily(r, Family::kHebbian) &&
              !IsFamily(r, Family::kGatedVector);
     },
     "a complex decay goes with one gradient step", NoPhase},
    {[](R r) {
       return IsFunction(r, FunctionClass::kNetwork) && !IsImportance(r, Importance::kNone);
     },
     "a network weighs a pair by its step", NoImportance},
    {[](R r) {
       return IsFamily(r, Family::kSgd) && !IsImportance(r, Importance::kNone) &&
              !(IsImportance(r, Importance::kInput) && HasPreconditioner(r));
     },
     "sgd weighs a pair by its step; an importance (input) is taken by its preconditioner alone",
     NoImportance},
    {[](R r) {
       return IsFadedKey(r) && !IsFamily(r, Family::kHebbian) && !IsFamily(r, Family::kGatedVector);
     },
     "an importance that takes the place of the key goes with one gradient step", NoImportance},
    {[](R r) { return IsFadedKey(r) && !IsDecay(r, Decay::kChannel); },
     "this importance is formed from the decay of each channel", ChannelDecay},
    {[](R r) { return IsFadedKey(r) && r.function.features != FeatureMap::kNone; },
     "this importance takes the place of the key, so there is no key for a feature map",
     [](Recipe& r) { r.function.features = FeatureMap::kNone; }},
    {[](R r) {
       return IsImportance(r, Importance::kLog) && !IsFamily(r, Family::kHebbian) && !KeepsPairs(r);
     },
     "importance(log) goes with one gradient step on a linear memory, or with kept pairs",
     [](Recipe& r) { r.weights.importance = Importance::kInput; }},
    {[](R r) { return IsImportance(r, Importance::kLog) && r.weights.phase; },
     "importance(log) keeps a maximum of real weights, and a phase makes them complex", NoPhase},

    {[](R r) { return r.weights.pair_bias != PairBias::kNone && r.weights.window > 0; },
     "a window drops pairs, and a pair bias counts them from the first; -inf in the bias hides "
     "what "
     "a window would",
     [](Recipe& r) { r.weights.window = 0; }},
    {[](R r) {
       const bool sees =
           IsFamily(r, Family::kKernelSmoother) || IsFamily(r, Family::kLocalPolynomial);
       return sees && r.weights.pair_bias == PairBias::kPrefix && r.reading.causal;
     },
     "a prefix is seen by the queries before its end, which no causal query sees; causal: false "
     "with pair_bias: prefix hides the rest of the future",
     [](Recipe& r) { r.reading.causal = false; }},

    // Stochastic gradient descent.
    {[](R r) {
       return HasPreconditioner(r) && IsFamily(r, Family::kSgd) &&
              r.optimizer.preconditioner != Preconditioner::kDiagonal &&
              r.optimizer.preconditioner != Preconditioner::kLowRank;
     },
     "the preconditioner of sgd is diagonal or of low rank",
     [](Recipe& r) { r.optimizer.preconditioner = Preconditioner::kDiagonal; }},
    {[](R r) { return HasLowRankCurvature(r) && r.optimizer.ridge <= 0; },
     "a curvature of low rank has an inverse by its ridge > 0",
     [](Recipe& r) { r.optimizer.ridge = 1; }},
    {[](R r) {
       return HasPreconditioner(r) && IsSolver(r, Solver::kSgd) &&
              (HasOwnErasure(r) || r.optimizer.momentum);
     },
     "the preconditioner of sgd goes with plain steps", NoPreconditioner},
    {[](R r) {
       return HasPreconditioner(r) && IsSolver(r, Solver::kSgd) && !HasLowRankCurvature(r) &&
              r.optimizer.steps > 1;
     },
     "a diagonal curvature goes with one step a token", NoPreconditioner},
    {[](R r) {
       const bool derived =
           r.optimizer.step != StepRule::kInput && r.optimizer.step != StepRule::kOne;
       return derived && HasOwnErasure(r);
     },
     "this step rule is derived for a memory that erases along the key that it writes", StepInput},
    {[](R r) {
       const bool derived =
           r.optimizer.step != StepRule::kInput && r.optimizer.step != StepRule::kOne;
       return derived && HasPreconditioner(r) && IsSolver(r, Solver::kSgd);
     },
     "this step rule is derived for plain gradients", StepInput},
    {[](R r) {
       return HasOwnErasure(r) && r.optimizer.erase == Erase::kUndecayed &&
              r.optimizer.step != StepRule::kOne;
     },
     "erase: undecayed writes its value with step: one",
     [](Recipe& r) { r.optimizer.step = StepRule::kOne; }},
    {[](R r) { return HasOwnErasure(r) && !KeepsChannels(r); },
     "an erase key has the channels of k: features that keep them (none, elu1, relu) and a linear "
     "function",
     PlainKeys},
    {[](R r) { return HasOwnErasure(r) && r.optimizer.momentum; },
     "momentum sums gradients, and erasing along another key is none", NoMomentum},
    {[](R r) { return HasOwnErasure(r) && r.optimizer.weight_decay != WeightDecay::kNone; },
     "a memory that erases along its own key forgets by its decay", NoWeightDecay},
    {[](R r) {
       return IsSolver(r, Solver::kSgd) && r.optimizer.steps > 1 &&
              (HasOwnErasure(r) || IsFunction(r, FunctionClass::kNetwork));
     },
     "several steps a token are plain delta steps", OneStep},
    {[](R r) { return IsSolver(r, Solver::kSgd) && r.optimizer.steps > 1 && r.optimizer.momentum; },
     "momentum is given once a token, not for each of its steps", NoMomentum},
    {[](R r) {
       return IsSolver(r, Solver::kSgd) && r.optimizer.steps > 1 &&
              r.optimizer.weight_decay != WeightDecay::kNone;
     },
     "weight decay is given once a token, not for each of its steps", NoWeightDecay},

    // Reading.
    {[](R r) { return !r.reading.causal && IsSolver(r, Solver::kSgd); },
     "a sequence of steps has no order-free meaning", Causal},
    {[](R r) { return !r.reading.causal && r.reading.read == Read::kBefore; },
     "read: before is about order, which causal: false gives up",
     [](Recipe& r) { r.reading.read = Read::kAfter; }},
    {[](R r) { return !r.reading.causal && IsFamily(r, Family::kGatedVector); },
     "without queries every token would read the same", Causal},
    {[](R r) { return !r.reading.causal && r.weights.window > 0; },
     "a window looks back from its token", Causal},
    {[](R r) {
       const bool linear = IsFunction(r, FunctionClass::kLinear) && KeepsChannels(r);
       const bool one_key = r.optimizer.steps == 1 || !IsSolver(r, Solver::kSgd);
       return r.reading.bonus && !(linear && one_key && ReadsKeys(r));
     },
     "a bonus has the channels of k: a linear memory that reads one key a token, with features "
     "that keep them (none, elu1, relu)",
     NoBonus},
    {[](R r) { return r.reading.bonus && r.reading.normalise_sum == NormaliseSum::kStabilised; },
     "the bonus of the current token is outside of the stabilised sum", NoBonus},
    {[](R r) { return r.reading.normalise_sum != NormaliseSum::kNone && r.weights.phase; },
     "a sum of complex weights is no denominator", NoNormaliser},
    {[](R r) {
       return r.reading.normalise_sum != NormaliseSum::kNone && IsDecay(r, Decay::kMatrix);
     },
     "under a decay per entry every value channel has weights of its own, so there is no one sum",
     NoNormaliser},
    {[](R r) {
       return r.reading.normalise_sum == NormaliseSum::kStabilised &&
              !IsImportance(r, Importance::kLog);
     },
     "stabilised divides by a sum of exp(log_importance), so it needs importance(log)",
     [](Recipe& r) { r.reading.normalise_sum = NormaliseSum::kSum; }},
};

}  // namespace

std::span<const Rule> PairRules() {
  static const std::vector<Rule> all = [] {
    std::vector<Rule> rules;
    for (const std::span<const Rule> some : {std::span<const Rule>(kRules), NetworkRules()}) {
      for (const Rule& rule : some) rules.push_back(rule);
    }
    return rules;
  }();
  return all;
}

}  // namespace ttr
