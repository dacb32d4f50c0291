/// Series and forecasters that several tests share.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "ttr/forecast.h"
#include "ttr/util/random.h"

namespace ttr::experiments {

inline Forecaster Make(const char* recipe, const ForecasterOptions& options) {
  return Forecaster(ParseRecipe(recipe), options);
}

inline std::vector<double> Sine(std::int64_t rows, double step = .1) {
  std::vector<double> x;
  for (std::int64_t t = 0; t < rows; ++t) x.push_back(std::sin(step * static_cast<double>(t)));
  return x;
}

// x_t = 1.6 x_{t-1} - .8 x_{t-2} + noise
inline std::vector<double> Autoregressive(std::int64_t rows, double noise, std::uint64_t seed = 7) {
  CounterRandom random(seed);
  std::vector<double> x = {1, 1};
  for (std::int64_t t = 2; t < rows; ++t) {
    x.push_back(1.6 * x[t - 1] - .8 * x[t - 2] + noise * random.Normal());
  }
  return x;
}

}  // namespace ttr::experiments
