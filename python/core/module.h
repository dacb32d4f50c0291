/// The parts of the module ttr._core, one file each.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "ttr/layer.h"
#include "ttr/recipe.h"

namespace ttr::python {

/// A layer that several Python objects keep.
struct SharedLayer {
  std::shared_ptr<const Layer> layer;
};

/// Text (a zoo name, changes in braces, a recipe line), a dictionary, or a Recipe.
Recipe RecipeFrom(nanobind::handle recipe);

void BindRecipe(nanobind::module_& module);
void BindLayer(nanobind::module_& module);
void BindDecoder(nanobind::module_& module);
void BindMemory(nanobind::module_& module);

}  // namespace ttr::python
