#include "src/forecast/bandwidth.h"

#include <algorithm>
#include <cmath>

#include "ttr/error.h"
#include "ttr/inputs.h"

namespace ttr::forecasting {
namespace {

// p of (1 - u^2)^p.
double PowerOf(Kernel kernel) {
  return kernel == Kernel::kEpanechnikov ? 1 : kernel == Kernel::kBiweight ? 2 : 3;
}

}  // namespace

double SilvermanDeviation(double variance, std::int64_t channels, double keys) {
  const auto d = static_cast<double>(channels);
  return std::sqrt(variance) * std::pow(4 / ((d + 2) * keys), 1 / (d + 4));
}

double BandwidthOf(Kernel kernel, double deviation, std::int64_t channels) {
  const auto d = static_cast<double>(channels);
  switch (kernel) {
    case Kernel::kGaussian: return 2 * deviation * deviation;
    case Kernel::kLaplace: return deviation / std::sqrt(d + 1);
    case Kernel::kEpanechnikov:
    case Kernel::kBiweight:
    case Kernel::kTriweight: return deviation * std::sqrt(d + 2 * PowerOf(kernel) + 2);
    default: throw Error("bandwidth", "the kernel", "one with a bandwidth", "without");
  }
}

bool ReadsWithAnyBandwidth(const Recipe& recipe) {
  const std::vector<InputSpec> specs = InputSpecs(recipe);
  const bool regression =
      recipe.function.kind == FunctionClass::kKernel && recipe.optimizer.solver == Solver::kExact;
  return !regression && std::any_of(specs.begin(), specs.end(),
                                    [](const InputSpec& spec) { return spec.name == "bandwidth"; });
}

BandwidthSelector::BandwidthSelector(const Recipe& recipe, std::int64_t channels, double decay)
    : kernel_(recipe.similarity.kernel),
      own_(recipe.similarity.bandwidth),
      window_(recipe.weights.window),
      decay_(decay),
      mean_(static_cast<std::size_t>(channels)) {}

void BandwidthSelector::AddKey(std::span<const double> key) {
  ++keys_;
  for (std::size_t c = 0; c < key.size(); ++c) {
    const double before = key[c] - mean_[c];
    mean_[c] += before / static_cast<double>(keys_);
    squares_ += before * (key[c] - mean_[c]);
  }
}

std::array<double, BandwidthSelector::kRatios.size()> BandwidthSelector::Candidates() const {
  const auto channels = static_cast<std::int64_t>(mean_.size());
  const std::int64_t held = window_ > 0 ? std::min(keys_, window_) : keys_;
  const double variance = squares_ / (static_cast<double>(channels) *
                                      static_cast<double>(std::max<std::int64_t>(keys_ - 1, 1)));
  const bool spread = variance > 0 && std::isfinite(variance);
  const double deviation =
      spread ? SilvermanDeviation(variance, channels, static_cast<double>(held)) : 0;
  std::array<double, kRatios.size()> candidates{};
  for (std::size_t i = 0; i < kRatios.size(); ++i) {
    const double ratio = kernel_ == Kernel::kGaussian ? kRatios[i] * kRatios[i] : kRatios[i];
    candidates[i] = spread ? BandwidthOf(kernel_, kRatios[i] * deviation, channels) : ratio * own_;
  }
  return candidates;
}

std::size_t BandwidthSelector::selected() const {
  const auto least = std::min_element(losses_.begin(), losses_.end());  // the first of equals
  return static_cast<std::size_t>(least - losses_.begin());
}

void BandwidthSelector::AddErrors(std::span<const double> squares) {
  if (!std::all_of(squares.begin(), squares.end(), [](double x) { return std::isfinite(x); })) {
    return;
  }
  for (std::size_t i = 0; i < losses_.size(); ++i) losses_[i] = decay_ * losses_[i] + squares[i];
}

}  // namespace ttr::forecasting
