/// Runs the parts of a study over its seeds, in parallel, with a progress bar and a cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

using Numbers = std::vector<double>;

/// [seed][part]: what work(seed, part) returned, in the order of the seeds.
using PartResults = std::vector<std::vector<Numbers>>;

/// Calls work(seed, part) for every seed of `run` (`default_seeds` of them where it says 0) and
/// every part in [0, parts). `work` is a pure function, called from several threads. A seed goes
/// into the cache as soon as its parts are complete; `options` is everything that its numbers
/// depend on beside the seed, and a cached result counts only where `options` and the version of
/// the library are the same. Errors: seeds out of range.
PartResults RunParts(const StudyRun& run, const std::string& name, std::int64_t default_seeds,
                     const OptionFields& options, std::int64_t parts,
                     const std::function<Numbers(std::uint64_t seed, std::int64_t part)>& work);

/// The seeds of a run as the meta data of tables name them: "1..20".
std::string SeedRange(const StudyRun& run, std::int64_t default_seeds);
std::int64_t SeedCount(const StudyRun& run, std::int64_t default_seeds);

}  // namespace ttr::experiments
