#include "experiments/studies/inner_pairs.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "experiments/data/embedding.h"
#include "experiments/data/input.h"
#include "experiments/data/table.h"
#include "experiments/data/text.h"
#include "src/forecast/lag_window.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

PairStream WithQueries(PairStream pairs, const std::string& path, const char* needed) {
  if (pairs.k.empty() || pairs.count() < 2) throw Error("[inner-loss] " + path + " has " + needed);
  pairs.q.assign(pairs.k.begin() + pairs.key_dim, pairs.k.end());
  pairs.q.insert(pairs.q.end(), pairs.k.end() - pairs.key_dim, pairs.k.end());
  return pairs;
}

}  // namespace

PairStream PairsOfText(const std::string& path, std::int64_t dim, std::uint64_t seed,
                       std::int64_t limit) {
  Input input(path);
  TextReader reader(input.stream(), input.name());
  Vocabulary vocabulary;
  PairStream pairs{.key_dim = dim, .value_dim = dim, .k = {}, .v = {}, .q = {}};
  std::vector<double> vector(static_cast<std::size_t>(dim));
  std::string word;
  for (std::int64_t t = 0; t < limit && reader.Next(word); ++t) {
    UnitVector(seed, vocabulary.Add(word), vector);
    if (t > 0) pairs.v.insert(pairs.v.end(), vector.begin(), vector.end());
    pairs.k.insert(pairs.k.end(), vector.begin(), vector.end());
  }
  pairs.k.resize(pairs.v.size());
  return WithQueries(std::move(pairs), path, "fewer than three words");
}

PairStream PairsOfSeries(const std::string& path, const std::string& column, std::int64_t lags,
                         std::int64_t limit) {
  Input input(path);
  TableReader table(input.stream(), input.name(), {.columns = {column}});
  forecasting::LagWindow window(lags, 1, Units::kWindow);
  PairStream pairs{.key_dim = lags, .value_dim = 1, .k = {}, .v = {}, .q = {}};
  TableRow row;
  forecasting::LagKey key;
  for (std::int64_t t = 0; t < limit && table.Next(row);) {
    const bool missing = std::isnan(row.values[0]);
    if (missing && window.empty()) continue;
    const double value = missing ? window.latest()[0] : row.values[0];
    if (window.full()) {
      window.MakeKey(key);
      double next = 0;
      window.ToMemory(key, {&value, 1}, {&next, 1});
      pairs.k.insert(pairs.k.end(), key.key.begin(), key.key.end());
      pairs.v.push_back(next);
    }
    window.Push({&value, 1});
    ++t;
  }
  return WithQueries(std::move(pairs), path, "fewer rows than two windows");
}

InnerLosses LossesOf(const StudyLayer& layer, const PairStream& pairs) {
  const std::vector<double> y = layer.Forward(pairs.rows());
  const std::int64_t count = pairs.count(), dim = pairs.value_dim;
  InnerLosses result;
  for (std::int64_t t = 1; t < count; ++t) {
    double loss = 0, size = 0;
    for (std::int64_t c = 0; c < dim; ++c) {
      const double v = pairs.v[t * dim + c], error = v - y[(t - 1) * dim + c];
      loss += error * error;
      size += v * v;
    }
    const auto bin = static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(t)) - 1);
    result.losses.resize(bin + 1);
    result.sizes.resize(bin + 1);
    result.losses[bin] += loss;
    result.sizes[bin] += size;
    if (2 * t < count) continue;
    result.last_loss += loss;
    result.last_size += size;
  }
  return result;
}

}  // namespace ttr::experiments
