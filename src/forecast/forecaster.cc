#include "src/forecast/forecaster.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "ttr/error.h"

namespace ttr::forecasting {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kMostNumbers = std::int64_t{1} << 24;
constexpr std::int64_t kMostAhead = 10'000;

const ForecasterOptions& Checked(const ForecasterOptions& options) {
  const auto check = [](const char* name, std::int64_t value) {
    if (value < 1 || value > kMostNumbers) {
      throw Error("forecast", name, "from 1 to " + std::to_string(kMostNumbers),
                  std::to_string(value));
    }
  };
  check("lags", options.lags);
  check("columns", options.columns);
  check("horizon", options.horizon);
  if (!options.sparse_lags.empty()) {
    const auto& lags = options.sparse_lags;
    const bool rising = std::ranges::adjacent_find(lags, std::greater_equal()) == lags.end();
    if (lags.front() < 1 || !rising || lags.back() != options.lags) {
      throw Error("forecast", "lags", "whole numbers of 1 or more that rise", "others");
    }
  }
  for (const std::int64_t season : options.differences) check("every one of differences", season);
  if (!options.differences.empty() && options.horizon != 1) {
    throw Error("forecast", "horizon",
                "1 with differences: the rows between are needed on the way back",
                std::to_string(options.horizon));
  }
  check("lags times columns", options.lags * options.columns);
  if (options.exogenous < 0 || options.exogenous > kMostNumbers) {
    throw Error("forecast", "exogenous", "0 or more columns", std::to_string(options.exogenous));
  }
  if (options.exogenous > 0 && (options.horizon != 1 || !options.differences.empty())) {
    throw Error("forecast", "horizon", "1 and without differences where columns are exogenous",
                options.differences.empty() ? std::to_string(options.horizon) : "with differences");
  }
  if (options.ahead < 0 || options.ahead > kMostAhead) {
    throw Error("forecast", "ahead", "from 0 to " + std::to_string(kMostAhead),
                std::to_string(options.ahead));
  }
  // Written so that NaN fails.
  if (options.interval != 0 && !(options.interval > 0 && options.interval < 1)) {
    throw Error("forecast", "interval", "a level above 0 and below 1",
                std::to_string(options.interval));
  }
  return options;
}

std::int64_t LagsInKey(const ForecasterOptions& options) {
  const auto sparse = static_cast<std::int64_t>(options.sparse_lags.size());
  return sparse > 0 ? sparse : options.lags;
}

std::int64_t KeyDim(const ForecasterOptions& options) {
  return LagsInKey(options) * options.columns + options.exogenous;
}

AssociativeMemory::Sizes SizesOf(const ForecasterOptions& options) {
  return {.key_dim = KeyDim(options), .value_dim = options.columns, .heads = 1};
}

std::int64_t Elements(const std::vector<Axis>& shape, const AssociativeMemory::Sizes& sizes) {
  std::int64_t elements = 1;
  for (const Axis axis : shape) {
    if (axis == Axis::kKeyDim) elements *= sizes.key_dim;
    if (axis == Axis::kValueDim) elements *= sizes.value_dim;
  }
  return elements;
}

}  // namespace

