/// Which stream of CounterRandom (ttr/util/random.h) each generator draws from, so that two
/// generators given the same seed never share a draw.
#pragma once

#include <cstdint>

namespace ttr::experiments {

inline constexpr std::uint64_t kRegressionStream = 1;
inline constexpr std::uint64_t kMqarStream = 2;
inline constexpr std::uint64_t kOrthonormalStream = 3;
/// Unit vectors: token `id` has the stream kUnitVectorStream + id, up to the end of the numbers.
inline constexpr std::uint64_t kUnitVectorStream = std::uint64_t{1} << 32;

}  // namespace ttr::experiments
