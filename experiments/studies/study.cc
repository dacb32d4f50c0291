#include "experiments/studies/study.h"

#include <nlohmann/json.hpp>

#include "experiments/report/atomic_file.h"

namespace ttr::experiments {

report::Table ClaimsTable(const std::vector<Claim>& claims) {
  report::Table table("Claims");
  table.AddText("claim").AddText("verdict").AddText("evidence");
  for (const Claim& claim : claims) {
    table.AddRow({claim.what, claim.holds ? "holds" : "does not hold", claim.evidence});
  }
  return table;
}

nlohmann::ordered_json ToJson(const StudyResult& result) {
  nlohmann::ordered_json json;
  json["name"] = result.name;
  json["title"] = result.title;
  json["sentences"] = result.sentences;
  json["command"] = result.command;
  json["claims"] = nlohmann::ordered_json::array();
  for (const Claim& claim : result.claims) {
    json["claims"].push_back(
        {{"claim", claim.what}, {"holds", claim.holds}, {"evidence", claim.evidence}});
  }
  json["tables"] = nlohmann::ordered_json::object();
  for (const StudyTable& table : result.tables) json["tables"][table.stem] = table.table.ToJson();
  return json;
}

std::string ToJsonText(const StudyResult& result) { return report::DumpJson(ToJson(result)); }

std::string SeedsOf(const StudyResult& result) {
  return result.tables.front().table.meta().at("seeds").get<std::string>();
}

void Save(const StudyResult& result, const std::filesystem::path& folder) {
  report::EnsureFolder(folder);
  for (const StudyTable& table : result.tables) {
    table.table.WriteCsv(folder / (table.stem + ".csv"));
    table.table.WriteJson(folder / (table.stem + ".json"));
  }
  for (const StudyChart& chart : result.charts) report::SaveChart(chart.chart, folder / chart.stem);
  report::WriteFile(folder / (result.name + ".json"), ToJsonText(result) + "\n");
}

}  // namespace ttr::experiments
