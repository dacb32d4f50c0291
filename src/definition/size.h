/// How much memory the definition takes at the least.
#pragma once

#include "ttr/inputs.h"

namespace ttr::definition {

/// Monomials of degree 0 .. p in d variables: binomial(d + p, p).
double MonomialCount(double d, std::int64_t p);

/// Bytes of what one memory forms for one query, beside its state: the Gram matrix of the monomials
/// of a local polynomial, the factor over all pairs of a kernel regression; 0 for other families.
/// `pairs` is how many the memory holds in the end.
double WorkBytes(const Recipe& recipe, const Dims& dims, std::int64_t pairs);

}  // namespace ttr::definition
