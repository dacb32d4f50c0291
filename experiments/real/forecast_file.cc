// A saved run of forecasts: one safetensors file. The memories' tensors and metadata have "I."
// before their names where there are several (one alone is a file that AssociativeMemory::Load
// reads); the rest is JSON in the metadata "extra.forecast".
#include <limits>
#include <nlohmann/json.hpp>

#include "experiments/real/forecast.h"
#include "ttr/error.h"
#include "ttr/util/safetensors.h"

namespace ttr::experiments {
namespace {

using Json = nlohmann::json;

constexpr const char* kKey = "forecast";

std::string UnitsName(Units units) { return units == Units::kWindow ? "window" : "raw"; }

Json OptionsJson(const ForecastOptions& options) {
  Json memories = Json::array();
  for (const NamedRecipe& memory : options.memories) {
    memories.push_back({{"text", memory.text}, {"recipe", ToString(memory.recipe)}});
  }
  Json saved = {{"columns", options.columns},
                {"lags", options.lags},
                {"horizon", options.horizon},
                {"season", options.season},
                {"units", UnitsName(options.units)},
                {"step", options.gates.step},
                {"decay", options.gates.decay},
                {"momentum", options.gates.momentum},
                {"weight_decay", options.gates.weight_decay},
                {"memories", memories}};
  if (options.interval != 0) {
    saved["interval"] = options.interval;
    saved["interval_decay"] = options.interval_decay;
  }
  if (!options.exogenous.empty()) saved["exogenous"] = options.exogenous;
  if (!options.sparse_lags.empty()) saved["sparse_lags"] = options.sparse_lags;
  if (!options.differences.empty()) saved["differences"] = options.differences;
  if (options.logarithm) saved["log"] = true;
  if (options.strategy != Strategy::kRecursive) saved["strategy"] = ToString(options.strategy);
  if (options.conformal != 0) saved["conformal"] = options.conformal;
  if (options.selects_bandwidth) saved["bandwidth"] = "auto";
  if (options.ahead != 0) saved["ahead"] = options.ahead;
  return saved;
}

ForecastOptions OptionsOf(const Json& saved) {
  ForecastOptions options;
  options.columns = saved.at("columns").get<std::vector<std::string>>();
  options.lags = saved.at("lags").get<std::int64_t>();
  options.horizon = saved.at("horizon").get<std::int64_t>();
  options.season = saved.at("season").get<std::int64_t>();
  options.units = saved.at("units") == "raw" ? Units::kRaw : Units::kWindow;
  options.gates.step = saved.at("step").get<double>();
  options.gates.decay = saved.at("decay").get<double>();
  options.gates.momentum = saved.at("momentum").get<double>();
  options.gates.weight_decay = saved.at("weight_decay").get<double>();
  options.interval = saved.value("interval", 0.);  // absent from files without intervals
  options.interval_decay = saved.value("interval_decay", 0.);
  options.exogenous = saved.value("exogenous", std::vector<std::string>());
  using Counts = std::vector<std::int64_t>;
  options.sparse_lags = saved.value("sparse_lags", Counts());
  options.differences = saved.value("differences", Counts());
  options.logarithm = saved.value("log", false);
  options.strategy = ParseStrategy(saved.value("strategy", std::string("recursive")));
  options.conformal = saved.value("conformal", std::int64_t{0});
  options.selects_bandwidth = saved.contains("bandwidth");
  options.ahead = saved.value("ahead", std::int64_t{0});
  for (const Json& memory : saved.at("memories")) {
    options.memories.push_back({memory.at("text").get<std::string>(),
                                ParseRecipe(memory.at("recipe").get<std::string>())});
  }
  return options;
}

// "I." where there are several memories, else nothing.
std::string Prefix(std::size_t i, std::size_t count) {
  return count == 1 ? "" : std::to_string(i) + ".";
}

Json RunJson(const std::filesystem::path& path, const TensorFile& file) {
  const auto found = file.metadata.find(std::string("extra.") + kKey);
  if (found == file.metadata.end()) {
    throw Error("resume", path.string(), "a file that ttr forecast --save wrote",
                "one without the metadata 'extra.forecast'");
  }
  const Json saved = Json::parse(found->second, nullptr, false);
  if (saved.is_discarded()) {
    throw Error("resume", "the metadata 'extra.forecast' of " + path.string(), "JSON", "damaged");
  }
  return saved;
}

// JSON that lacks something, or holds something else there, is a damaged file.
template <class Call>
auto Undamaged(const std::filesystem::path& path, Call&& call) {
  try {
    return call();
  } catch (const Json::exception& error) {
    throw Error("resume", path.string(), "a file that ttr forecast --save wrote",
                std::string("damaged: ") + error.what());
  }
}

void CheckSame(const std::filesystem::path& path, const Json& given, const Json& saved) {
  for (const char* name : {"interval", "interval_decay", "conformal", "bandwidth", "sparse_lags",
                           "differences", "log", "strategy", "exogenous"}) {
    const auto of = [&](const Json& options) {
      return options.contains(name) ? options.at(name).dump() : "absent";
    };
    if (of(given) == of(saved)) continue;
    throw Error("resume", name, of(saved) + " as in " + path.string(), of(given));
  }
  for (const auto& [name, value] : given.items()) {
    if (name == "ahead" || saved.at(name) == value) continue;  // it changes no other number
    throw Error("resume", name, saved.at(name).dump() + " as in " + path.string(), value.dump());
  }
}

// The memory whose tensors and metadata have this before their names.
AssociativeMemory MemoryIn(const TensorFile& file, const std::string& prefix,
                           const std::string& path) {
  TensorFile part;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with(prefix)) part.tensors.emplace(name.substr(prefix.size()), tensor);
  }
  for (const auto& [name, text] : file.metadata) {
    if (name.starts_with(prefix)) part.metadata.emplace(name.substr(prefix.size()), text);
  }
  return AssociativeMemory::FromTensors(std::move(part), path);
}

