#include "experiments/data/regression.h"

#include <fmt/core.h>

#include <cmath>

#include "experiments/data/streams.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

void Require(bool holds, const char* name, const char* required, double given) {
  if (!holds) {
    throw Error(fmt::format("[online-regression] {} must be {} but is {}", name, required, given));
  }
}

void Validate(const SwitchingProcess& p) {
  const auto dim = static_cast<double>(p.key_dim);
  Require(p.tokens >= 1, "tokens", "at least 1", static_cast<double>(p.tokens));
  Require(p.key_dim >= 1, "key_dim", "at least 1", dim);
  const bool stationary = p.start == KeyStart::kStationary;
  Require(std::fabs(p.first_decay) < 1 || (!stationary && std::fabs(p.first_decay) == 1),
          "first_decay", "inside (-1, 1)", p.first_decay);
  Require(std::fabs(p.second_decay) <= 1, "second_decay", "in [-1, 1]", p.second_decay);
  Require(p.noise > 0 && std::isfinite(p.noise), "noise", "positive and finite", p.noise);
  Require(p.rho <= 1 && 1 + (dim - 1) * p.rho >= 0, "rho", "in [-1 / (key_dim - 1), 1]", p.rho);
}

// Draws Sigma^(1/2) z: the symmetric root of (1 - rho) I + rho 1 1^T scales the mean of z by
// sqrt(1 - rho + rho Dk) and all that is orthogonal to 1 by sqrt(1 - rho).
void DrawNoise(const SwitchingProcess& p, CounterRandom& random, std::vector<double>& eps) {
  const auto dim = static_cast<double>(p.key_dim);
  const double across = std::sqrt(1 - p.rho);
  const double along = std::sqrt(1 + (dim - 1) * p.rho);
  double sum = 0;
  for (double& z : eps) {
    z = random.Normal();
    sum += z;
  }
  const double shift = (along - across) * (sum / dim);
  for (double& z : eps) {
    z = across * z + shift;
  }
}

void Normalise(const double* x, std::int64_t dim, double* unit) {
  double sum = 0;
  for (std::int64_t i = 0; i < dim; ++i) {
    sum += x[i] * x[i];
  }
  const double norm = std::sqrt(sum);
  for (std::int64_t i = 0; i < dim; ++i) {
    unit[i] = x[i] / norm;
  }
}

}  // namespace

RegressionData MakeRegression(const SwitchingProcess& process, std::uint64_t seed) {
  Validate(process);
  const std::int64_t tokens = process.tokens;
  const std::int64_t dim = process.key_dim;
  CounterRandom random(seed, kRegressionStream);

  RegressionData data;
  data.tokens = tokens;
  data.key_dim = dim;
  std::vector<double> key(dim), eps(dim);
  if (process.start == KeyStart::kStationary) {
    const double deviation =
        process.noise / std::sqrt(1 - process.first_decay * process.first_decay);
    DrawNoise(process, random, eps);
    for (std::int64_t i = 0; i < dim; ++i) {
      key[i] = deviation * eps[i];
    }
  }
  data.keys.reserve((tokens + 2) * dim);
  for (std::int64_t t = 0; t < tokens + 2; ++t) {
    const double decay = 4 * t < tokens ? process.first_decay : process.second_decay;
    DrawNoise(process, random, eps);
    for (std::int64_t i = 0; i < dim; ++i) {
      key[i] = decay * key[i] + process.noise * eps[i];
    }
    data.keys.insert(data.keys.end(), key.begin(), key.end());
  }

  const auto row = [&data, dim](std::int64_t t) { return data.keys.begin() + t * dim; };
  data.k.assign(row(0), row(tokens));
  data.q.assign(row(1), row(tokens + 1));
  data.v.resize(tokens * dim);
  data.target.resize(tokens * dim);
  for (std::int64_t t = 0; t < tokens; ++t) {
    Normalise(&data.keys[(t + 1) * dim], dim, &data.v[t * dim]);
    Normalise(&data.keys[(t + 2) * dim], dim, &data.target[t * dim]);
  }
  return data;
}

}  // namespace ttr::experiments
