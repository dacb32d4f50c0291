/// From a recipe's words to those of the scan engine.
#pragma once

#include <cstddef>
#include <span>

#include "ttr/layer.h"

namespace ttr {

/// Runs a call that has been checked. `state` gets the entries that it lacks.
void RunScan(const Recipe& recipe, const Dims& dims, const Inputs& inputs, State& state,
             const Outputs& outputs, Needs needs, Executor& executor, std::span<std::byte> scratch,
             std::span<std::byte> saved);

/// Bytes that Forward can keep for Backward where the state is of this dtype.
std::size_t ScanSavedBytes(const Recipe& recipe, const Dims& dims, DType state);

std::size_t ScanScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

/// Layer::Backward of a call that has been checked.
void DifferentiateScan(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                       const State& initial, const TensorView& dy, const State& dstate,
                       const Inputs& dinputs, State& dinitial, Executor& executor,
                       std::span<std::byte> scratch, std::span<std::byte> saved);

std::size_t ScanGradientScratchBytes(const Recipe& recipe, const Dims& dims, int threads);

}  // namespace ttr
