/// Gradients of the kernel smoother. With p_ti the share of pair i in output t, and D_t = dy_t .
/// y_t,
///
///     dv_i = sum_t p_ti dy_t        ds_ti = p_ti (dy_t . v_i - D_t)
///
/// are the gradients by log (w_i s(k_i, q_t)), from which those of keys, queries, weights and the
/// bandwidth follow by the kernel's slope (of a sum instead of a mean: D = 0). Weights are computed
/// again, a block at a time, from the logarithm of their sum, one number a query.
///
/// Cost: five products where the forward pass has two, and those two once more where it saved
/// nothing. The number of threads changes no bit. Memory: O(T) a memory.
#pragma once

#include <cstddef>
#include <span>

#include "src/engines/common/pair_gradients.h"
#include "src/engines/kernel_smoother/kernel_smoother.h"

namespace ttr::kernel_smoother {

std::size_t BackwardScratchBytes(const Sizes& sizes, int threads);

/// `call`: as for Forward, its state the initial one, which is left as it is, and `saved` what
/// Forward left there, or empty; y is not read and options.output_norm must be none.
void Backward(const Options& options, const Call& call, const TensorView& dy,
              const common::FinalPairGradients& final, const common::PairGradientTensors& gradients,
              Executor& executor, std::span<std::byte> scratch = {});

}  // namespace ttr::kernel_smoother
