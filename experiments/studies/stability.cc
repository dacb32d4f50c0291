#include "experiments/studies/stability.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "experiments/studies/layers.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/stability_streams.h"
#include "experiments/studies/statistics.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

constexpr char kName[] = "stability";
// A stream of random numbers that no generator of data/streams.h has.
constexpr std::uint64_t kStream = 16;

constexpr const char* kLabels[] = {"linear attention", "linear attention, L2 norm", "least squares",
                                   "the bound"};
constexpr const char* kRecipes[] = {"linear_attention", "linear_attention{output_norm: l2}",
                                    "rls{ridge: 0}"};
enum Line { kLinear, kNormed, kExact, kBound, kLines, kStreams = kLines, kParts };

struct Data {
  std::vector<double> k, v, q;
};

Data MakeData(const StabilityOptions& o, std::uint64_t seed) {
  CounterRandom random(seed, kStream);
  const auto dim = static_cast<double>(o.dim);
  const double across = std::sqrt(1 - o.rho), along = std::sqrt(1 + (dim - 1) * o.rho);
  const auto draw = [&](std::vector<double>& rows) {
    std::vector<double> z(static_cast<std::size_t>(o.dim));
    double sum = 0;
    for (double& x : z) sum += x = random.Normal();
    for (const double x : z) {
      rows.push_back((across * x + (along - across) * sum / dim) / std::sqrt(dim));
    }
  };
  std::vector<double> w(static_cast<std::size_t>(o.dim * o.dim));
  for (double& x : w) x = random.Normal() / std::sqrt(dim);
  Data data;
  for (std::int64_t t = 0; t < o.tokens; ++t) {
    draw(data.k);
    draw(data.q);
    const double* k = data.k.data() + t * o.dim;
    for (std::int64_t i = 0; i < o.dim; ++i) {
      double v = o.noise * random.Normal() / std::sqrt(dim);
      for (std::int64_t j = 0; j < o.dim; ++j)
        v += w[static_cast<std::size_t>(i * o.dim + j)] * k[j];
      data.v.push_back(v);
    }
  }
  return data;
}

double Norm(const double* x, std::int64_t n) {
  double squares = 0;
  for (std::int64_t i = 0; i < n; ++i) squares += x[i] * x[i];
  return std::sqrt(squares);
}

std::vector<double> Norms(const std::vector<double>& rows, std::int64_t dim) {
  std::vector<double> norms;
  for (std::size_t at = 0; at < rows.size(); at += static_cast<std::size_t>(dim)) {
    norms.push_back(Norm(rows.data() + at, dim));
  }
  return norms;
}

std::vector<double> Bound(const StabilityOptions& o, const Data& data) {
  std::vector<double> gram(static_cast<std::size_t>(o.dim * o.dim)), bound;
  double products = 0;
  for (std::int64_t t = 0; t < o.tokens; ++t) {
    const double* k = data.k.data() + t * o.dim;
    for (std::int64_t i = 0; i < o.dim; ++i) {
      for (std::int64_t j = 0; j < o.dim; ++j) {
        gram[static_cast<std::size_t>(i * o.dim + j)] += k[i] * k[j];
      }
    }
    products += Norm(k, o.dim) * Norm(data.v.data() + t * o.dim, o.dim);
    const double query = Norm(data.q.data() + t * o.dim, o.dim);
    // Fewer keys than channels: the smallest eigenvalue is zero but for rounding.
    bound.push_back(t + 1 < o.dim ? std::numeric_limits<double>::infinity()
                                  : query * products / SmallestEigenvalue(gram, o.dim));
  }
  return bound;
}

Numbers Run(const StabilityOptions& o, const Data& data, std::int64_t line) {
  if (line == kBound) return Bound(o, data);
  const StudyLayer layer(kRecipes[line], {}, Runs::kLeastSquaresEngine);
  return Norms(
      layer.Forward({.key_dim = o.dim, .value_dim = o.dim, .k = data.k, .v = data.v, .q = data.q}),
      o.dim);
}

