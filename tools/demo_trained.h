// The paper's figure 3 on the page of ttr demo: layers that were trained by Python.
#pragma once

#include <filesystem>

#include "experiments/report/page.h"

namespace ttr::tools {

// From the chart mqar-trained.json that `python -m ttr.experiments mqar` writes. Throws ttr::Error
// where it is no chart.
report::Section TrainedSection(const std::filesystem::path& chart);

}  // namespace ttr::tools
