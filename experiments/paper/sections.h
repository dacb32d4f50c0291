// The sections of the paper, one function each.
#pragma once

#include "experiments/paper/paper.h"

namespace ttr::experiments {

std::span<const PaperEntry> PaperIntroduction();
std::span<const PaperEntry> PaperExistingLayers();
std::span<const PaperEntry> PaperFramework();
std::span<const PaperEntry> PaperLeastSquares();
std::span<const PaperEntry> PaperWeighted();
std::span<const PaperEntry> PaperFirstOrder();
std::span<const PaperEntry> PaperNonparametric();
std::span<const PaperEntry> PaperOnlineRegression();
std::span<const PaperEntry> PaperKeys();
std::span<const PaperEntry> PaperRelated();
std::span<const PaperEntry> PaperAppendix();

}  // namespace ttr::experiments
