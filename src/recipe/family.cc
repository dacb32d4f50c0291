#include "src/recipe/family.h"

namespace ttr {
namespace {

// From 0 its answer is a sum over the pairs, whatever they are to each other.
bool IsOnePlainStep(const Optimizer& optimizer) {
  return optimizer.solver == Solver::kGradient && optimizer.steps == 1 &&
         optimizer.eta_kind == EtaKind::kConstant &&
         optimizer.preconditioner == Preconditioner::kNone;
}

}  // namespace

Family FamilyOf(const Recipe& recipe) {
  const Optimizer& optimizer = recipe.optimizer;
  switch (recipe.function.kind) {
    case FunctionClass::kConstant:
      return recipe.similarity.kernel == Kernel::kNone ? Family::kGatedVector
                                                       : Family::kKernelSmoother;
    case FunctionClass::kPolynomial: return Family::kLocalPolynomial;
    case FunctionClass::kKernel:
      if (optimizer.solver == Solver::kExact) return Family::kKernelRegression;
      return IsOnePlainStep(optimizer) ? Family::kKernelSmoother : Family::kKernelDescent;
    case FunctionClass::kNetwork: return Family::kNetwork;
    case FunctionClass::kLinear:
    case FunctionClass::kAffine: break;
  }
  if (optimizer.solver == Solver::kSgd) return Family::kSgd;
  return IsOnePlainStep(optimizer) ? Family::kHebbian : Family::kLeastSquares;
}

std::string_view FamilyName(const Recipe& recipe) {
  switch (FamilyOf(recipe)) {
    case Family::kHebbian: return "hebbian";
    case Family::kGatedVector: return "gated_vector";
    case Family::kSgd: return "sgd";
    case Family::kLeastSquares: return "least_squares";
    case Family::kKernelSmoother: return "kernel_smoother";
    case Family::kKernelRegression: return "kernel_regression";
    case Family::kKernelDescent: return "kernel_descent";
    case Family::kLocalPolynomial: return "local_polynomial";
    case Family::kNetwork: return "network";
  }
  return "";
}

bool KeepsPairs(const Recipe& recipe) {
  const Family family = FamilyOf(recipe);
  return family == Family::kKernelSmoother || family == Family::kLocalPolynomial ||
         family == Family::kKernelDescent ||
         (family == Family::kKernelRegression && !HasBudget(recipe));
}

bool HasBudget(const Recipe& recipe) {
  return FamilyOf(recipe) == Family::kKernelRegression && recipe.optimizer.budget > 0;
}

bool IsRotated(const Recipe& recipe) {
  return FamilyOf(recipe) == Family::kLeastSquares && recipe.optimizer.factor == Factor::kQr;
}

bool ReadsKeys(const Recipe& recipe) {
  const bool complement = recipe.weights.importance == Importance::kComplement ||
                          recipe.weights.importance == Importance::kRootComplement;
  return FamilyOf(recipe) != Family::kGatedVector && !complement;
}

bool ReadsQueries(const Recipe& recipe) { return FamilyOf(recipe) != Family::kGatedVector; }

std::int64_t RowsPerToken(const Recipe& recipe) {
  return recipe.optimizer.solver == Solver::kSgd ? recipe.optimizer.steps : 1;
}

bool HasRidge(const Recipe& recipe) {
  switch (FamilyOf(recipe)) {
    case Family::kLeastSquares:
    case Family::kKernelRegression:
    case Family::kKernelDescent:
    case Family::kLocalPolynomial: return true;
    default: return false;
  }
}

bool HasLowRankCurvature(const Recipe& recipe) {
  return FamilyOf(recipe) == Family::kSgd &&
         recipe.optimizer.preconditioner == Preconditioner::kLowRank;
}

bool HasBandwidth(Kernel kernel) {
  return kernel != Kernel::kNone && kernel != Kernel::kExponential &&
         kernel != Kernel::kInverseDistance && kernel != Kernel::kLinear;
}

bool KeepsKeyDim(FeatureMap map) {
  return map == FeatureMap::kNone || map == FeatureMap::kElu1 || map == FeatureMap::kRelu;
}

bool IsRandom(FeatureMap map) {
  return map == FeatureMap::kRfa || map == FeatureMap::kFavor || map == FeatureMap::kDijiang;
}

}  // namespace ttr
