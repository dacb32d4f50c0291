// docs/layers.md, generated from the zoo.
#pragma once

#include <string>
#include <vector>

#include "ttr/inputs.h"

namespace ttr::tools {

// "[B, T, H, Dk]"
std::string ShapeText(const std::vector<Axis>& shape);

// The whole document.
std::string ZooMarkdown();

}  // namespace ttr::tools
