/// Validation of what a call writes to, and of gradients. All of it throws an Error before anything
/// is written.
#pragma once

#include <string_view>

#include "src/adapters/engine.h"
#include "ttr/call.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

/// Shapes, dtypes and strides of the outputs; nothing that is written overlaps itself or anything
/// else of the call. A state is written unless the call only reads.
void CheckOutputs(std::string_view op, const Dims& dims, const Inputs& inputs, const State& state,
                  const Outputs& outputs, const CallOptions& options, Needs needs);

/// The entries of a state that is written from another one: names, shapes, overlap.
void CheckFinalState(std::string_view op, const Requirements& requirements, const Dims& dims,
                     const Inputs& inputs, const State& initial, const State& final,
                     const Outputs& outputs);

/// What Backward reads beside its call (dy, dstate) and what it writes (dinputs, dinitial).
struct GradientViews {
  const TensorView& dy;
  const State& dstate;
  const Inputs& dinputs;
  const State& dinitial;
};
void CheckGradients(std::string_view op, const Requirements& requirements, const Dims& dims,
                    const Inputs& inputs, const State& initial, const GradientViews& gradients,
                    const CallOptions& options);

/// Sizes that no memory of this machine holds are an Error that says how much they take: of a
/// state, and of what `engine`, if given, forms beside it.
void CheckFits(std::string_view op, const Requirements& requirements, const Dims& dims,
               const State& state, const Engine* engine, bool backward = false);

/// CallOptions::saved is empty, or has at least `needed` bytes and begins at a multiple of 64.
void CheckSaved(std::string_view op, const CallOptions& options, std::size_t needed);

}  // namespace ttr
