// What gradients of all layers that keep pairs are held to.
#pragma once

#include <cstdint>

#include "ttr/layer.h"

namespace ttr::test {

// Moves importances and ridges away from 0, where slopes are too steep for differences.
void Raise(const Inputs& inputs);

// Five tokens with a query head a memory and with several, from a drawn state and through the final
// one: those of the definition.
void ExpectGradientsOfTheDefinition(const Layer& layer, double tolerance);

// A pair of importance 0 takes no part, and yet has a slope: that of the definition.
void ExpectSlopesAtNoImportance(const Layer& layer);

// Two memories in float32.
void ExpectSameGradientsOnAnyThreads(const Layer& layer, std::int64_t tokens);

// Those of a whole sequence in float32, also from what the forward pass saved, are those in float64
// within `tolerance` times the larger of 1 and the tensor's greatest number.
void ExpectGradientsInDouble(const Layer& layer, const Dims& dims, double tolerance);

}  // namespace ttr::test
