/// Room for the pairs that a call adds to a state.
#pragma once

#include <string_view>

#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

/// Gives every entry that keeps pairs room for those of the call. Entries that are absent are made;
/// what the state owns and lacks room grows to twice its size at least. What is bound and lacks it
/// is an Error, before anything is changed. Nothing where the recipe keeps no pairs.
void MakePairRoom(std::string_view op, const Requirements& requirements, const Dims& dims,
                  const Inputs& inputs, State& state);

/// The pairs of `initial` in entries of `final` where these have room for those of the call too,
/// else in entries of their own. What `final` binds must have it.
State PairsFor(std::string_view op, const Requirements& requirements, const Dims& dims,
               const Inputs& inputs, const State& initial, const State& final);

/// Rows of a gradient of the final state are those of that state: enough for the pairs that it has.
void CheckPairGradients(std::string_view op, const Requirements& requirements, const Dims& dims,
                        const Inputs& inputs, const State& initial, const State& dstate);

/// A pair bias has a column for every pair that the call sees: those of the state, then its own.
/// More are not read, so that rows of one large bias serve the calls of a sequence.
void CheckPairBias(std::string_view op, const Requirements& requirements, const Dims& dims,
                   const Inputs& inputs, Needs needs, const State& state);

}  // namespace ttr
