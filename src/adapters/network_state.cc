#include "src/adapters/network_state.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "src/random/start_weights.h"

namespace ttr {
namespace {

constexpr std::string_view kPrefix = "state.", kAnchor = "state.anchor_";

/// A tensor [N, ...] of a row [...] for every sequence.
Tensor Spread(const TensorView& row, const Shape& shape) {
  Tensor tensor(row.dtype(), shape);
  for (std::int64_t n = 0; n < shape[0]; ++n) {
    const TensorView to = tensor.view().Slice(0, n, 1);
    CopyInto(row, TensorView(to.data(), to.dtype(), row.shape()));
  }
  return tensor;
}

/// Puts the start weights of every layer that a state lacks.
void AddStartWeights(const Requirements& requirements, const Dims& dims, DType dtype,
                     State& state) {
  const Recipe& recipe = requirements.recipe;
  if (std::ranges::all_of(requirements.state, [&](const StateSpec& spec) {
        return !spec.name.starts_with("state.w") || state.Get(spec.name).defined();
      })) {
    return;
  }
  std::vector<std::int64_t> widths(static_cast<std::size_t>(recipe.function.depth) + 1,
                                   dims.hidden);
  widths.front() = dims.key_dim;
  widths.back() = dims.value_dim;
  std::vector<std::string> missing;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    missing.push_back("state.w" + std::to_string(l + 1));
    if (state.Get(missing.back()).defined()) {
      missing.back().clear();
      continue;
    }
    const bool doubled = recipe.function.gated && l + 2 < widths.size();
    const std::int64_t columns = widths[l + 1] * (doubled ? 2 : 1);
    state.Set(missing.back(), Tensor(dtype, {dims.states(), dims.heads, widths[l], columns}));
  }
  if (recipe.function.depth == 1) return;
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    const auto drawn =
        DrawStartWeights(static_cast<std::uint64_t>(recipe.function.seed),
                         static_cast<std::uint64_t>(h), widths, recipe.function.gated);
    for (std::size_t l = 0; l < drawn.size(); ++l) {
      if (missing[l].empty()) continue;
      const TensorView w = state.Get(missing[l]);
      const auto numbers = static_cast<std::int64_t>(drawn[l].size());
      for (std::int64_t n = 0; n < dims.states(); ++n) {
        for (std::int64_t i = 0; i < numbers; ++i) {
          StoreElement(w.data(), dtype, (n * dims.heads + h) * numbers + i,
                       drawn[l][static_cast<std::size_t>(i)]);
        }
      }
    }
  }
}

}  // namespace

std::string NetworkEntryOf(std::string_view name) {
  if (!name.starts_with(kAnchor)) return "";
  return std::string(kPrefix) + std::string(name.substr(kAnchor.size()));
}

void CompleteNetwork(const Requirements& requirements, const Dims& dims, DType dtype,
                     State& state) {
  const Recipe& recipe = requirements.recipe;
  AddStartWeights(requirements, dims, dtype, state);
  for (const StateSpec& spec : requirements.state) {
    const TensorView given = state.Get(spec.name);
    const Shape shape = StateShape(spec, recipe, dims);
    if (given.defined()) {
      if (given.rank() < shape.rank()) state.Set(spec.name, Spread(given, shape));
    } else if (const std::string of = NetworkEntryOf(spec.name); !of.empty()) {
      state.Set(spec.name, Tensor::Copy(state.Get(of)));
    } else {
      state.Set(spec.name, Tensor(spec.counts() ? DType::kInt64 : dtype, shape));
    }
  }
}

}  // namespace ttr
