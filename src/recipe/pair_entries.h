/// The entries of a state in which a memory keeps its pairs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {

/// Has an entry a row for every pair?
inline bool HasPairRows(const StateSpec& spec) {
  return spec.role == EntryRole::kPairs || spec.role == EntryRole::kPairWeight;
}

/// The first entry of this role; null where the recipe has none.
inline const StateSpec* SpecOf(const Requirements& requirements, EntryRole role) {
  const auto spec = std::ranges::find(requirements.state, role, &StateSpec::role);
  return spec != requirements.state.end() ? &*spec : nullptr;
}

/// Its tensor; absent where the state lacks it, too.
inline TensorView EntryOf(const Requirements& requirements, const State& state, EntryRole role) {
  const StateSpec* const spec = SpecOf(requirements, role);
  return spec != nullptr ? state.Get(spec->name) : TensorView();
}

/// Rows for pairs that a state has.
inline std::int64_t PairCapacity(const Requirements& requirements, const State& state) {
  const TensorView rows = EntryOf(requirements, state, EntryRole::kPairs);
  return rows.defined() ? rows.size(1) : 0;
}

}  // namespace ttr
