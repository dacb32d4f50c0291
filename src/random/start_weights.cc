#include "src/random/start_weights.h"

#include <cmath>
#include <cstddef>

#include "ttr/util/random.h"

namespace ttr {

std::vector<std::vector<double>> DrawStartWeights(std::uint64_t seed, std::uint64_t stream,
                                                  std::span<const std::int64_t> widths,
                                                  bool gated) {
  CounterRandom random(seed, stream);
  std::vector<std::vector<double>> weights;
  for (std::size_t l = 0; l + 1 < widths.size(); ++l) {
    const std::int64_t columns = widths[l + 1] * (gated && l + 2 < widths.size() ? 2 : 1);
    std::vector<double>& w = weights.emplace_back(static_cast<std::size_t>(widths[l] * columns));
    if (widths.size() == 2) break;
    for (double& entry : w) entry = random.Normal() / std::sqrt(static_cast<double>(widths[l]));
  }
  return weights;
}

}  // namespace ttr
