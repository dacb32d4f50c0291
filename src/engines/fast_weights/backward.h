/// Gradients of the layers of this engine: inputs in, gradients of inputs out.
///
/// Given dL/dy and dL/d(final state), finds dL/d of every input and of the initial state, for all
/// options of Forward. A memory's inputs are gathered into blocks of rows (backward/rows.h), the
/// rows' gradients come from adjoint/gradient.h, and the chain rule takes them on to the inputs. It
/// goes from what Forward saved; where nothing is given, each worker runs the forward kernel over
/// one memory at a time (backward/checkpoints.h), and the gradients are the same bits.
///
/// Gradients have the shapes of what they are gradients of, any of the three dtypes, and are
/// overwritten; absent ones are not computed. Heads that share an input add up. The gradient of a
/// log_decay of -inf, of the phase beside it, and of a zero key's step size, is 0.
///
/// Cost: some 14 D Dv flops a token and memory, 28 with momentum, 20 of a complex decay; without
/// what Forward saved, its cost besides, and for every thread what it saves of one memory: O(T Dv)
/// and a state each 64 tokens. The number of threads changes no bit.
#pragma once

#include <cstddef>
#include <span>

#include "src/engines/fast_weights/fast_weights.h"

namespace ttr::fast_weights {

/// Gradients of the inputs and of the initial state.
struct Gradients : Operands<TensorView>, StateOperands<TensorView> {};

struct BackwardCall {
  /// State and the others of its kind as they were at the start; not causal, as they were made:
  /// they are left as Forward leaves them. y is not used; `saved`: what Forward of this call left
  /// there, untouched, or empty.
  Call forward{};
  TensorView dy{};
  StateOperands<TensorView> final{};  ///< dL/d of the final state; absent: 0
  Gradients gradients{};
};

/// Bytes of `scratch`, which are no more where the caller gives what Forward saved.
std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads);

/// `scratch` as for Forward.
void Backward(const Options& options, const BackwardCall& call, Executor& executor,
              std::span<std::byte> scratch = {});

}  // namespace ttr::fast_weights
