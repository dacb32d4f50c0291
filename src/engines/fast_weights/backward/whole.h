/// Gradients of Hebbian memories that are read when all is written (Options::causal is false).
///
///     M = sum_t (f_t (.) w_t)^T v_t,   f_t = b_t prod_{s > t} a_s,   y_t = q_t M
///
/// With N = dL/dM = sum_t q_t^T dy_t,
///
///     dq_t = dy_t M^T,   dw_t = f_t (.) (v_t N^T),   dv_t = (f_t (.) w_t) N,
///     db_t = (f_t / b_t (.) w_t) . (v_t N^T),   d log a_t = sum_{s < t} w_s (.) dw_s
///
/// the last summed over channels where a decay is one number. Phases make f complex, of which
/// outputs read the real part: d phase_t = -sum_{s < t} Im(f_s) (.) w_s (.) (v_s N^T). A sum of
/// weights is one value more, 1, and running maxima are constants here: neither outputs nor what
/// they are divided by depend on how a memory is scaled.
///
/// What is forgotten, f = 0, has no gradient and passes none, NaN included.
///
/// Two passes over blocks of rows: the first takes queries and dL/dy to dq and N, and the decays of
/// each block; the second takes N to all that writes. Cost: 8 D Dv flops a token beside Forward's 2
/// that find M once more, 2 more where outputs are divided or normalised; scratch of O(D Dv), and D
/// numbers each 64 tokens.
#pragma once

#include "src/engines/fast_weights/backward/rows.h"

namespace ttr::fast_weights {

/// What is done with a block's rows. `initial` holds M, and `d_final` N; `d_initial` is the
/// transpose of M (kOutputs, kQueries), and then that of N (kWrites).
enum class WholePass {
  kDecays,   ///< their product, into `factors` of the block
  kOutputs,  ///< y
  kQueries,  ///< d_query, and N is added to
  /// The gradients of all that writes, with `factors` of the rows behind the block, which become
  /// those of its first row; `sums` are of the rows before it, and added to.
  kWrites,
};

/// The gradients of one memory, which holds what Forward left there.
template <class T>
void DifferentiateWhole(const Options& options, const Memory& memory, const GradientMemory& out,
                        BackwardRows<T>& rows);

}  // namespace ttr::fast_weights
