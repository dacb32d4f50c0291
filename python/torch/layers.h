/// Layers by the text of their recipes: to parse and to plan one takes some microseconds.
#pragma once

#include <memory>
#include <string>

#include "ttr/layer.h"

namespace ttr::pytorch {

/// A layer, and what every call of it asks.
struct CachedLayer {
  CachedLayer(const std::string& text, const std::string& engine);

  Layer layer;
  bool keeps_pairs = false;    ///< the state has an axis that grows
  bool starts_at_zero = true;  ///< are all numbers of the start zero?
};

/// The layer of a recipe's text, on `engine` (empty: as planned). From any thread; the latest few
/// hundred are kept.
std::shared_ptr<const CachedLayer> FindLayer(const std::string& recipe,
                                             const std::string& engine = {});

}  // namespace ttr::pytorch
