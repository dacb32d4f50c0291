/// A recipe and its tensors as options and operands of engines that keep their pairs.
#pragma once

#include <span>

#include "src/adapters/engine.h"
#include "src/engines/common/queries.h"
#include "ttr/recipe.h"

namespace ttr {

common::QueryOptions QueryOptionsOf(const Recipe& recipe, const Dims& dims);
common::QuerySizes QuerySizesOf(const Recipe& recipe, const Dims& dims, DType dtype);

/// Queries of a token that read one memory.
double QueriesOfMemory(const Dims& dims);
/// Pairs that a query reads, on average over a sequence.
double PairsRead(const Recipe& recipe, const Dims& dims);

/// The inputs and the state of a call, and its constant decays; outputs are still missing.
common::QueriedTensors QueriedTensorsOf(const EngineCall& call, const State& state,
                                        std::span<const double> decay_factors = {});

/// A state without pairs is read: y = 0, and where `singular` the status says that nothing fits.
void RetrieveNothing(const Outputs& outputs, bool singular);

}  // namespace ttr
