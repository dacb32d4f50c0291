/// A call of a layer: checked, then handed to its engine.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "src/adapters/engine.h"
#include "ttr/call.h"
#include "ttr/executor.h"

namespace ttr {

inline Executor& ExecutorOf(const CallOptions& options) {
  return options.executor != nullptr ? *options.executor : DefaultExecutor();
}

/// `v` has the rows of one token.
void RequireOneToken(std::string_view op, const Recipe& recipe, const Inputs& inputs);

/// Checks inputs and state, and returns the sizes that follow. `y` has the sizes of a call that
/// reads a memory before anything was memorized, or without queries.
Dims CheckCall(std::string_view op, const Requirements& requirements, const Inputs& inputs,
               const State& state, Needs needs, const TensorView& y = {});

/// Checks a call whose sizes are known; a pool keeps no pairs, so that no bias of pairs is looked
/// at.
void CheckCallOf(std::string_view op, const Requirements& requirements, const Dims& dims,
                 const Inputs& inputs, const State& state);

/// What runs, and as what it is named in errors.
struct Operator {
  std::string_view name;
  const Requirements& requirements;
  const Engine& engine;
  std::size_t recipe_hash;
  const Prepared& prepared;
  Needs needs = Needs::kBoth;
};

/// What a Decoder adds.
struct Auxiliary {
  TensorView numbers{};
  const Pendency* pendency = nullptr;
  std::span<const std::int64_t> slots{};  ///< EngineCall::slots
  Tensor* of_pairs = nullptr;  ///< of a memory that keeps pairs: where its numbers are, or will be
  std::span<const std::byte> before{}, behind{};  ///< CallMemory
};

/// Runs what has been checked. `state` gets the entries that it lacks.
void RunChecked(const Operator& op, const Dims& dims, const Inputs& inputs, State& state,
                const Outputs& outputs, const CallOptions& options,
                const Auxiliary& auxiliary = {});

/// Checks everything, then runs.
void RunCall(const Operator& op, const Inputs& inputs, State& state, const Outputs& outputs,
             const CallOptions& options, const Auxiliary& auxiliary = {});

}  // namespace ttr
