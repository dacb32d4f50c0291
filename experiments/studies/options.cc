#include "experiments/studies/options.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "experiments/report/table.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

std::string Text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_float() ? report::ExactReal(value.get<double>()) : value.dump();
}

std::string Quoted(const std::string& text) {
  const bool plain = text.find_first_not_of(
                         "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.,+") ==
                     std::string::npos;
  return plain && !text.empty() ? text : "'" + text + "'";
}

}  // namespace

nlohmann::ordered_json Describe(const OptionFields& fields) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (const OptionField& field : fields) {
    std::visit([&](const auto* value) { json[field.name] = *value; }, field.value);
  }
  return json;
}

void SetMeta(report::Table& table, const std::string& seeds, const OptionFields& options) {
  table.SetMeta("seeds", seeds).SetMetaJson("options", Describe(options));
}

std::string CommandOf(const std::string& name, const OptionFields& fields,
                      const OptionFields& defaults, const StudyRun& run) {
  std::string command = "ttr experiment " + name;
  const nlohmann::ordered_json usual = Describe(defaults);
  const nlohmann::ordered_json options = Describe(fields);
  for (const auto& [option, value] : options.items()) {
    if (value == usual[option]) continue;
    if (!value.is_array()) {
      command += fmt::format(" --{} {}", option, Quoted(Text(value)));
      continue;
    }
    // Each entry by itself: a recipe may hold a comma.
    for (const auto& entry : value) command += fmt::format(" --{} {}", option, Quoted(Text(entry)));
  }
  if (run.seeds != 0) command += fmt::format(" --seeds {}", run.seeds);
  if (run.first_seed != StudyRun().first_seed) command += fmt::format(" --seed {}", run.first_seed);
  return command;
}

void RequireOption(bool holds, const std::string& study, const std::string& option,
                   const std::string& required, const std::string& given) {
  if (!holds) throw Error(study, option, required, given);
}

void RequireOption(bool holds, const std::string& study, const std::string& option,
                   const std::string& required, double given) {
  if (!holds) throw Error(study, option, required, report::ExactReal(given));
}

}  // namespace ttr::experiments
