/// Gradients of kernel regression. For every prefix, with a_t = A_t^-1 D R k(K, q_t) and
/// b_t = A_t^-1 D R V dy_t, both 0 beyond what token t sees,
///
///     d(D R V) = sum_t a_t dy_t^T      d(D R k(K, q_t)) = b_t      dA = - sum_t a_t b_t^T
///
/// Both are back substitutions by the one factor, a_t = L^-T Z_t and b_t = L^-T E dy_t, so nothing
/// is differentiated through a factor. Those of keys, queries and the bandwidth follow by the
/// kernel's slope. As y does not depend on D, and on weights only through ridge W^-1,
///
///     d ridge = - sum_i p_i      d log w_i = ridge p_i      p_i = D_i^2 sum_t a_ti b_ti
///
/// Cost: 2 N^3 flops beside the N^3 / 3 of the factor, one query a pair. Memory: three half N x N
/// matrices. The number of threads changes no bit. Prefixes that are singular, in double and one
/// by one, as if their rank stayed as it is. The gradient by an importance of 0 is the slope on the
/// side where there is some: sum_t r_t s_t / ridge, r and s what k(K, q_t) and V dy_t leave at the
/// pair's key beside their fits; 0 without a ridge, or where a prefix is singular.
///
/// A pair that is not finite spoils the queries that see it, and no query before it. Where dy of a
/// spoiled query is not all zero, the gradients of all that it depends on are NaN: its own q, every
/// pair that it sees with weight, ridge and bandwidth.
#pragma once

#include <cstddef>
#include <span>

#include "src/engines/common/pair_gradients.h"
#include "src/engines/kernel_regression/kernel_regression.h"

namespace ttr::kernel_regression {

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads);

/// `call`: as for Forward, its state the initial one, which is left as it is; y is not read.
void Backward(const Options& options, const Call& call, const TensorView& dy,
              const common::FinalPairGradients& final, const common::PairGradientTensors& gradients,
              Executor& executor, std::span<std::byte> scratch = {});

}  // namespace ttr::kernel_regression
