#include "experiments/data/embedding.h"

#include <fmt/core.h>

#include <cmath>

#include "experiments/data/streams.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

// A plain loop in a fixed order: std::inner_product would do, reductions in parallel would not.
double Dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

void Normalise(std::span<double> x) {
  const double norm = std::sqrt(Dot(x, x));
  for (double& value : x) {
    value /= norm;
  }
}

}  // namespace

void UnitVector(std::uint64_t seed, std::int64_t id, std::span<double> out) {
  if (id < 0) {
    throw Error(fmt::format("[embedding] id must be at least 0 but is {}", id));
  }
  if (out.empty()) {
    throw Error("[embedding] dim must be at least 1 but is 0");
  }
  CounterRandom random(seed, kUnitVectorStream + static_cast<std::uint64_t>(id));
  for (double& value : out) {
    value = random.Normal();  // never exactly 0, so the norm is not 0 either
  }
  Normalise(out);
}

std::vector<double> UnitVectors(std::uint64_t seed, std::int64_t count, std::int64_t dim) {
  if (count < 0) {
    throw Error(fmt::format("[embedding] count must be at least 0 but is {}", count));
  }
  if (dim < 1) {
    throw Error(fmt::format("[embedding] dim must be at least 1 but is {}", dim));
  }
  std::vector<double> table(count * dim);
  for (std::int64_t id = 0; id < count; ++id) {
    UnitVector(seed, id, std::span(table).subspan(id * dim, dim));
  }
  return table;
}

std::vector<double> OrthonormalVectors(std::uint64_t seed, std::int64_t count, std::int64_t dim) {
  if (dim < 1) {
    throw Error(fmt::format("[embedding] dim must be at least 1 but is {}", dim));
  }
  if (count < 0 || count > dim) {
    throw Error(fmt::format(
        "[embedding] count of orthonormal vectors must be in 0..{} (their dimension) but is {}",
        dim, count));
  }
  CounterRandom random(seed, kOrthonormalStream);
  std::vector<double> table(count * dim);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::span row = std::span(table).subspan(i * dim, dim);
    for (double& value : row) {
      value = random.Normal();
    }
    Normalise(row);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t j = 0; j < i; ++j) {
        const std::span<const double> earlier = std::span(table).subspan(j * dim, dim);
        const double overlap = Dot(earlier, row);
        for (std::int64_t c = 0; c < dim; ++c) {
          row[c] -= overlap * earlier[c];
        }
      }
      Normalise(row);
    }
  }
  return table;
}

}  // namespace ttr::experiments
