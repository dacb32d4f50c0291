/// Pairs of real input, as the memories of `ttr recall` and `ttr forecast` get them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/studies/layers.h"

namespace ttr::experiments {

struct PairStream {
  std::int64_t key_dim = 0, value_dim = 0;
  std::vector<double> k, v;  ///< [count, key_dim], [count, value_dim]
  std::vector<double> q;     ///< the key of the pair that follows; the last one's own

  std::int64_t count() const { return static_cast<std::int64_t>(k.size()) / key_dim; }
  PairRows rows() const { return {key_dim, value_dim, k, v, q}; }
};

/// Word by word: the key is the vector of a word (embedding.h), the value that of the next. Reads
/// the first `limit` words and marks. Throws Error where the file has fewer than three.
PairStream PairsOfText(const std::string& path, std::int64_t dim, std::uint64_t seed,
                       std::int64_t limit);

/// Row by row: the key is a window of `lags` rows of one column, the value the next row, both in
/// the window's units (lag_window.h). A missing value is the last known one. Reads the first
/// `limit` rows. Throws Error where the table has fewer than lags + 2.
PairStream PairsOfSeries(const std::string& path, const std::string& column, std::int64_t lags,
                         std::int64_t limit);

/// |v_t - y_t|^2 and |v_t|^2 of the pairs from the second on, y_t what the layer holds for k_t
/// before it sees v_t; summed over t = 2^i .. 2^(i+1) - 1 for every i, then over the last half.
struct InnerLosses {
  std::vector<double> losses, sizes;
  double last_loss = 0, last_size = 0;
};
InnerLosses LossesOf(const StudyLayer& layer, const PairStream& pairs);

}  // namespace ttr::experiments
