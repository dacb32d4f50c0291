// What `ttr bench` knows of least squares: memories that carry the Gram matrix of their keys.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "experiments/report/chart.h"
#include "experiments/report/table.h"
#include "ttr/plan.h"

namespace ttr::tools {

class Limits;
class Work;

// What the measurement least_squares times where no layer is named, and what it holds all against.
inline constexpr std::string_view kLeastSquaresLayers[] = {"rls", "weighted_rls",
                                                           "mesa{decay: none}", "mesa", "kalmanet"};
inline constexpr std::string_view kDeltaRule = "gated_deltanet";
inline constexpr std::int64_t kLeastSquaresTokens = 1024;
// The definition takes milliseconds a token.
inline constexpr std::int64_t kDefinitionTokens = 16;

// Does the memory carry the Gram matrix of its keys?
bool CarriesGram(const Recipe& recipe);

// So many random tokens make a Gram matrix of full rank whose condition is mild.
std::int64_t TokensOfFullRank(const Recipe& recipe, const Dims& dims);

// Useful flops a token and memory of a layer that carries a Gram matrix. With D = Dphi and chunks
// of m = 64 tokens,
//     4 D^2 + 6 D Dv + m (3 D + 3 Dv) + (D^3 + m^3) / 3m    exact, tokens sharing a factor
//     D^3 / 3 + 5 D^2 + 6 D Dv                              a factor of every token's own
//     2 D^2 (1 + steps) + 4 D Dv                            iterative
// A single token has a factor of its own.
double LeastSquaresFlops(const Recipe& recipe, const Dims& dims, bool decoder);

// Whole sequences, forward and backward; empty where no engine runs or differentiates the layer.
report::Table LeastSquaresTable(const std::vector<Work>& works, const Limits& limits);
report::Table LeastSquaresDecodeTable(const std::vector<Work>& works, const Limits& limits);

// Times the delta rule of the same shape. No panel where nothing was run.
report::Chart LeastSquaresChart(const std::vector<Work>& works);

}  // namespace ttr::tools
