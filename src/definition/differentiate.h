/// Gradients of any recipe by central differences of the definition: slow, and right for all.
#pragma once

#include "ttr/call.h"
#include "ttr/executor.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr::definition {

/// What Layer::Backward is given beside a call, and what it is asked for.
struct Gradients {
  const TensorView& dy;
  const State& dstate;
  const Inputs& dinputs;
  State& dinitial;
};

/// As Layer::Backward. With L = sum dy . y + sum dstate . state_T, every number x of every
/// asked-for input and of the initial state gets (L(x + h) - L(x - h)) / 2h, h = eps^(1/3) max(1,
/// |x|), or the one-sided form of the same order at the edge of the input's range. Where x is not
/// finite the gradient is zero; counts of the state (positions, lengths) have none.
void Differentiate(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                   const State& initial, const Gradients& gradients, Executor& executor);

}  // namespace ttr::definition
