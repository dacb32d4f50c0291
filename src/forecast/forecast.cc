// The public face of forecasters of one horizon: several of them where a strategy wants more, their
// mean, and logarithms on the way in and out.
#include "ttr/forecast.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "src/forecast/combination.h"
#include "src/forecast/constant_gates.h"
#include "src/forecast/forecaster.h"
#include "ttr/error.h"

namespace ttr {

using forecasting::Combination;
using forecasting::MemoryForecaster;

struct Forecaster::Own {
  ForecasterOptions options;
  // One forecaster a horizon, by rising horizons up to that of the options; a combination has the
  // one of its recursion before them.
  std::vector<MemoryForecaster> all;
  std::optional<Combination> combination;
  std::vector<double> row, spare;  // scratch

  MemoryForecaster& last() { return all.back(); }
  const MemoryForecaster& last() const { return all.back(); }

  std::span<const double> Read(std::span<const double> given);
  void Restore(std::span<double> forecasts) const;
  void FillNearest(std::span<double> forecasts) const;
  void Combine(std::span<double> forecasts);
  void BeginCombined();
  const forecasting::Residuals& ErrorsOf(std::int64_t column) const;
};

namespace {

constexpr std::int64_t kMostDirect = 1000;
constexpr std::string_view kStrategies[] = {"recursive", "direct", "combined"};

bool IsCombined(const ForecasterOptions& options) {
  return options.strategy == Strategy::kCombined;
}

// The recipe with an intercept, where its function can have one.
Recipe WithIntercept(const Recipe& recipe) {
  if (recipe.function.kind != FunctionClass::kLinear) return recipe;
  Recipe affine = recipe;
  affine.function.kind = FunctionClass::kAffine;
  try {
    Validate(affine);
  } catch (const Error&) {
    return recipe;
  }
  return affine;
}

std::vector<MemoryForecaster> OfAllHorizons(const Recipe& recipe,
                                            const ForecasterOptions& options) {
  const bool several = options.strategy != Strategy::kRecursive;
  if (several && options.horizon > kMostDirect) {
    throw Error("forecast", "horizon",
                "at most " + std::to_string(kMostDirect) + " with a memory for each row up to it",
                std::to_string(options.horizon));
  }
  if (IsCombined(options) && options.exogenous > 0) {
    throw Error("forecast", "exogenous", "0 with the strategy combined",
                std::to_string(options.exogenous));
  }
  ForecasterOptions one = options;
  std::vector<MemoryForecaster> all;
  if (IsCombined(options)) {
    one.measures_errors = false;  // they are those of the mean
    one.interval = 0;
    one.horizon = 1;
    one.ahead = 0;
    all.emplace_back(WithIntercept(recipe), one);
  }
  for (std::int64_t h = several ? 1 : options.horizon; h <= options.horizon; ++h) {
    one.horizon = h;
    one.ahead = h == options.horizon ? options.ahead : 0;
    all.emplace_back(recipe, one);
  }
  return all;
}

std::optional<Combination> CombinationOf(const Recipe& recipe, const ForecasterOptions& options,
                                         const MemoryForecaster& one) {
  if (!IsCombined(options)) return std::nullopt;
  return Combination({.columns = options.columns,
                      .horizon = options.horizon,
                      .ahead = options.ahead,
                      .level = options.interval,
                      .measures_errors = options.measures_errors || options.interval > 0,
                      .decay = options.interval_decay != 0
                                   ? options.interval_decay
                                   : forecasting::ConstantDecay(recipe, options.gates),
                      .conformal = options.conformal,
                      .skip = one.skipped_errors()});
}

}  // namespace

std::string_view ToString(Strategy strategy) {
  return kStrategies[static_cast<std::size_t>(strategy)];
}

Strategy ParseStrategy(std::string_view name) {
  const auto* const found = std::ranges::find(kStrategies, name);
  if (found == std::end(kStrategies)) {
    throw Error("forecast", "strategy", "recursive, direct or combined",
                "'" + std::string(name) + "'");
  }
  return static_cast<Strategy>(found - std::begin(kStrategies));
}

std::span<const double> Forecaster::Own::Read(std::span<const double> given) {
  if (!options.logarithm) return given;
  for (std::size_t c = 0; c < row.size(); ++c) {
    if (given[c] <= 0) {
      throw Error("forecast", "column " + std::to_string(c) + " of every row",
                  "above 0 where logarithms are read", std::to_string(given[c]));
    }
    row[c] = std::log(given[c]);
  }
  return row;
}

void Forecaster::Own::Restore(std::span<double> forecasts) const {
  if (!options.logarithm) return;
  for (double& forecast : forecasts) forecast = std::exp(forecast);
}

// Rows up to the horizon by the memories of such rows, where these have answered.
void Forecaster::Own::FillNearest(std::span<double> forecasts) const {
  for (const MemoryForecaster& one : all) {
    const auto begin = static_cast<std::size_t>(one.options().horizon - 1) * row.size();
    if (begin < forecasts.size()) std::ranges::copy(one.Latest(), forecasts.begin() + begin);
  }
}

// The mean, of forecasts that the last memory and its recursion have filled.
void Forecaster::Own::Combine(std::span<double> forecasts) {
  FillNearest(forecasts);
  std::vector<double> recursive(forecasts.size());
  all.front().Ahead(recursive, {}, {});
  for (std::size_t i = 0; i < forecasts.size(); ++i) {
    forecasts[i] = std::midpoint(forecasts[i], recursive[i]);
  }
}

void Forecaster::Own::BeginCombined() {
  if (last().Latest().empty()) return;
  std::vector<double> path(static_cast<std::size_t>(combination->rows()) * row.size());
  last().Ahead(path, {}, {});
  Combine(path);
  combination->Begin(std::move(path));
}

const forecasting::Residuals& Forecaster::Own::ErrorsOf(std::int64_t column) const {
  if (combination) return combination->residuals(column);
  return last().residuals().at(static_cast<std::size_t>(column));
}

Forecaster::Forecaster(const Recipe& recipe, const ForecasterOptions& options)
    : own_(std::make_unique<Own>(options, OfAllHorizons(recipe, options))) {
  own_->combination = CombinationOf(recipe, options, own_->last());
  own_->row.resize(static_cast<std::size_t>(options.columns));
  own_->spare.resize(own_->row.size());
}
Forecaster::Forecaster(const Forecaster& other) : own_(std::make_unique<Own>(*other.own_)) {}
Forecaster& Forecaster::operator=(const Forecaster& other) { return *this = Forecaster(other); }
Forecaster::Forecaster(Forecaster&&) noexcept = default;
Forecaster& Forecaster::operator=(Forecaster&&) noexcept = default;
Forecaster::~Forecaster() = default;

const ForecasterOptions& Forecaster::options() const { return own_->options; }
std::int64_t Forecaster::rows() const { return own_->last().rows(); }

bool Forecaster::Next(std::span<const double> row, std::span<double> forecast,
                      std::span<double> margin, std::span<const double> known) {
  const std::span<const double> read = own_->Read(row);
  for (std::size_t i = 0; i + 1 < own_->all.size(); ++i) {
    own_->all[i].Next(read, own_->spare, {}, {});
  }
  bool made = own_->last().Next(read, forecast, margin, known);
  if (own_->combination) {
    made = own_->combination->Next(read, forecast, margin);
    own_->BeginCombined();
  }
  own_->Restore(forecast);
  return made;
}

bool Forecaster::Ahead(std::span<double> forecasts, std::span<double> margins,
                       std::span<const double> known) {
  if (!own_->last().Ahead(forecasts, margins, known)) return false;
  if (own_->combination) {
    own_->Combine(forecasts);
    if (own_->options.interval > 0) own_->combination->Margins(own_->options.interval, margins);
  } else {
    own_->FillNearest(forecasts);
    for (const MemoryForecaster& one : own_->all) {
      const auto begin = static_cast<std::size_t>(one.options().horizon - 1) * own_->row.size();
      if (begin < margins.size()) std::ranges::copy(one.LatestMargin(), margins.begin() + begin);
    }
  }
  own_->Restore(forecasts);
  return true;
}

void Forecaster::Margins(double level, std::span<double> margins) {
  if (own_->combination) return own_->combination->Margins(level, margins);
  own_->last().Margins(level, margins);
  for (MemoryForecaster& one : own_->all) {
    const auto begin = static_cast<std::size_t>(one.options().horizon - 1) * own_->row.size();
    if (begin < margins.size()) one.LatestMargin(level, margins.subspan(begin, own_->row.size()));
  }
}

Interval Forecaster::IntervalOf(double forecast, double margin) const {
  if (!own_->options.logarithm) return {forecast - margin, forecast + margin};
  return {forecast * std::exp(-margin), forecast * std::exp(margin)};
}

std::int64_t Forecaster::memories() const { return static_cast<std::int64_t>(own_->all.size()); }

const AssociativeMemory& Forecaster::memory(std::int64_t i) const {
  return own_->all.at(static_cast<std::size_t>(i)).memory();
}

std::optional<FitQuality> Forecaster::Quality() const { return own_->last().Quality(); }
std::optional<double> Forecaster::Bandwidth() const { return own_->last().Bandwidth(); }

double Forecaster::MeanLoss(std::int64_t column) const { return own_->ErrorsOf(column).MeanLoss(); }

double Forecaster::EffectiveErrors(std::int64_t column) const {
  return own_->ErrorsOf(column).EffectiveSamples();
}

std::string Forecaster::Save() const {
  if (own_->all.size() == 1) return own_->last().SaveText();
  nlohmann::json all = nlohmann::json::array();
  for (const MemoryForecaster& one : own_->all) all.push_back(one.SaveText());
  if (own_->combination) all.push_back(own_->combination->SaveText());
  return all.dump();
}

void Forecaster::Load(std::vector<AssociativeMemory> memories, std::string_view saved) {
  const auto fail = [&](const std::string& given) {
    throw Error("resume", "the forecaster", std::to_string(own_->all.size()) + " memories", given);
  };
  if (memories.size() != own_->all.size()) fail(std::to_string(memories.size()));
  if (memories.size() == 1) {
    own_->last().LoadText(std::move(memories[0]), saved);
    return;
  }
  const nlohmann::json all = nlohmann::json::parse(saved, nullptr, /*allow_exceptions=*/false);
  const std::size_t texts = memories.size() + (own_->combination ? 1 : 0);
  const bool whole =
      all.is_array() && all.size() == texts &&
      std::all_of(all.begin(), all.end(), [](const auto& one) { return one.is_string(); });
  if (!whole) fail("damaged");
  for (std::size_t i = 0; i < memories.size(); ++i) {
    own_->all[i].LoadText(std::move(memories[i]), all[i].template get<std::string>());
  }
  if (own_->combination) own_->combination->LoadText(all.back().get<std::string>());
}

}  // namespace ttr
