/// States whose matrix lies in bfloat16 or float16 (EntryRole::kWrittenMatrix), in float32 for
/// engines.
#pragma once

#include <cstdint>
#include <span>

#include "ttr/state.h"

namespace ttr {

/// Has the state an entry in two bytes a number that arithmetic widens?
bool IsRounded(const Requirements& requirements, const State& state);

/// A copy of a state in float32 (or float64), of all rows or of those that `slots` names, which may
/// lie beyond the views' own.
State Widened(const State& state, std::span<const std::int64_t> slots = {});

/// Rounds such a copy into the state.
void Round(const State& wide, const State& state, std::span<const std::int64_t> slots = {});

}  // namespace ttr
