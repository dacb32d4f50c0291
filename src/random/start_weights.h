/// The weights that a network of several layers begins with where none are given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ttr {

/// A matrix [widths[l], widths[l + 1]] for every layer, row by row; where the network is gated all
/// but the last are twice as wide. Numbers are draws of NormalAt(seed, stream), one layer after the
/// other, over sqrt(widths[l]). A single layer starts with zeros.
std::vector<std::vector<double>> DrawStartWeights(std::uint64_t seed, std::uint64_t stream,
                                                  std::span<const std::int64_t> widths, bool gated);

}  // namespace ttr
