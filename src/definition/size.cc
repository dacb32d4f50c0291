#include "src/definition/size.h"

#include "src/recipe/family.h"

namespace ttr::definition {

double MonomialCount(double d, std::int64_t p) {
  double count = 1;
  for (std::int64_t i = 1; i <= p; ++i) {
    count *= (d + static_cast<double>(i)) / static_cast<double>(i);
  }
  return count;
}

double WorkBytes(const Recipe& recipe, const Dims& dims, std::int64_t pairs) {
  const auto count = static_cast<double>(pairs);
  switch (FamilyOf(recipe)) {
    case Family::kKernelDescent:
    case Family::kKernelRegression: return 8 * count * count;
    case Family::kLocalPolynomial: {
      const double monomials =
          MonomialCount(static_cast<double>(dims.key_dim), recipe.function.degree);
      return 8 * monomials * (monomials + count);
    }
    default: return 0;
  }
}

}  // namespace ttr::definition
