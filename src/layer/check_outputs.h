/// Validation of what a call writes to.
#pragma once

#include <string_view>

#include "ttr/layer.h"

namespace ttr {

/// Shapes and dtypes of y and status, and that nothing that is written overlaps anything else of
/// the call. Throws an Error.
void CheckOutputs(std::string_view op, const Dims& dims, const Inputs& inputs, const State& state,
                  const Outputs& outputs);

/// Gradients: the views of `dinputs` that are defined are shaped as the inputs they belong to; dy
/// as the output; dstate as the final state.
void CheckGradients(std::string_view op, const Dims& dims, const Inputs& inputs,
                    const TensorView& dy, const Inputs& dinputs);

}  // namespace ttr
