// The paper's figure 3 on the page of ttr demo: layers that were trained by Python.
#pragma once

#include <filesystem>

#include "experiments/report/page.h"

namespace ttr::tools {

// From the table mqar-trained.csv that `python -m ttr.experiments mqar` writes. Throws ttr::Error
// for another table.
report::Section TrainedSection(const std::filesystem::path& csv);

}  // namespace ttr::tools
