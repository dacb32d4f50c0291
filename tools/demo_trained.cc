#include "tools/demo_trained.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "experiments/data/csv_rows.h"
#include "experiments/data/input.h"
#include "ttr/error.h"

namespace ttr::tools {
namespace {

constexpr std::size_t kMostRowBytes = 1 << 16;

// Rows of the table, a field by the name of its column.
using Row = std::map<std::string, std::string>;

std::vector<Row> ReadRows(const std::filesystem::path& path) {
  experiments::Input input(path.string());
  experiments::CsvRows rows(input.stream(), input.name(), ',', kMostRowBytes);
  std::vector<std::string> names, fields;
  std::int64_t line = 0;
  rows.Next(names, line);
  for (const char* wanted : {"method", "architecture", "pairs", "width", "tokens", "accuracy",
                             "standard_error", "seeds"}) {
    if (std::ranges::find(names, wanted) == names.end()) {
      throw Error("demo", path.string(), fmt::format("a table with a column {}", wanted),
                  "without one");
    }
  }
  std::vector<Row> found;
  while (rows.Next(fields, line)) {
    Row& row = found.emplace_back();
    for (std::size_t i = 0; i < std::min(names.size(), fields.size()); ++i) {
      row[names[i]] = fields[i];
    }
  }
  return found;
}

// NaN for an empty field: one seed has no standard error.
double Number(const std::string& field) {
  return field.empty() ? std::numeric_limits<double>::quiet_NaN() : std::atof(field.c_str());
}

report::Series& SeriesOf(report::Panel& panel, const std::string& method) {
  for (report::Series& series : panel.series) {
    if (series.name == method) return series;
  }
  return panel.series.emplace_back(
      report::Series{.name = method, .mark = report::Mark::kLinePoints});
}

report::Panel& PanelOf(report::Chart& chart, const std::string& title) {
  for (report::Panel& panel : chart.panels) {
    if (panel.title == title) return panel;
  }
  report::Panel& panel = chart.panels.emplace_back();
  panel.title = title;
  panel.x = {.label = "tokens T", .scale = report::Scale::kLog2};
  panel.y = {.label = "accuracy", .min = 0, .max = 1};
  return panel;
}

}  // namespace

report::Section TrainedSection(const std::filesystem::path& csv) {
  report::Chart chart{.title = "Recall of trained layers"};
  std::string seeds;
  for (Row& row : ReadRows(csv)) {
    const std::string title =
        fmt::format("{}, P = {}, d = {}", row["architecture"], row["pairs"], row["width"]);
    report::Series& series = SeriesOf(PanelOf(chart, title), row["method"]);
    const double accuracy = Number(row["accuracy"]), error = Number(row["standard_error"]);
    series.x.push_back(Number(row["tokens"]));
    series.y.push_back(accuracy);
    series.low.push_back(std::isnan(error) ? accuracy : accuracy - error);
    series.high.push_back(std::isnan(error) ? accuracy : accuracy + error);
    seeds = row["seeds"];
  }
  chart.subtitle = fmt::format("mean of {} seed(s) and its standard error", seeds);

  report::Section section;
  section.title = "Associative recall, trained";
  section.text = {
      "One layer, a convolution of length two that makes the keys, and an embedding: the paper's "
      "third "
      "figure. `strict` is the paper's architecture; `gate` adds a write gate, which learns what "
      "is "
      "worth writing."};
  if (!chart.panels.empty()) section.figures.push_back(report::MakeFigure(chart));
  section.command = "python -m ttr.experiments mqar";
  return section;
}

}  // namespace ttr::tools