// Root of the mean square over seeds of tokens begin .. end: single queries are long and short.
double Typical(const PartResults& results, std::size_t line, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (const auto& seed : results) {
    for (std::size_t t = begin; t < end; ++t) sum += seed[line][t] * seed[line][t];
  }
  return std::sqrt(sum / static_cast<double>(results.size() * (end - begin)));
}

std::vector<Claim> CheckClaims(const StabilityOptions& o, const PartResults& results) {
  std::vector<Claim> claims;
  const auto n = static_cast<std::size_t>(o.tokens);
  double closest = 0;
  for (const auto& seed : results) {
    for (std::size_t t = 0; t < n; ++t) {
      closest = std::max(closest, seed[kExact][t] / seed[kBound][t]);
    }
  }
  claims.push_back({"the output of least squares stays below the bound at every token",
                    closest <= 1, fmt::format("at most {:.3g} of it", closest)});
  const double linear =
      Typical(results, kLinear, n / 2, n) / Typical(results, kLinear, n / 8, n / 4);
  const double exact = Typical(results, kExact, n / 2, n) / Typical(results, kExact, n / 8, n / 4);
  claims.push_back(
      {"from the second eighth of the tokens to the last half, four times as many, the "
       "output of linear attention grows in proportion (3 to 5 times)",
       linear > 3 && linear < 5, fmt::format("{:.2f} times", linear)});
  claims.push_back({"the output of least squares does not (less than 1.5 times)", exact < 1.5,
                    fmt::format("{:.2f} times", exact)});
  return claims;
}

void CheckOptions(const StabilityOptions& given) {
  RequireOption(given.dim >= 1 && given.dim <= 128, kName, "dim", "1 to 128",
                static_cast<double>(given.dim));
  RequireOption(given.tokens >= 8 && given.tokens <= 100000, kName, "tokens", "8 to 100000",
                static_cast<double>(given.tokens));
  RequireOption(given.rho >= 0 && given.rho < 1, kName, "rho", "in [0, 1)", given.rho);
  RequireOption(given.noise >= 0 && std::isfinite(given.noise), kName, "noise",
                "at least 0 and finite", given.noise);
  RequireOption(given.stream >= 64 && given.stream <= 10'000'000, kName, "stream", "64 to 10000000",
                static_cast<double>(given.stream));
}

/// The norms of outputs, as a table and a chart.
std::pair<report::Table, report::Chart> Norms(const StabilityOptions& given,
                                              const PartResults& results) {
  report::Table table("Norm of the output");
  table.AddInteger("tokens");
  for (const char* label : kLabels) table.AddReal(label, 3, "", report::RealFormat::kSignificant);
  report::Chart chart{.title = "Stability: the norm of the output",
                      .subtitle = fmt::format("mean of {} seeds, correlated keys, Dk = {}",
                                              results.size(), given.dim)};
  report::Panel panel{.x = {.label = "token", .scale = report::Scale::kLog2},
                      .y = {.label = "|y|", .scale = report::Scale::kLog10}};
  panel.references.push_back(
      {.at = static_cast<double>(given.dim), .vertical = true, .label = "t = Dk"});
  std::vector<Band> bands;
  for (std::size_t line = 0; line < kLines; ++line) {
    std::vector<std::vector<double>> rows;
    for (const auto& seed : results) rows.push_back(seed[line]);
    bands.push_back(BandOf(rows));
    report::Series series{.name = kLabels[line], .y = bands.back().mean, .muted = line == kBound};
    for (std::int64_t t = 1; t <= given.tokens; ++t) series.x.push_back(static_cast<double>(t));
    panel.series.push_back(std::move(series));
  }
  chart.panels.push_back(std::move(panel));
  for (std::int64_t t = 1; t <= given.tokens; t *= 2) {
    std::vector<report::Cell> row = {t};
    for (const Band& band : bands) row.emplace_back(band.mean[static_cast<std::size_t>(t - 1)]);
    table.AddRow(std::move(row));
  }
  return {std::move(table), std::move(chart)};
}

}  // namespace

