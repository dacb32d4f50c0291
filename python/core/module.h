/// The parts of the module ttr._core, one file each.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <string_view>

#include "python/sizes.h"
#include "ttr/decoder.h"
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

/// What makes a Decoder, or the slots of a StatePool, beside the layer.
struct DecoderKeywords {
  GivenSizes sizes;
  DecoderOptions options;
};
/// The parameters of both behind those of their own: a signature, and its reader. TypeError: a
/// keyword that is unknown, missing, or no whole number.
#define TTR_DECODER_KEYWORDS                                       \
  "key_dim: int, value_dim: int, heads: int = 1, "                 \
  "query_heads: int | None = None, key_heads: int | None = None, " \
  "value_heads: int | None = None, features: int = 0, "            \
  "dtype: object = 'float32', draft: int = 0, window: int = 0) -> None"
DecoderKeywords DecoderKeywordsFrom(std::string_view op, const nanobind::kwargs& keywords,
                                    std::int64_t batch);

void BindRecipe(nanobind::module_& module);
void BindLayer(nanobind::module_& module);
void BindDecoder(nanobind::module_& module);
void BindStatePool(nanobind::module_& module);
void BindForecaster(nanobind::module_& module);
void BindMemory(nanobind::module_& module);
void BindRegression(nanobind::module_& module);

}  // namespace ttr::python
