#include "experiments/real/token_code.h"

#include <algorithm>
#include <cmath>

namespace ttr::experiments {
namespace {

constexpr double kColdest = .25;
constexpr double kShare = .01;

}  // namespace

double Novelty::Bits(bool is_new, std::string_view token) {
  const double p = (static_cast<double>(new_) + .5) / (static_cast<double>(tokens_) + 1);
  double bits = -std::log2(is_new ? p : 1 - p);
  if (is_new) {
    bits += kind_ == TokenKind::kBytes ? std::log2(256 - static_cast<double>(new_))
                                       : std::log2(257.) * static_cast<double>(token.size() + 1);
    ++new_;
  }
  ++tokens_;
  return bits;
}

ScoreSummary Summarise(std::span<float> scores, std::int64_t token) {
  ScoreSummary summary;
  const auto highest = std::max_element(scores.begin(), scores.end());
  const float top = *highest;
  bool finite = true;
  for (const float s : scores) finite = finite && std::isfinite(s);
  if (!finite) {
    summary.log_p.fill(-std::log(static_cast<double>(scores.size())));
    return summary;
  }
  if (std::count(scores.begin(), scores.end(), top) == 1) summary.best = highest - scores.begin();
  const double distance = static_cast<double>(scores[token]) - static_cast<double>(top);
  for (float& s : scores) s = std::exp(static_cast<float>(kColdest) * (s - top));
  double beta = kColdest;
  for (int i = 0; i < kTemperatures; ++i, beta *= 2) {
    // Eight sums side by side; the next temperature's terms are the squares of these.
    std::array<float, 8> sums{};
    const std::size_t whole = scores.size() / 8 * 8;
    for (std::size_t j = 0; j < whole; j += 8) {
      for (std::size_t l = 0; l < 8; ++l) {
        const float e = scores[j + l];
        sums[l] += e;
        scores[j + l] = e * e;
      }
    }
    for (std::size_t j = whole; j < scores.size(); ++j) {
      sums[0] += scores[j];
      scores[j] *= scores[j];
    }
    double sum = 0;
    for (const float s : sums) sum += static_cast<double>(s);
    summary.log_p[i] = beta * distance - std::log(sum);
  }
  return summary;
}

double TemperatureMixture::Bits(const ScoreSummary& summary) {
  double highest = summary.log_p[0];
  for (const double p : summary.log_p) highest = std::max(highest, p);
  double sum = 0;
  for (int i = 0; i < kTemperatures; ++i) sum += weight_[i] * std::exp(summary.log_p[i] - highest);
  for (int i = 0; i < kTemperatures; ++i) {
    const double posterior = weight_[i] * std::exp(summary.log_p[i] - highest) / sum;
    weight_[i] = (1 - kShare) * posterior + kShare / kTemperatures;
  }
  return -(highest + std::log(sum)) / std::log(2.);
}

}  // namespace ttr::experiments