double SmallestEigenvalue(std::vector<double> matrix, std::int64_t n) {
  const auto at = [&](std::int64_t i, std::int64_t j) -> double& {
    return matrix[static_cast<std::size_t>(i * n + j)];
  };
  // Each rotation takes one element off the diagonal to zero; few sweeps leave nothing but
  // rounding.
  constexpr int kMostSweeps = 30;
  for (int sweep = 0; sweep < kMostSweeps; ++sweep) {
    double off = 0, on = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      on += at(i, i) * at(i, i);
      for (std::int64_t j = 0; j < i; ++j) off += at(i, j) * at(i, j);
    }
    if (off <= 1e-28 * on) break;
    for (std::int64_t p = 0; p < n; ++p) {
      for (std::int64_t q = p + 1; q < n; ++q) {
        if (at(p, q) == 0) continue;
        const double theta = (at(q, q) - at(p, p)) / (2 * at(p, q));
        const double sign = theta < 0 ? -1 : 1;
        const double t = sign / (std::fabs(theta) + std::sqrt(theta * theta + 1));
        const double c = 1 / std::sqrt(t * t + 1), s = t * c;
        for (std::int64_t i = 0; i < n; ++i) {
          const double ip = at(i, p), iq = at(i, q);
          at(i, p) = c * ip - s * iq;
          at(i, q) = s * ip + c * iq;
        }
        for (std::int64_t i = 0; i < n; ++i) {
          const double pi = at(p, i), qi = at(q, i);
          at(p, i) = c * pi - s * qi;
          at(q, i) = s * pi + c * qi;
        }
      }
    }
  }
  double smallest = at(0, 0);
  for (std::int64_t i = 1; i < n; ++i) smallest = std::min(smallest, at(i, i));
  return smallest;
}

OptionFields Fields(StabilityOptions& o) {
  return {
      {"tokens", &o.tokens, "length of the sequence"},
      {"dim", &o.dim, "length of keys and values"},
      {"rho", &o.rho, "correlation between the channels of the keys"},
      {"noise", &o.noise, "noise of the values, relative to the keys"},
      {"stream", &o.stream, "tokens of the streams that are forgotten"},
  };
}

StudyResult RunStability(const StabilityOptions& options, const StudyRun& run) {
  StabilityOptions defaults, given = options;
  CheckOptions(given);
  const PartResults results = RunParts(run, kName, kStabilitySeeds, Fields(given), kParts,
                                       [&](std::uint64_t seed, std::int64_t part) {
                                         if (part == kStreams) return RunStreams(given, seed);
                                         return Run(given, MakeData(given, seed), part);
                                       });

  auto [table, chart] = Norms(given, results);
  SetMeta(table, SeedRange(run, kStabilitySeeds), Fields(given));

  StudyResult result;
  result.name = kName;
  result.title = "Stability";
  result.sentences = {
      "The output of linear attention grows in proportion to the number of tokens; that of least "
      "squares peaks where there are as many keys as channels and then settles, far below the "
      "paper's bound.",
      "Least squares divides by the covariance of the keys, which grows as the sum over the values "
      "does; linear attention takes it for the identity. Normalising the output gives back the "
      "size "
      "and not the direction.",
      "Least squares that forgets cannot carry the inverse of that covariance, as textbooks do: "
      "rounding makes it the inverse of nothing within some thousand tokens, sooner where keys "
      "leave a direction alone. The engine carries the covariance, and solves.",
  };
  result.command = CommandOf(kName, Fields(given), Fields(defaults), run);
  result.claims = CheckClaims(given, results);
  for (Claim& claim : StreamClaims(given, results, kStreams)) {
    result.claims.push_back(std::move(claim));
  }
  report::Table streams = StreamTable(given, results, kStreams);
  SetMeta(streams, SeedRange(run, kStabilitySeeds), Fields(given));
  result.tables.push_back({"stability-norms", std::move(table)});
  result.tables.push_back({"stability-streams", std::move(streams)});
  result.charts.push_back({"stability", std::move(chart)});
  return result;
}

}  // namespace ttr::experiments
