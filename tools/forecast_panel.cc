#include "tools/forecast_panel.h"

#include <algorithm>
#include <string>
#include <utility>

#include "experiments/real/panel.h"
#include "experiments/report/progress.h"
#include "tools/forecast_outputs.h"
#include "ttr/error.h"

namespace ttr::tools {
void CheckPanel(ForecastArguments& arguments) {
  if (arguments.by.empty()) return;
  const std::pair<const char*, const std::string*> others[] = {
      {"--save", &arguments.save}, {"--resume", &arguments.resume}, {"--chart", &arguments.chart}};
  for (const auto& [name, value] : others) {
    if (value->empty()) continue;
    throw Error("forecast", name, "absent with --by (pictures: --out FOLDER)", "given");
  }
  if (arguments.options.columns.empty()) arguments.options.columns = {"y"};
}

void RunPanel(const ForecastArguments& arguments, const experiments::ForecastOptions& options,
              experiments::TableReader& table) {
  std::string time = arguments.time;
  const auto& header = table.header();
  if (time.empty() && std::find(header.begin(), header.end(), "ds") != header.end()) time = "ds";
  const experiments::Panel panel = experiments::ReadPanel(table, arguments.by, time);
  experiments::KnownPanel known;
  if (!arguments.future.empty()) {
    if (time.empty()) {
      throw Error("forecast", "--time", "given with --by and --future, whose rows it tells apart",
                  "absent");
    }
    known = experiments::KnownPanel(arguments.future, arguments.Read(options.exogenous),
                                    arguments.by, time, options);
  }
  ForecastOutputs out(arguments.out, options.ahead > 0);
  const auto count = static_cast<std::int64_t>(panel.series.size());
  report::Progress progress("forecast", count, {.quiet = arguments.quiet || out.is_stdout()});
  const experiments::PanelForecasts forecasts = experiments::ForecastPanel(
      panel, options, known, [&](std::int64_t series) { progress.Advance(series); });
  progress.Clear();
  out.WriteLine(forecasts.header);
  for (const std::string& line : forecasts.lines) out.WriteLine(line);
  if (out.is_json()) out.Write(forecasts.ahead->ToJsonText() + "\n");
  if (out.is_folder()) {
    out.Add("errors", forecasts.each);
    if (forecasts.ahead) out.Add("ahead", *forecasts.ahead);
    out.Add("forecast", forecasts.chart);
  }
  out.Prepare();
  out.Commit();
  if (forecasts.ahead && !out.is_stdout()) PrintTable(arguments, *forecasts.ahead, true);
  PrintTable(arguments, forecasts.errors, out.is_file() && !forecasts.ahead);
  if (arguments.quiet) return;
  for (const std::string& note : forecasts.notes) Note(note);
  if (out.is_folder()) Note(out.Written());
}

}  // namespace ttr::tools
