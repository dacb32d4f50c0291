/// The options of a study as a list of named fields: the command line, the cache's key, the meta
/// data of tables and the command that makes a result again all walk the same list.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>
#include <vector>

#include "experiments/studies/study.h"

namespace ttr::experiments {

struct OptionField {
  using Value = std::variant<double*, std::int64_t*, bool*, std::vector<double>*,
                             std::vector<std::int64_t>*, std::vector<std::string>*>;
  std::string name;  ///< as on the command line, without the dashes: "local-ridge"
  Value value;       ///< where it lies
  std::string help;
};
using OptionFields = std::vector<OptionField>;

/// {"rho": 0.5, ...}
nlohmann::ordered_json Describe(const OptionFields& fields);

/// The meta data of a study's table: "seeds" and "options".
void SetMeta(report::Table& table, const std::string& seeds, const OptionFields& options);

/// "ttr experiment NAME --rho 0.3 --seeds 5": what differs from `defaults`, quoted for a shell.
std::string CommandOf(const std::string& name, const OptionFields& fields,
                      const OptionFields& defaults, const StudyRun& run);

/// Checks one option, with a text like "[mqar] dim must be at least 1 but is 0".
void RequireOption(bool holds, const std::string& study, const std::string& option,
                   const std::string& required, const std::string& given);
void RequireOption(bool holds, const std::string& study, const std::string& option,
                   const std::string& required, double given);

}  // namespace ttr::experiments
