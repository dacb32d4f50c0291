#include "src/adapters/network_state.h"

#include <cstddef>
#include <string>
#include <utility>

#include "src/random/start_weights.h"
#include "ttr/inputs.h"

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

/// The start of "state.w<layer + 1>".
Tensor StartWeights(const Recipe& recipe, const Dims& dims, DType dtype, std::size_t layer,
                    const Shape& shape) {
  Tensor tensor(dtype, shape);
  if (recipe.function.depth == 1) return tensor;
  std::vector<std::int64_t> widths(static_cast<std::size_t>(recipe.function.depth) + 1,
                                   dims.hidden);
  widths.front() = dims.key_dim;
  widths.back() = dims.value_dim;
  const std::int64_t numbers = shape[2] * shape[3];
  for (std::int64_t h = 0; h < shape[1]; ++h) {
    const std::vector<double> w = DrawStartWeights(static_cast<std::uint64_t>(recipe.function.seed),
                                                   static_cast<std::uint64_t>(h), widths)[layer];
    for (std::int64_t n = 0; n < shape[0]; ++n) {
      const std::int64_t first = (n * shape[1] + h) * numbers;
      for (std::int64_t i = 0; i < numbers; ++i) {
        StoreElement(tensor.data(), dtype, first + i, w[static_cast<std::size_t>(i)]);
      }
    }
  }
  return tensor;
}

}  // namespace

std::string NetworkEntryOf(std::string_view name) {
  if (!name.starts_with(kAnchor)) return "";
  return std::string(kPrefix) + std::string(name.substr(kAnchor.size()));
}

void CompleteNetwork(const Requirements& requirements, const Dims& dims, DType dtype,
                     State& state) {
  const Recipe& recipe = requirements.recipe;
  std::size_t layer = 0;
  for (const StateSpec& spec : requirements.state) {
    const TensorView given = state.Get(spec.name);
    const Shape shape = StateShape(spec, recipe, dims);
    const bool weights = spec.name.starts_with("state.w");
    if (given.defined() && given.rank() < shape.rank()) {
      state.Set(spec.name, Spread(given, shape));
    } else if (!given.defined() && weights) {
      state.Set(spec.name, StartWeights(recipe, dims, dtype, layer, shape));
    } else if (const std::string of = NetworkEntryOf(spec.name); !given.defined() && !of.empty()) {
      state.Set(spec.name, Tensor::Copy(state.Get(of)));
    } else if (!given.defined()) {
      state.Set(spec.name, Tensor(spec.counts ? DType::kInt64 : dtype, shape));
    }
    if (weights) ++layer;
  }
}

}  // namespace ttr