MemoryForecaster::MemoryForecaster(const Recipe& recipe, const ForecasterOptions& options)
    : options_(Checked(options)),
      memory_(recipe, SizesOf(options)),
      window_(options.lags, options.columns, options.units, options.sparse_lags),
      regressors_(options.exogenous, LagsInKey(options), options.units),
      differences_(options.differences, options.columns),
      outliers_(recipe, options.lags, options.horizon),
      gap_(static_cast<std::size_t>(options.columns)),
      filled_(static_cast<std::size_t>(options.columns)),
      key_(static_cast<std::size_t>(KeyDim(options))),
      value_(static_cast<std::size_t>(options.columns)),
      expected_(value_),
      differenced_(value_) {
  for (const ConstantGate& gate : ConstantInputs(recipe, options.gates)) {
    if (gate.is_key) {
      erases_along_key_ = true;
      continue;
    }
    const std::vector<double> values(Elements(gate.shape, memory_.sizes()), gate.value);
    memory_.SetGate(gate.name, values);
  }
  if (options.measures_errors || options.interval > 0) {
    const double decay =
        options.interval_decay != 0 ? options.interval_decay : ConstantDecay(recipe, options.gates);
    const std::int64_t skip = skipped_errors();
    residuals_.assign(value_.size(), Residuals(decay, skip, options.conformal));
    if (options.ahead > options.horizon) {
      leads_.emplace(LeadErrors::Options{.columns = options.columns,
                                         .horizon = options.horizon,
                                         .ahead = options.ahead,
                                         .decay = decay,
                                         .conformal = options.conformal,
                                         .skip = skip});
    }
  }
  if (options.selects_bandwidth && ReadsWithAnyBandwidth(recipe)) {
    bandwidths_.emplace(recipe, memory_.sizes().key_dim, ConstantDecay(recipe, options.gates));
  }
  // What the recipe asks of these sizes shows now rather than at some row.
  AssociativeMemory probe = memory_;
  const std::span<const double> key = key_;
  if (erases_along_key_) {
    probe.Memorize(key_, value_, {{"erase_key", key}});
  } else {
    probe.Memorize(key_, value_);
  }
  probe.Retrieve(key_, value_);
}

std::optional<FitQuality> MemoryForecaster::Quality() const {
  const Recipe& recipe = memory_.recipe();
  const auto specs = StateSpecs(recipe);
  if (std::none_of(specs.begin(), specs.end(), [](const StateSpec& spec) {
        return spec.name == "state.a" || spec.name == "state.r";
      })) {
    return std::nullopt;
  }
  return FitQuality{
      .samples = EffectiveSamples(ConstantDecay(recipe, options_.gates), memory_.count()),
      .condition = memory_.Condition()};
}

std::optional<double> MemoryForecaster::Bandwidth() const {
  if (!bandwidths_) return std::nullopt;
  return bandwidths_->Candidates()[bandwidths_->selected()];
}

bool MemoryForecaster::Next(std::span<const double> row, std::span<double> forecast,
                            std::span<double> margin, std::span<const double> known) {
  const auto exogenous = static_cast<std::size_t>(regressors_.count());
  if (known.size() < exogenous) {
    throw Error("forecast", "known", "the exogenous columns of the row", "fewer numbers");
  }
  const std::span<const double> own = known.first(exogenous);
  if (!std::all_of(own.begin(), own.end(), [](double x) { return std::isfinite(x); })) {
    throw Error("forecast", "known", "finite in every row that is read", "not");
  }
  std::fill(forecast.begin(), forecast.end(), kNaN);
  std::fill(margin.begin(), margin.end(), kNaN);
  const auto missing = [](double x) { return std::isnan(x); };
  if (rows_ == 0 && std::any_of(row.begin(), row.end(), missing)) return false;
  ++rows_;

  if (exogenous > 0 && window_.full()) Ask(own);
  const bool was_asked = static_cast<std::int64_t>(pending_.size()) == options_.horizon;
  if (was_asked) {
    const Pending& asked = pending_.front();
    std::copy_n(asked.forecast.begin(), forecast.size(), forecast.begin());
    if (!asked.margin.empty()) std::copy_n(asked.margin.begin(), margin.size(), margin.begin());
  }
  Fill(row, forecast);
  if (was_asked) {
    // A missing value gives a residual that is NaN, which is passed over.
    for (std::size_t c = 0; c < residuals_.size(); ++c) residuals_[c].Add(row[c] - forecast[c]);
    if (!std::all_of(row.begin(), row.end(), missing)) Learn(pending_.front());
    pending_.pop_front();
  }
  if (differences_.ready()) window_.Push(Differenced(filled_));
  differences_.Push(filled_);
  regressors_.Push(own);
  if (exogenous == 0 && window_.full()) Ask({});
  if (leads_) {
    leads_->Add(row);
    if (CanGoOn() && leads_->Begins()) BeginLead(known.subspan(exogenous));
  }
  return was_asked;
}

