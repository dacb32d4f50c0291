// The public face of MemoryForecaster.
#include "ttr/forecast.h"

#include <utility>

#include "src/forecast/forecaster.h"

namespace ttr {

using forecasting::MemoryForecaster;

Forecaster::Forecaster(const Recipe& recipe, const ForecasterOptions& options)
    : own_(std::make_unique<MemoryForecaster>(recipe, options)) {}
Forecaster::Forecaster(const Forecaster& other)
    : own_(std::make_unique<MemoryForecaster>(*other.own_)) {}
Forecaster& Forecaster::operator=(const Forecaster& other) { return *this = Forecaster(other); }
Forecaster::Forecaster(Forecaster&&) noexcept = default;
Forecaster& Forecaster::operator=(Forecaster&&) noexcept = default;
Forecaster::~Forecaster() = default;

const ForecasterOptions& Forecaster::options() const { return own_->options(); }
std::int64_t Forecaster::rows() const { return own_->rows(); }

bool Forecaster::Next(std::span<const double> row, std::span<double> forecast,
                      std::span<double> margin) {
  return own_->Next(row, forecast, margin);
}

bool Forecaster::Ahead(std::span<double> forecasts, std::span<double> margins) {
  return own_->Ahead(forecasts, margins);
}

void Forecaster::Margins(double level, std::span<double> margins) { own_->Margins(level, margins); }

const AssociativeMemory& Forecaster::memory() const { return own_->memory(); }
std::optional<FitQuality> Forecaster::Quality() const { return own_->Quality(); }
std::optional<double> Forecaster::Bandwidth() const { return own_->Bandwidth(); }

double Forecaster::MeanLoss(std::int64_t column) const {
  return own_->residuals().at(static_cast<std::size_t>(column)).MeanLoss();
}

double Forecaster::EffectiveErrors(std::int64_t column) const {
  return own_->residuals().at(static_cast<std::size_t>(column)).EffectiveSamples();
}

std::string Forecaster::Save() const { return own_->SaveText(); }

void Forecaster::Load(AssociativeMemory memory, std::string_view saved) {
  own_->LoadText(std::move(memory), saved);
}

}  // namespace ttr
