/// Validation of what a call writes to, and of gradients. All of it throws an Error before anything
/// is written.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "src/adapters/engine.h"
#include "ttr/call.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

/// The memory of a call beside its inputs and outputs.
struct CallMemory {
  const State& state;              ///< written unless the call only reads
  const State* initial = nullptr;  ///< read, where `state` is written from another one
  /// Memory that a Decoder keeps before and behind its state, and writes like that.
  std::span<const std::byte> before{}, behind{};
};

/// Shapes, dtypes and strides of the outputs; nothing that is written overlaps itself or anything
/// else of the call.
void CheckOutputs(std::string_view op, const Dims& dims, const Inputs& inputs,
                  const CallMemory& memory, const Outputs& outputs, const CallOptions& options,
                  Needs needs);

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

/// Throws an Error where this machine has no memory for these sizes, and says how much they take:
/// for a state, and for what `engine`, if given, forms beside it.
void CheckFits(std::string_view op, const Requirements& requirements, const Dims& dims,
               const State& state, const Engine* engine, bool backward = false);

}  // namespace ttr
