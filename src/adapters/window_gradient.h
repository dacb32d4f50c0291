/// Gradients of a kernel regression over windows.
///
/// Every window is a memory of its own, whose gradients kernel_regression has; those by its rows
/// are added to the rows of the timeline, from where they go on as those of a state that keeps
/// all rows would: to what wrote the rows, and to the initial state.
///
/// Cost: a few times that of the forward pass. Memory: the rows once more, and the gradients of
/// some windows at a time.
#pragma once

#include "src/adapters/engine.h"
#include "src/engines/common/pair_gradients.h"
#include "src/engines/kernel_regression/kernel_regression.h"

namespace ttr {

/// Windows are solved in float64 whatever their rows are. The matrix of more pairs than channels,
/// and of keys that follow one another, has a condition of its largest eigenvalue over the ridge:
/// float32 would lose three and more of its seven digits.
inline constexpr DType kWindowArithmetic = DType::kFloat64;

/// Gradients of a call whose windows are regressions of their own: each window's are added along
/// its sequence. `gradients` are shaped as PairGradientCopies makes them.
void DifferentiateWindows(const EngineCall& call, const State& initial,
                          const kernel_regression::Options& options, const TensorView& dy,
                          const common::FinalPairGradients& final,
                          const common::PairGradientTensors& gradients);

}  // namespace ttr
