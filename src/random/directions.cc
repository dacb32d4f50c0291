#include "src/random/directions.h"

#include <cmath>
#include <cstddef>
#include <numbers>

#include "ttr/util/random.h"

namespace ttr {
namespace {

double Dot(const double* x, const double* y, std::int64_t dim) {
  double sum = 0;
  for (std::int64_t c = 0; c < dim; ++c) sum += x[c] * y[c];
  return sum;
}

std::vector<double> NormalRows(CounterRandom& random, std::int64_t rows, std::int64_t dim) {
  std::vector<double> w(static_cast<std::size_t>(rows * dim));
  for (double& entry : w) entry = random.Normal();
  return w;
}

std::vector<double> OrthogonalRows(CounterRandom& random, std::int64_t rows, std::int64_t dim) {
  std::vector<double> w = NormalRows(random, rows, dim);
  const std::vector<double> lengths = NormalRows(random, rows, dim);
  for (std::int64_t r = 0; r < rows; ++r) {
    double* const u = w.data() + r * dim;
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t s = r - r % dim; s < r; ++s) {
        const double* const other = w.data() + s * dim;
        const double factor = Dot(other, u, dim) / Dot(other, other, dim);
        for (std::int64_t c = 0; c < dim; ++c) u[c] -= other[c] * factor;
      }
    }
    const double* const length = lengths.data() + r * dim;
    const double factor = std::sqrt(Dot(length, length, dim)) / std::sqrt(Dot(u, u, dim));
    for (std::int64_t c = 0; c < dim; ++c) u[c] *= factor;
  }
  return w;
}

std::vector<double> CosineRows(CounterRandom& random, std::int64_t rows, std::int64_t dim) {
  std::vector<double> w(static_cast<std::size_t>(rows * dim));
  const double d = static_cast<double>(dim);
  for (std::int64_t r = 0; r < rows; ++r) {
    const double frequency = static_cast<double>(r % dim);
    const double t = random.Normal() * std::sqrt((r % dim == 0 ? 1.0 : 2.0) / d);
    double* const row = w.data() + r * dim;
    for (std::int64_t c = 0; c < dim; ++c) {
      const double angle =
          std::numbers::pi * (2.0 * static_cast<double>(c) + 1) * frequency / (2.0 * d);
      row[c] = t * std::cos(angle);
    }
  }
  return w;
}

}  // namespace

std::vector<double> DrawDirections(Directions kind, std::uint64_t seed, std::uint64_t stream,
                                   std::int64_t rows, std::int64_t dim) {
  CounterRandom random(seed, stream);
  switch (kind) {
    case Directions::kNormal: return NormalRows(random, rows, dim);
    case Directions::kOrthogonal: return OrthogonalRows(random, rows, dim);
    case Directions::kCosine: return CosineRows(random, rows, dim);
  }
  return {};
}

}  // namespace ttr
