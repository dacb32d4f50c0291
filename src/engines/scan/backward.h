/// Gradients of the scan engine, by the recurrences in reverse.
///
///     vectors    D = dL/dh_t:  dv = w D,  d log g = Re(conj(D) g h_{t-1}),  D <- conj(g) D
///     matrices   D = dL/dM_t:  dv_c = w sum_n D k_n,  dk_n = w sum_c D v_c,
///                              d(dt_c a_cn) = D g M_{t-1},  D <- g D
///
/// The states between are computed anew from those saved every kCheckpoint tokens: by Forward, or
/// where call.saved is empty by a forward pass of Backward's own. A decay of
/// 0 has gradient 0; so has log_decay = 0 under a root complement, where the true one is infinite.
///
/// Inputs that several memories share get the sum of their gradients. The number of threads changes
/// no bit. Memory: O(T) numbers a channel, and the states saved.
#pragma once

#include <cstddef>
#include <span>

#include "src/engines/scan/scan.h"

namespace ttr::scan {

/// Shaped as the inputs, any floating dtype, any strides but a contiguous last axis; those that are
/// absent are not computed.
struct Gradients {
  TensorView v, v_im, importance, log_decay, phase, q, k, dt, a;
};

/// What scratch of Backward depends on.
struct GradientSizes {
  Sizes sizes;  ///< value_dim: of one head
  std::int64_t heads = 1, value_heads = 1, sequences = 1;
  std::int64_t tokens = 0;  ///< of all sequences
  std::int64_t length = 0;  ///< of a batch row
  bool complex = false;
};

/// Bytes of scratch that Backward needs with this many threads, whether anything was saved or not.
std::size_t BackwardScratchBytes(const GradientSizes& sizes, int threads);

/// Gradients that Backward is given. Those of the state are in its dtype, contiguous: of the final
/// state, and left as those of the initial one.
struct GivenGradients {
  const TensorView& dy;
  TensorView dstate, dstate_im{};
};

/// `call`: as for Forward, its state the initial one, which is left as it is, and `saved` what
/// Forward left there, or empty; y is not read and options.output_norm must be none. Throws where
/// something else was saved, or where the scratch is too small; scratch as for Forward.
void Backward(const Options& options, const Call& call, const GivenGradients& given,
              const Gradients& gradients, Executor& executor, std::span<std::byte> scratch = {});

}  // namespace ttr::scan
