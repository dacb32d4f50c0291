/// Which kind of memory a recipe describes. Follows from the values of the recipe alone.
#pragma once

#include <cstdint>

#include "ttr/recipe.h"

namespace ttr {

enum class Family : std::uint8_t {
  kHebbian,           ///< linear, one full gradient step (of size eta): writes without reading
  kGatedVector,       ///< constant without similarity: h_t = g (.) h_{t-1} + v
  kSgd,               ///< linear, one pair at a time
  kLeastSquares,      ///< linear, A x = q solved by any other means
  kKernelSmoother,    ///< sums over the pairs: constant under a similarity, one step in a kernel's
                      ///< space
  kKernelRegression,  ///< exact in a kernel's space
  kKernelDescent,     ///< approached there by steps
  kLocalPolynomial,   ///< a fit around every query
  kNetwork,           ///< a small network, trained while it reads
};

/// For any recipe, valid or not.
Family FamilyOf(const Recipe& recipe);

/// Memories whose state is the list of their pairs.
bool KeepsPairs(const Recipe& recipe);

/// Is the memory a regression in the span of a few keys, and keeps no pairs?
bool HasBudget(const Recipe& recipe);

/// Does it carry the triangle of a QR factor instead of a Gram matrix?
bool IsRotated(const Recipe& recipe);

/// Does the recipe read keys? (Gated vectors and HGRN2 do not.) Does it read queries?
bool ReadsKeys(const Recipe& recipe);
bool ReadsQueries(const Recipe& recipe);

/// Rows of k, v and step that a token takes: several of DeltaProduct.
std::int64_t RowsPerToken(const Recipe& recipe);

/// Does the solver have a ridge?
bool HasRidge(const Recipe& recipe);

/// Does sgd divide its steps by a curvature of low rank?
bool HasLowRankCurvature(const Recipe& recipe);

/// Does the kernel have a bandwidth?
bool HasBandwidth(Kernel kernel);

/// Does phi keep the length of its argument (none, 1 + ELU, ReLU)?
bool KeepsKeyDim(FeatureMap map);

/// Does phi draw random directions where it is not given `features.w`?
bool IsRandom(FeatureMap map);

}  // namespace ttr
