/// Gradients of the forward pass: back through the training itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/network/network.h"

namespace ttr::network {

/// Each absent or written whole, rows contiguous, any floating dtype. Every memory has rows of its
/// own: q [B, T, max(H, Hq), Dk], k and v [B, T, H, D]; ln_weight, ln_bias [N, H, Dv] and row_bias
/// [N, H, mini_batch] in the dtype of the parameters.
struct Gradients {
  TensorView q, k, v, step, momentum, weight_decay;
  TensorView ln_weight, ln_bias, row_bias;
  StateParameters initial;  ///< complete
};

/// Gradients of sum y dy plus those of the final state, of which absent ones are zero; those of a
/// state are contiguous and in the parameters' dtype. `call` holds the initial state, which is
/// not written, and dy as y; with `saved`, what Forward left there. Where W_bar is not W the two
/// are different numbers of the initial state.
void Backward(const Options& options, const Call& call, const StateParameters& final,
              const Gradients& gradients, Executor& executor, std::span<std::byte> scratch = {});

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads);

/// What Forward saves for Backward, of `sequences` with `tokens` in all; `sizes.tokens` is the
/// length of a batch row.
std::size_t SavedBytes(const Options& options, const Sizes& sizes, std::int64_t tokens,
                       std::int64_t sequences);

}  // namespace ttr::network
