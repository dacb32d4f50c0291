/// The stability of the recursion itself: least squares that forgets, over a long stream, against a
/// direct solve of what still counts. The engine carries A and B; textbooks carry A^-1.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/report/table.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/stability.h"

namespace ttr::experiments {

/// Distance of every way to the direct solve, for every stream and length; infinite where an answer
/// is not finite.
Numbers RunStreams(const StabilityOptions& options, std::uint64_t seed);

/// The worst of all seeds, and what is claimed of it. `part`: where RunStreams() stands.
report::Table StreamTable(const StabilityOptions& options, const PartResults& results,
                          std::size_t part);
std::vector<Claim> StreamClaims(const StabilityOptions& options, const PartResults& results,
                                std::size_t part);

}  // namespace ttr::experiments
