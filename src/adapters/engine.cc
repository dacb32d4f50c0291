#include "src/adapters/engine.h"

#include <limits>
#include <utility>

namespace ttr {

void AddMissing(const Recipe& recipe, std::span<const StateSpec> specs, const Dims& dims,
                DType dtype, State& state) {
  for (const StateSpec& spec : specs) {
    if (state.Get(spec.name).defined()) continue;
    Tensor tensor(spec.counts ? DType::kInt64 : dtype, StateShape(spec, recipe, dims));
    if (spec.name == "state.m") {
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        StoreElement(tensor.data(), dtype, i, -std::numeric_limits<double>::infinity());
      }
    }
    state.Set(spec.name, std::move(tensor));
  }
}

}  // namespace ttr
