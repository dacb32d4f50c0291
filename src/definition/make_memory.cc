#include "src/definition/memory.h"

namespace ttr::definition {

std::unique_ptr<Memory> MakeMemory(const Constants& constants) {
  const Recipe& recipe = constants.recipe;
  const Optimizer& optimizer = recipe.optimizer;
  switch (recipe.function.kind) {
    case FunctionClass::kNetwork:
      return MakeNetwork(constants);
    case FunctionClass::kPolynomial:
      return MakeLocalPolynomial(constants);
    case FunctionClass::kKernel:
      // One gradient step takes the Gram matrix as I: an unnormalised smoother.
      return optimizer.solver == Solver::kExact ? MakeKernelRegression(constants)
                                                : MakeKernelSmoother(constants);
    case FunctionClass::kConstant:
      return recipe.similarity.kernel == Kernel::kNone ? MakeGatedVector(constants)
                                                       : MakeKernelSmoother(constants);
    case FunctionClass::kLinear:
    case FunctionClass::kAffine:
      break;
  }
  if (optimizer.solver == Solver::kSgd) return MakeSgd(constants);
  const bool takes_gram_as_identity = optimizer.solver == Solver::kGradient &&
                                      optimizer.steps == 1 &&
                                      optimizer.preconditioner == Preconditioner::kNone;
  return takes_gram_as_identity ? MakeHebbian(constants) : MakeLeastSquares(constants);
}

}  // namespace ttr::definition
