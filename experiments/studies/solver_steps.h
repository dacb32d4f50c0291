/// How many steps conjugate gradients take to a tolerance where the ridge does not fade: by keys,
/// decay and preconditioner. On the engine, whose chunks the preconditioner chunk_factor knows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

/// Mean steps of an answer, one line for each kind of keys and decay; `dim` is that of keys.
report::Table SolverSteps(std::int64_t dim, const StudyRun& run, std::int64_t default_seeds);

}  // namespace ttr::experiments
