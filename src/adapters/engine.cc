#include "src/adapters/engine.h"

#include <limits>
#include <utility>

#include "src/core/fill.h"

namespace ttr {

double StartOf(const StateSpec& spec) {
  return spec.role == EntryRole::kMaximum ? -std::numeric_limits<double>::infinity() : 0;
}

void AddMissing(const Recipe& recipe, std::span<const StateSpec> specs, const Dims& dims,
                DType dtype, State& state) {
  for (const StateSpec& spec : specs) {
    if (state.Get(spec.name).defined()) continue;
    Tensor tensor(spec.counts() ? DType::kInt64 : dtype, StateShape(spec, recipe, dims));
    if (StartOf(spec) != 0) Fill(tensor, StartOf(spec));
    state.Set(spec.name, std::move(tensor));
  }
}

}  // namespace ttr
