/// From a recipe's words to those of the least-squares engine.
#pragma once

#include <cstddef>
#include <span>

#include "ttr/layer.h"

namespace ttr {

/// Runs a call that has been checked. `state` gets the entries that it lacks. With `defers` a
/// single token leaves them behind; only where LeastSquaresDefers() and LeastSquaresDefersFrom()
/// say so.
void RunLeastSquares(const Requirements& requirements, const Dims& dims, const Inputs& inputs,
                     State& state, const Outputs& outputs, Needs needs, Executor& executor,
                     std::span<std::byte> scratch, bool defers);

/// Can tokens go ahead of a state, and of these tensors?
bool LeastSquaresDefers(const Recipe& recipe);
bool LeastSquaresDefersFrom(const State& state);

/// Writes tensors that were left behind.
void SettleLeastSquares(State& state, Executor& executor);

/// Layer::Backward of a call that has been checked.
void DifferentiateLeastSquares(const Requirements& requirements, const Dims& dims,
                               const Inputs& inputs, const State& initial, const TensorView& dy,
                               const State& dstate, const Inputs& dinputs, State& dinitial,
                               Executor& executor, std::span<std::byte> scratch);

std::size_t LeastSquaresGradientScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

std::size_t LeastSquaresScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

}  // namespace ttr
