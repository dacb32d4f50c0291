/// Gradients of local polynomials, by the implicit function: a second system with the same factor,
/// and nothing is differentiated through a solve. With c the covariance of monomials and a_i = dy .
/// v_i, s = (Sigma + ridge I)^-1 c the slopes of a, and what slopes-inl.h says of every pair,
///
///     dv_i = e_i dy        d ridge = u . s        in degree 1  dq = s + what scores add
///
/// docs/local_polynomial.md derives them. Fits are found anew: nothing is saved.
///
/// Cost: the covariance once more and, a query and pair, some 14 passes over the monomials. The
/// number of threads changes no bit. Memory: some 5 numbers a query and monomial.
#pragma once

#include <cstddef>
#include <span>

#include "src/engines/common/pair_gradients.h"
#include "src/engines/local_polynomial/local_polynomial.h"

namespace ttr::local_polynomial {

std::size_t BackwardScratchBytes(const Sizes& sizes, int threads);

/// `call`: as for Forward, its state the initial one, which is left as it is; y is not read and
/// options.output_norm must be none.
void Backward(const Options& options, const Call& call, const TensorView& dy,
              const common::FinalPairGradients& final, const common::PairGradientTensors& gradients,
              Executor& executor, std::span<std::byte> scratch = {});

}  // namespace ttr::local_polynomial
