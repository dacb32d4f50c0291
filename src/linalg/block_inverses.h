/// The memory of inverses of small symmetric matrices that are computed side by side.
#pragma once

#include <cstdint>

namespace ttr::linalg {

/// Blocks whose inverses are computed side by side.
inline constexpr std::int64_t kBlocksTogether = 8;

/// Doubles that ln::BlockInverses works on: block + 1 rows of blocks, lane by lane.
constexpr std::int64_t BlockInverseNumbers(std::int64_t block) {
  return kBlocksTogether * (block + 1) * block;
}

}  // namespace ttr::linalg
