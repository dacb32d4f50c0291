// The gates of a memory: every input of its recipe beside q, k and v, as plain numbers of one
// token.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ttr/inputs.h"
#include "ttr/memory.h"

namespace ttr {

bool IsGate(const InputSpec& spec);

/// Does every token have a gate of its own? Else the gate is a constant of the recipe.
bool IsPerToken(const InputSpec& spec);

/// The sizes of a call with one token; of `features_w` the number of features, if it is given.
Dims SizesOfCalls(const Recipe& recipe, const AssociativeMemory::Sizes& sizes,
                  const TensorView& features_w);

/// The gate of a name. Error: names it and those that the recipe takes.
const InputSpec& RequireGate(std::string_view op, const std::vector<InputSpec>& specs,
                             std::string_view name);

/// Numbers of one token as the tensor that the layer takes (B = T = 1). The number of features is
/// whatever was given. Error: names the gate and its shape.
TensorView GateView(std::string_view op, const InputSpec& spec, const Recipe& recipe,
                    const AssociativeMemory::Sizes& sizes, std::span<const double> values);

/// "[B,T,H] with H = 2, Dk = 16, Dv = 1"
std::string GateText(const InputSpec& spec, const AssociativeMemory::Sizes& sizes);

}  // namespace ttr
