/// The parts of the module ttr._core, one file each.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "ttr/layer.h"
#include "ttr/recipe.h"

namespace ttr::python {

/// A layer that several Python objects keep.
struct SharedLayer {
  std::shared_ptr<const Layer> layer;
};

/// Text (a zoo name, changes in braces, a recipe line), a dictionary, or a Recipe.
Recipe RecipeFrom(nanobind::handle recipe);

/// A layer, or what makes one.
std::shared_ptr<const Layer> LayerFrom(nanobind::handle layer);

/// The sizes of a Decoder, or of a slot, as Python says them; heads that are not said are as many
/// as memories.
struct GivenSizes {
  std::int64_t key_dim = 0, value_dim = 0, heads = 1, batch = 1, features = 0;
  std::optional<std::int64_t> query_heads{}, key_heads{}, value_heads{};
};
Dims TokenDims(const Recipe& recipe, const GivenSizes& sizes);

void BindRecipe(nanobind::module_& module);
void BindLayer(nanobind::module_& module);
void BindDecoder(nanobind::module_& module);
void BindStatePool(nanobind::module_& module);
void BindMemory(nanobind::module_& module);

}  // namespace ttr::python
