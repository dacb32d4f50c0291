#include "src/forecast/regressors.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "ttr/error.h"

namespace ttr::forecasting {

Regressors::Regressors(std::int64_t count, std::int64_t lags, Units units)
    : raw_(units == Units::kRaw),
      window_((lags + 1) / 2, count, units),
      unit_(static_cast<std::size_t>(count)) {}

void Regressors::AddTo(LagKey& key, std::span<const double> x) {
  for (std::size_t e = 0; e < unit_.size(); ++e) {
    if (raw_) {
      key.key.push_back(x[e]);
      key.flat = key.flat && x[e] == 0;
      continue;
    }
    const auto column = static_cast<std::int64_t>(e);
    const double mean = window_.empty() ? x[e] : window_.Mean(column);
    const double apart = x[e] - mean;
    const double rounding = 8 * std::numeric_limits<double>::epsilon() * std::abs(mean);
    const bool moves = std::abs(apart) > rounding && key.scale > 0;
    if (moves && unit_[e] == 0) {
      unit_[e] = std::hypot(window_.LengthAround(column, mean), apart);
    }
    key.key.push_back(moves ? apart / unit_[e] / key.scale : 0);
    key.flat = key.flat && !moves;
  }
}

void Regressors::Push(std::span<const double> x) {
  if (!unit_.empty()) window_.Push(x);
}

nlohmann::json Regressors::Save() const { return {{"window", window_.Save()}, {"unit", unit_}}; }

void Regressors::Load(const nlohmann::json& saved) {
  const auto unit = saved.at("unit").get<std::vector<double>>();
  if (unit.size() != unit_.size()) {
    throw Error("resume", "the exogenous columns", std::to_string(unit_.size()),
                std::to_string(unit.size()));
  }
  window_.Load(saved.at("window"));
  unit_ = unit;
}

}  // namespace ttr::forecasting
