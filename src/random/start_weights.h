/// The weights that a network of several layers begins with where none are given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ttr {

/// Of every layer a matrix [widths[l], widths[l + 1]], gated twice as wide but for the last, row by
/// row: draws of NormalAt(seed, stream), one layer after the other, over sqrt(widths[l]). Of a
/// single layer zeros.
std::vector<std::vector<double>> DrawStartWeights(std::uint64_t seed, std::uint64_t stream,
                                                  std::span<const std::int64_t> widths, bool gated);

}  // namespace ttr
