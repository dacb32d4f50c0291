#include "src/definition/memory.h"
#include "src/recipe/family.h"

namespace ttr::definition {

std::unique_ptr<Memory> MakeMemory(const Constants& constants) {
  switch (FamilyOf(constants.recipe)) {
    case Family::kHebbian: return MakeHebbian(constants);
    case Family::kGatedVector: return MakeGatedVector(constants);
    case Family::kSgd: return MakeSgd(constants);
    case Family::kLeastSquares:
      return IsRotated(constants.recipe) ? MakeRotatedLeastSquares(constants)
                                         : MakeLeastSquares(constants);
    case Family::kKernelSmoother: return MakeKernelSmoother(constants);
    case Family::kKernelRegression:
      return HasBudget(constants.recipe) ? MakeKernelDictionary(constants)
                                         : MakeKernelRegression(constants);
    case Family::kKernelDescent: return MakeKernelDescent(constants);
    case Family::kLocalPolynomial: return MakeLocalPolynomial(constants);
    case Family::kNetwork: return MakeNetwork(constants);
  }
  return nullptr;
}

}  // namespace ttr::definition
