#include "experiments/studies/sweeps.h"

#include <numeric>
#include <utility>

namespace ttr::experiments {
namespace {

double Dot(const double* x, const double* y, std::int64_t n) {
  return std::inner_product(x, x + n, y, 0.0);
}

}  // namespace

DualSweeps::DualSweeps(const PairRows& rows, std::vector<double> ridges)
    : rows_(rows),
      ridges_(std::move(ridges)),
      a_(rows.v.size()),
      memory_(static_cast<std::size_t>(rows.key_dim * rows.value_dim)) {}

void DualSweeps::Sweep(std::int64_t pairs) {
  const std::int64_t keys = rows_.key_dim;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double* const key = rows_.k.data() + i * keys;
    const double ridge = ridges_[static_cast<std::size_t>(i)];
    const double spread = Dot(key, key, keys) + ridge;
    for (std::int64_t c = 0; c < rows_.value_dim; ++c) {
      double* const row = memory_.data() + c * keys;
      const std::int64_t at = i * rows_.value_dim + c;
      double& a = a_[static_cast<std::size_t>(at)];
      const double change = (rows_.v.data()[at] - Dot(row, key, keys) - ridge * a) / spread;
      a += change;
      for (std::int64_t d = 0; d < keys; ++d) row[d] += change * key[d];
    }
  }
}

std::vector<double> DualSweeps::Retrieve(std::span<const double> q) const {
  const std::int64_t keys = rows_.key_dim;
  std::vector<double> y;
  for (const double* query = q.data(); query != q.data() + q.size(); query += keys) {
    for (std::int64_t c = 0; c < rows_.value_dim; ++c) {
      y.push_back(Dot(memory_.data() + c * keys, query, keys));
    }
  }
  return y;
}

std::vector<double> RidgesOfStep(const PairRows& rows, double step) {
  std::vector<double> ridges;
  for (std::size_t at = 0; at < rows.k.size(); at += static_cast<std::size_t>(rows.key_dim)) {
    const double* const key = rows.k.data() + at;
    ridges.push_back(1 / step - Dot(key, key, rows.key_dim));
  }
  return ridges;
}

std::vector<double> SweepPrefixes(const PairRows& rows, const std::vector<double>& ridges,
                                  std::int64_t sweeps) {
  std::vector<double> y;
  for (std::int64_t t = 1; t <= static_cast<std::int64_t>(ridges.size()); ++t) {
    DualSweeps prefix(rows, ridges);
    for (std::int64_t n = 0; n < sweeps; ++n) prefix.Sweep(t);
    const std::vector<double> answer = prefix.Retrieve(rows.q.subspan(
        static_cast<std::size_t>((t - 1) * rows.key_dim), static_cast<std::size_t>(rows.key_dim)));
    y.insert(y.end(), answer.begin(), answer.end());
  }
  return y;
}

}  // namespace ttr::experiments
