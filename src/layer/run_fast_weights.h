/// From a recipe's words to those of the fast-weights engine.
#pragma once

#include <cstddef>
#include <span>

#include "ttr/layer.h"

namespace ttr {

/// Runs a call that has been checked. `state` gets the entries that it lacks. With `defers` a
/// single token leaves its write to the next; only where FastWeightsDefers() says so.
void RunFastWeights(const Requirements& requirements, const Dims& dims, const Inputs& inputs,
                    State& state, const Outputs& outputs, Needs needs, Executor& executor,
                    const Run& run, bool defers);

/// Are there products in bfloat16?
bool FastWeightsHasBf16Products(const Recipe& recipe);

/// Can tokens go ahead of a state?
bool FastWeightsDefers(const Recipe& recipe);

/// Writes what was left.
void SettleFastWeights(State& state, Executor& executor);

/// Layer::Backward.
void DifferentiateFastWeights(const Requirements& requirements, const Dims& dims,
                              const Inputs& inputs, const State& initial, const TensorView& dy,
                              const State& dstate, const Inputs& dinputs, State& dinitial,
                              Executor& executor, std::span<std::byte> scratch,
                              std::span<std::byte> saved);

std::size_t FastWeightsGradientScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

std::size_t FastWeightsSavedBytes(const Recipe& recipe, const Dims& dims, DType state);

std::size_t FastWeightsScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

}  // namespace ttr
