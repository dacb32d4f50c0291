#include "experiments/report/chart_json.h"

#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "ttr/error.h"

namespace ttr::report {
namespace {

// What `name` says, by its word; `otherwise` where it is absent.
template <typename Value>
Value Word(const nlohmann::json& json, const char* name, const std::map<std::string, Value>& words,
           Value otherwise) {
  if (!json.contains(name)) return otherwise;
  const auto word = json.at(name).get<std::string>();
  const auto found = words.find(word);
  if (found != words.end()) return found->second;
  std::string known;
  for (const auto& [key, value] : words) known += (known.empty() ? "" : ", ") + key;
  throw Error("chart", name, "of " + known, word);
}

std::vector<double> Numbers(const nlohmann::json& json, const char* name) {
  std::vector<double> numbers;
  for (const nlohmann::json& item : json.value(name, nlohmann::json::array())) {
    const bool gap = item.is_null();
    numbers.push_back(gap ? std::numeric_limits<double>::quiet_NaN() : item.get<double>());
  }
  return numbers;
}

Axis ReadAxis(const nlohmann::json& json) {
  Axis axis{.label = json.value("label", ""),
            .scale = Word<Scale>(
                json, "scale",
                {{"linear", Scale::kLinear}, {"log10", Scale::kLog10}, {"log2", Scale::kLog2}},
                Scale::kLinear)};
  if (json.contains("min")) axis.min = json.at("min").get<double>();
  if (json.contains("max")) axis.max = json.at("max").get<double>();
  return axis;
}

Panel ReadPanel(const nlohmann::json& json) {
  Panel panel{.title = json.value("title", ""),
              .x = ReadAxis(json.value("x", nlohmann::json::object())),
              .y = ReadAxis(json.value("y", nlohmann::json::object()))};
  for (const nlohmann::json& line : json.value("series", nlohmann::json::array())) {
    panel.series.push_back(
        {.name = line.value("name", ""),
         .x = Numbers(line, "x"),
         .y = Numbers(line, "y"),
         .low = Numbers(line, "low"),
         .high = Numbers(line, "high"),
         .mark = Word<Mark>(
             line, "mark",
             {{"line", Mark::kLine}, {"points", Mark::kPoints}, {"line_points", Mark::kLinePoints}},
             Mark::kLine)});
  }
  return panel;
}

}  // namespace

Chart ChartFromJson(std::string_view text) try {
  const nlohmann::json json = nlohmann::json::parse(text);
  Chart chart{.title = json.value("title", ""), .subtitle = json.value("subtitle", "")};
  for (const nlohmann::json& panel : json.value("panels", nlohmann::json::array())) {
    chart.panels.push_back(ReadPanel(panel));
  }
  return chart;
} catch (const nlohmann::json::exception& error) {
  throw Error(std::string("[chart] the description must be a chart as JSON but ") + error.what());
}

}  // namespace ttr::report
