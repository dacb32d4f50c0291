// Where each option does something; elsewhere it would be ignored in silence, and is refused.
#include "src/recipe/family.h"
#include "src/recipe/rules.h"

namespace ttr {
namespace {

using R = const Recipe&;

bool IsLinear(R r) {
  return r.function.kind == FunctionClass::kLinear || r.function.kind == FunctionClass::kAffine;
}
// Do steps know what pairs are to each other?
bool HasSystem(R r) { return IsLinear(r) || r.function.kind == FunctionClass::kKernel; }
bool IsNetwork(R r) { return r.function.kind == FunctionClass::kNetwork; }
bool IsSgd(R r) { return r.optimizer.solver == Solver::kSgd; }
bool IsGradient(R r) { return r.optimizer.solver == Solver::kGradient; }
bool IsLinearSgd(R r) { return FamilyOf(r) == Family::kSgd; }
bool IsAdapted(R r) { return IsNetwork(r) && r.optimizer.adapt != Adapt::kNone; }
bool IsAdam(R r) { return IsNetwork(r) && r.optimizer.adapt == Adapt::kAdam; }
bool IsCurvatureSgd(R r) {
  return IsLinearSgd(r) && r.optimizer.preconditioner == Preconditioner::kDiagonal;
}
bool CarriesCurvature(R r) { return IsCurvatureSgd(r) || HasLowRankCurvature(r); }
bool IsNlms(R r) { return IsLinearSgd(r) && r.optimizer.step == StepRule::kNlms; }
bool HasErasureKey(R r) {
  return IsLinearSgd(r) &&
         (r.optimizer.erase == Erase::kEraseKey || r.optimizer.erase == Erase::kUndecayed);
}
bool IsMap(R r, FeatureMap map) { return IsLinear(r) && r.function.features == map; }
bool IsHidden(R r) { return IsNetwork(r) && r.function.depth >= 2; }

constexpr OptionScope kScopes[] = {
    {"phase", [](R r) { return r.weights.decay == Decay::kChannel; },
     "phase turns the channels of decay(channel)"},
    {"window", KeepsPairs, "a window forgets single pairs, and this memory keeps none"},
    {"pair_bias",
     [](R r) {
       return FamilyOf(r) == Family::kKernelSmoother || FamilyOf(r) == Family::kLocalPolynomial;
     },
     "a pair bias weighs pairs anew for every query, as sums over kept pairs and polynomials "
     "around "
     "the query do"},
    {"extent",
     [](R r) {
       return r.weights.pair_bias != PairBias::kNone && r.weights.pair_bias != PairBias::kInput;
     },
     "an extent belongs to a pair bias that is a function of places"},
    {"exponent", [](R r) { return r.weights.pair_bias == PairBias::kPower; },
     "an exponent belongs to pair_bias: power"},
    {"kernel",
     [](R r) {
       return r.function.kind == FunctionClass::kConstant ||
              r.function.kind == FunctionClass::kPolynomial ||
              r.function.kind == FunctionClass::kKernel;
     },
     "a similarity weighs pairs for a constant or a polynomial around the query, or is the kernel "
     "of function class kernel"},
    {"bandwidth", [](R r) { return HasBandwidth(r.similarity.kernel); },
     "bandwidth belongs to the gaussian, laplace, epanechnikov, biweight and triweight kernels"},

    {"features", IsLinear, "a feature map belongs to linear and affine memories"},
    {"nu", [](R r) { return IsMap(r, FeatureMap::kDpfp); }, "nu belongs to features: dpfp"},
    {"feature_dim", [](R r) { return IsLinear(r) && IsRandom(r.function.features); },
     "feature_dim belongs to the random features rfa, favor and dijiang"},
    {"max_length", [](R r) { return IsMap(r, FeatureMap::kCosformer); },
     "max_length belongs to features: cosformer"},
    {"seed", [](R r) { return IsHidden(r) || (IsLinear(r) && IsRandom(r.function.features)); },
     "seed belongs to random features, and to networks of depth >= 2, which start from random "
     "weights"},
    {"degree", [](R r) { return r.function.kind == FunctionClass::kPolynomial; },
     "degree belongs to polynomials"},
    {"depth", IsNetwork, "depth belongs to networks"},
    {"expansion", IsHidden, "expansion is the width between two weight matrices of a network"},
    {"activation", IsHidden, "activation stands between two weight matrices of a network"},
    {"gated", IsHidden, "a gate stands between two weight matrices of a network"},
    {"norm", IsNetwork, "norm belongs to networks"},
    {"residual", IsNetwork, "residual belongs to networks"},
    {"bias", IsNetwork, "bias belongs to networks"},

    {"steps", [](R r) { return r.optimizer.solver != Solver::kExact; },
     "an exact solution takes no steps"},
    {"step", IsLinearSgd, "step rules belong to sgd on a linear memory"},
    {"eta",
     [](R r) { return (IsGradient(r) && r.optimizer.eta_kind != EtaKind::kInput) || IsNlms(r); },
     "eta belongs to gradient and to sgd(step: nlms)"},
    {"eta_kind", [](R r) { return IsGradient(r) && HasSystem(r); },
     "kinds of step sizes belong to gradient on a linear memory or in a kernel's space"},
    {"eps", [](R r) { return IsNlms(r) || IsAdapted(r); },
     "eps belongs to sgd(step: nlms), and to steps adapted a weight"},
    {"erase", IsLinearSgd, "erase keys belong to sgd on a linear memory"},
    {"momentum", [](R r) { return IsSgd(r) || (IsGradient(r) && HasSystem(r)); },
     "momentum belongs to sgd, and to gradient on a linear memory or in a kernel's space"},
    {"weight_decay", IsSgd, "weight decay belongs to sgd"},
    {"loss", IsNetwork,
     "losses belong to networks; that of a linear memory is squared, and one gradient step of the "
     "dot product is linear attention"},
    {"adapt", IsNetwork, "steps adapted a weight belong to networks"},
    {"mini_batch", IsNetwork, "mini-batches belong to networks"},
    {"row_factor", IsNetwork, "row factors belong to networks"},
    {"preconditioner",
     [](R r) {
       return IsLinear(r) && r.optimizer.solver != Solver::kExact &&
              r.optimizer.solver != Solver::kChebyshev;
     },
     "a preconditioner belongs to gradient, conjugate_gradient or sgd on a linear memory"},
    {"block", [](R r) { return r.optimizer.preconditioner == Preconditioner::kBlockDiagonal; },
     "block belongs to preconditioner: block_diagonal"},
    {"rank", [](R r) { return r.optimizer.preconditioner == Preconditioner::kLowRank; },
     "rank belongs to preconditioner: low_rank"},
    {"curvature_decay", [](R r) { return CarriesCurvature(r) || IsAdam(r); },
     "curvature_decay belongs to sgd with a preconditioner and to adam"},
    {"curvature_centre", IsCurvatureSgd,
     "curvature_centre belongs to sgd(preconditioner: diagonal)"},
    {"ridge", [](R r) { return HasRidge(r) || HasLowRankCurvature(r); },
     "this optimizer has no ridge"},
    {"ridge_kind", [](R r) { return HasRidge(r) && FamilyOf(r) == Family::kLeastSquares; },
     "kinds of ridge belong to linear memories that have one"},
    {"factor",
     [](R r) {
       return FamilyOf(r) == Family::kLeastSquares && r.optimizer.solver == Solver::kExact;
     },
     "factors belong to an exact solution on a linear memory"},
    {"budget", [](R r) { return FamilyOf(r) == Family::kKernelRegression; },
     "a budget belongs to a regression in a kernel's space (kernel | exact)"},
    {"tolerance",
     [](R r) { return r.optimizer.solver == Solver::kConjugateGradient || HasBudget(r); },
     "tolerance belongs to conjugate_gradient, and to a budget"},

    {"bonus", [](R r) { return r.reading.read == Read::kBefore; },
     "a bonus stands in for the current token, which is missing under read: before alone"},
    {"normalise_sum", [](R r) { return FamilyOf(r) == Family::kHebbian; },
     "dividing by the sum of weights belongs to a linear memory of one gradient step"},
    {"normalise_qk", [](R r) { return ReadsKeys(r) && ReadsQueries(r); },
     "this memory reads no keys that could be normalised"},
    {"scale",
     [](R r) {
       const Kernel kernel = r.similarity.kernel;
       return ReadsQueries(r) && (kernel == Kernel::kNone || kernel == Kernel::kExponential ||
                                  kernel == Kernel::kLinear);
     },
     "scale multiplies q, which this memory does not read or compares by distance"},
    {"correction", HasErasureKey, "the correction of q is along erase_key"},
};

}  // namespace

std::span<const OptionScope> OptionScopes() { return kScopes; }

}  // namespace ttr
