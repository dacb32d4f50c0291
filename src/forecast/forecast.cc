// The public face of forecasters of one horizon: several of them where forecasts are direct, and
// logarithms on the way in and out.
#include "ttr/forecast.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/forecast/forecaster.h"
#include "ttr/error.h"

namespace ttr {

using forecasting::MemoryForecaster;

struct Forecaster::Own {
  ForecasterOptions options;
  std::vector<MemoryForecaster> all;  // of rising horizons; the last one's is that of the options
  std::vector<double> row, spare;     // scratch

  MemoryForecaster& last() { return all.back(); }
  const MemoryForecaster& last() const { return all.back(); }

  std::span<const double> Read(std::span<const double> given);
  void Restore(std::span<double> forecasts) const;
  // Row k of those that know it directly, where `answer` fills rows of one forecaster.
  template <class Answer>
  void FillNearest(std::span<double> forecasts, std::span<double> margins, Answer&& answer);
};

namespace {

constexpr std::int64_t kMostDirect = 1000;

std::vector<MemoryForecaster> OfAllHorizons(const Recipe& recipe,
                                            const ForecasterOptions& options) {
  if (options.direct && options.horizon > kMostDirect) {
    throw Error("forecast", "horizon",
                "at most " + std::to_string(kMostDirect) + " with a memory for each row up to it",
                std::to_string(options.horizon));
  }
  std::vector<MemoryForecaster> all;
  for (std::int64_t h = 1; options.direct && h < options.horizon; ++h) {
    ForecasterOptions nearer = options;
    nearer.horizon = h;
    nearer.ahead = 0;
    all.emplace_back(recipe, nearer);
  }
  all.emplace_back(recipe, options);
  return all;
}

}  // namespace

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

template <class Answer>
void Forecaster::Own::FillNearest(std::span<double> forecasts, std::span<double> margins,
                                  Answer&& answer) {
  const std::size_t columns = row.size();
  const std::size_t rows = std::max(forecasts.size(), margins.size()) / columns;
  std::vector<double> nearest, widths;
  for (std::size_t k = 0; k + 1 < all.size() && k < rows; ++k) {
    const auto end = static_cast<std::ptrdiff_t>(k * columns);
    nearest.resize(forecasts.empty() ? 0 : (k + 1) * columns);
    widths.resize(margins.empty() ? 0 : (k + 1) * columns);
    answer(all[k], std::span(nearest), std::span(widths));
    if (!nearest.empty()) std::copy_n(nearest.begin() + end, columns, forecasts.begin() + end);
    if (!widths.empty()) std::copy_n(widths.begin() + end, columns, margins.begin() + end);
  }
}

Forecaster::Forecaster(const Recipe& recipe, const ForecasterOptions& options)
    : own_(std::make_unique<Own>(options, OfAllHorizons(recipe, options))) {
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
  for (std::size_t i = 0; i + 1 < own_->all.size(); ++i)
    own_->all[i].Next(read, own_->spare, {}, {});
  const bool made = own_->last().Next(read, forecast, margin, known);
  own_->Restore(forecast);
  return made;
}

bool Forecaster::Ahead(std::span<double> forecasts, std::span<double> margins,
                       std::span<const double> known) {
  if (!own_->last().Ahead(forecasts, margins, known)) return false;
  own_->FillNearest(forecasts, margins, [](MemoryForecaster& one, auto rows, auto widths) {
    one.Ahead(rows, widths, {});
  });
  own_->Restore(forecasts);
  return true;
}

void Forecaster::Margins(double level, std::span<double> margins) {
  own_->last().Margins(level, margins);
  own_->FillNearest({}, margins,
                    [&](MemoryForecaster& one, auto, auto widths) { one.Margins(level, widths); });
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

double Forecaster::MeanLoss(std::int64_t column) const {
  return own_->last().residuals().at(static_cast<std::size_t>(column)).MeanLoss();
}

double Forecaster::EffectiveErrors(std::int64_t column) const {
  return own_->last().residuals().at(static_cast<std::size_t>(column)).EffectiveSamples();
}

std::string Forecaster::Save() const {
  if (own_->all.size() == 1) return own_->last().SaveText();
  nlohmann::json all = nlohmann::json::array();
  for (const MemoryForecaster& one : own_->all) all.push_back(one.SaveText());
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
  const bool texts =
      all.is_array() && all.size() == memories.size() &&
      std::all_of(all.begin(), all.end(), [](const auto& one) { return one.is_string(); });
  if (!texts) fail("damaged");
  for (std::size_t i = 0; i < memories.size(); ++i) {
    own_->all[i].LoadText(std::move(memories[i]), all[i].template get<std::string>());
  }
}

}  // namespace ttr
