#include "layers.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text_cache.h"
#include "ttr/recipe.h"
#include "ttr/state.h"
#include "ttr/tensor.h"

namespace ttr::pytorch {
namespace {

bool IsZero(const TensorView& view) {
  for (std::int64_t i = 0; i < view.shape().elements(); ++i) {
    if (LoadElement(view.data(), view.dtype(), i) != 0) return false;
  }
  return true;
}

/// Looks at the start of a memory of the smallest size, with inputs that are one: a start that
/// depends on sizes or on an input (a ridge) shows there.
bool StartsAtZero(const Layer& layer) {
  const Recipe& recipe = layer.recipe();
  Dims dims;
  dims.tokens = 1;
  dims.key_dim = dims.value_dim = 2;
  dims.features = 2;
  std::vector<ttr::Tensor> owners;
  Inputs inputs;
  for (const InputSpec& spec : layer.requirements().inputs) {
    if (spec.name == "cu_seqlens") continue;
    owners.emplace_back(DType::kFloat32, InputShape(spec, recipe, dims));
    const bool negative = spec.range == Range::kNonPositive;
    for (float& number : owners.back().as<float>()) number = negative ? -1.0F : 1.0F;
    inputs.*spec.view = owners.back().view();
  }
  const State start = layer.InitialState(inputs);
  return std::ranges::all_of(start.entries(),
                             [](const State::Entry& entry) { return IsZero(entry.view); });
}

}  // namespace

CachedLayer::CachedLayer(const std::string& text, const std::string& engine)
    : layer(engine.empty() ? Layer(ParseRecipe(text)) : Layer(ParseRecipe(text), engine)) {
  for (const StateSpec& spec : layer.requirements().state) {
    if (std::ranges::find(spec.shape, Axis::kPairs) != spec.shape.end()) keeps_pairs = true;
  }
  starts_at_zero = !keeps_pairs && layer.recipe().reading.causal && StartsAtZero(layer);
}

std::shared_ptr<const CachedLayer> FindLayer(const std::string& recipe, const std::string& engine) {
  static auto& cache = *new TextCache<CachedLayer>;  // outlives every thread that may still call
  const auto make = [&] { return std::make_shared<const CachedLayer>(recipe, engine); };
  return engine.empty() ? cache.Find(recipe, make) : cache.Find(engine + "\n" + recipe, make);
}

}  // namespace ttr::pytorch
