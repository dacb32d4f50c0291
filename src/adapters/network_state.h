/// The state of a network that is trained while it reads, complete.
#pragma once

#include <string>
#include <string_view>

#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

/// Adds what a state lacks: start weights, the recipe's (docs/layers.md); as the weights where the
/// mini-batch began, the weights; else zeros. Entries that all sequences share become one for each.
void CompleteNetwork(const Requirements& requirements, const Dims& dims, DType dtype, State& state);

/// The entry that "state.anchor_w1", ... begins as where it is not given: "state.w1". Empty for
/// entries that begin as no other.
std::string NetworkEntryOf(std::string_view name);

}  // namespace ttr
