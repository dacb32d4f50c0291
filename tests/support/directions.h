// Gradients along a direction: two runs of the definition judge those of long sequences.
#pragma once

#include "tests/support/calls.h"
#include "ttr/layer.h"

namespace ttr::test {

// The layer's gradients of <dy, y> by all inputs, float64, along a random direction that steps on
// the sizes of what is positive, against a central difference of the definition: within `tolerance`
// of the sum of their terms' sizes.
void ExpectSlopeOfTheDefinition(const Layer& layer, const Call& call, const TensorView& dy,
                                double tolerance);

}  // namespace ttr::test
