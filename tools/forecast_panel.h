// ttr forecast --by COLUMN: many series in one table.
#pragma once

#include "experiments/data/table.h"
#include "tools/forecast_options.h"

namespace ttr::tools {

// Refuses what has no meaning there; says which columns are meant where none is named: y and ds.
void CheckPanel(ForecastArguments& arguments);

void RunPanel(const ForecastArguments& arguments, const experiments::ForecastOptions& options,
              experiments::TableReader& table);

}  // namespace ttr::tools