void MemoryForecaster::Fill(std::span<const double> row, std::span<const double> forecast) {
  for (std::size_t c = 0; c < row.size(); ++c) {
    if (!std::isnan(row[c])) {
      gap_[c] = 0;
      filled_[c] = row[c];
      continue;
    }
    ++gap_[c];
    const double latest = options_.differences.empty() ? window_.latest()[c] : filled_[c];
    if (gap_[c] > options_.lags && window_.rows() > 0) {
      filled_[c] = window_.Mean(static_cast<std::int64_t>(c)) + differences_.base()[c];
    } else {
      filled_[c] = std::isfinite(forecast[c]) ? forecast[c] : latest;
    }
  }
}

// A row as the window has it, while it is the next one.
std::span<const double> MemoryForecaster::Differenced(std::span<const double> row) {
  for (std::size_t c = 0; c < row.size(); ++c) differenced_[c] = row[c] - differences_.base()[c];
  return differenced_;
}

void MemoryForecaster::Learn(const Pending& asked) {
  if (asked.window.flat) return;
  window_.ToMemory(asked.window, Differenced(filled_), value_);
  key_ = asked.window.key;
  if (options_.units == Units::kWindow) {
    window_.ToMemory(asked.window, Differenced(asked.forecast), expected_);
    outliers_.Hold(key_, value_, expected_);
  }
  if (bandwidths_) {
    ScoreCandidates(asked);
    bandwidths_->AddKey(key_);
  }
  if (erases_along_key_) {
    memory_.Memorize(key_, value_, {{"erase_key", std::span<const double>(key_)}});
  } else {
    memory_.Memorize(key_, value_);
  }
}

// In the units that a kernel's memory, which has all keys as they are, learns in.
void MemoryForecaster::ScoreCandidates(const Pending& asked) {
  if (asked.candidates.empty()) return;
  std::array<double, BandwidthSelector::kRatios.size()> squares{};
  for (std::size_t i = 0; i < asked.candidates.size(); ++i) {
    const std::size_t column = i % value_.size();
    if (gap_[column] > 0) continue;  // missing: what stands there is a forecast
    const double error = value_[column] - asked.candidates[i];
    squares[i / value_.size()] += error * error;
  }
  bandwidths_->AddErrors(squares);
}

void MemoryForecaster::AskCandidates(Pending& asked) {
  for (const double bandwidth : bandwidths_->Candidates()) {
    memory_.SetGate("bandwidth", std::span(&bandwidth, 1));
    memory_.Retrieve(asked.window.key, value_);
    asked.candidates.insert(asked.candidates.end(), value_.begin(), value_.end());
  }
  const std::size_t first = bandwidths_->selected() * value_.size();
  std::copy_n(asked.candidates.begin() + static_cast<std::ptrdiff_t>(first), value_.size(),
              value_.begin());
}

// Is the forecast the window's mean, whatever the memory would say?
bool MemoryForecaster::IsMean(const LagKey& window) const {
  return memory_.count() == 0 || (window.flat && options_.units == Units::kWindow);
}

// What the memory says to a window, in its units; of several bandwidths, with the best so far.
void MemoryForecaster::Answer(const LagKey& window, std::span<double> answer) {
  if (IsMean(window)) {
    std::fill(answer.begin(), answer.end(), 0);
    return;
  }
  if (bandwidths_) {
    const double bandwidth = bandwidths_->Candidates()[bandwidths_->selected()];
    memory_.SetGate("bandwidth", std::span(&bandwidth, 1));
  }
  memory_.Retrieve(window.key, answer);
}

void MemoryForecaster::Ask(std::span<const double> known) {
  Pending& asked = pending_.emplace_back();
  window_.MakeKey(asked.window);
  regressors_.AddTo(asked.window, known);
  if (bandwidths_ && !IsMean(asked.window)) {
    AskCandidates(asked);
  } else {
    Answer(asked.window, value_);
  }
  asked.forecast.resize(value_.size());
  window_.ToData(asked.window, value_, asked.forecast);
  for (std::size_t c = 0; c < value_.size(); ++c) asked.forecast[c] += differences_.base()[c];
  if (options_.interval == 0) return;
  for (Residuals& residuals : residuals_) {
    asked.margin.push_back(residuals.Margin(options_.interval, options_.horizon));
  }
}

}  // namespace ttr::forecasting