void CheckAlike(const AssociativeMemory& memory, const AssociativeMemory& here,
                const std::string& name) {
  if (memory.recipe() == here.recipe() && memory.sizes().key_dim == here.sizes().key_dim &&
      memory.sizes().value_dim == here.sizes().value_dim && memory.sizes().heads == 1) {
    return;
  }
  throw Error(
      "resume", name,
      ToString(here.recipe()) + " with keys of " + std::to_string(here.sizes().key_dim),
      ToString(memory.recipe()) + " with keys of " + std::to_string(memory.sizes().key_dim));
}

}  // namespace

ForecastOptions SavedOptions(const std::filesystem::path& path) {
  const TensorFile file = ReadSafetensors(path);
  return Undamaged(path, [&] { return OptionsOf(RunJson(path, file).at("options")); });
}

nlohmann::json Naive::Save() const { return {{"ring", ring_}, {"next", next_}}; }

void Naive::Load(const nlohmann::json& saved) {
  std::vector<double> ring;  // JSON has no NaN: null stands for it
  for (const Json& item : saved.at("ring")) {
    ring.push_back(item.is_null() ? std::numeric_limits<double>::quiet_NaN() : item.get<double>());
  }
  const auto next = saved.at("next").get<std::int64_t>();
  if (ring.size() != ring_.size() || next < 0 || next >= reach_) {
    throw Error("resume", "the naive forecaster's buffer",
                std::to_string(ring_.size()) + " numbers", std::to_string(ring.size()));
  }
  ring_ = ring;
  next_ = next;
}

void ForecastRun::Save(const std::filesystem::path& path) const {
  if (forecasters_.empty()) throw Error("save", "--memory", "given", "absent: nothing to save");
  Json naive = Json::array();
  for (const Naive& method : naive_) naive.push_back(method.Save());
  Json forecasters = Json::array();
  for (const Forecaster& forecaster : forecasters_)
    forecasters.push_back(Json::parse(forecaster.Save()));
  const Json run = {
      {"options", OptionsJson(options_)}, {"naive", naive}, {"forecasters", forecasters}};

  TensorFile file;
  std::vector<const AssociativeMemory*> memories;
  for (const Forecaster& forecaster : forecasters_) {
    for (std::int64_t i = 0; i < forecaster.memories(); ++i) {
      memories.push_back(&forecaster.memory(i));
    }
  }
  for (std::size_t i = 0; i < memories.size(); ++i) {
    const std::string prefix = Prefix(i, memories.size());
    TensorFile memory = memories[i]->ToTensors();
    for (auto& [name, tensor] : memory.tensors) {
      file.tensors.emplace(prefix + name, std::move(tensor));
    }
    for (auto& [name, text] : memory.metadata) file.metadata.emplace(prefix + name, text);
  }
  file.metadata.emplace(std::string("extra.") + kKey, run.dump());
  WriteSafetensors(path, file);
}

void ForecastRun::Resume(const std::filesystem::path& path) {
  TensorFile file = ReadSafetensors(path);
  Undamaged(path, [&] {
    const Json saved = RunJson(path, file);
    CheckSame(path, OptionsJson(options_), saved.at("options"));
    file.metadata.erase(std::string("extra.") + kKey);
    for (std::size_t i = 0; i < naive_.size(); ++i) naive_[i].Load(saved.at("naive").at(i));
    std::size_t count = 0, next = 0;
    for (const Forecaster& forecaster : forecasters_) {
      count += static_cast<std::size_t>(forecaster.memories());
    }
    for (std::size_t i = 0; i < forecasters_.size(); ++i) {
      std::vector<AssociativeMemory> memories;
      for (std::int64_t k = 0; k < forecasters_[i].memories(); ++k, ++next) {
        memories.push_back(MemoryIn(file, Prefix(next, count), path.string()));
        CheckAlike(memories.back(), forecasters_[i].memory(k),
                   "memory " + std::to_string(next) + " of " + path.string());
      }
      forecasters_[i].Load(std::move(memories), saved.at("forecasters").at(i).dump());
    }
  });
}

}  // namespace ttr::experiments
