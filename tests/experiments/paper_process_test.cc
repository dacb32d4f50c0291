// Least squares on the process of the paper's figure 2, each layer as it comes: what it answers is
// never far worse than answering 0. (Sums that nothing divides, as linear attention's, grow with
// the text: that is what they are.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "experiments/data/regression.h"
#include "experiments/studies/layers.h"
#include "ttr/plan.h"
#include "ttr/zoo.h"

namespace ttr::experiments {
namespace {

// Targets have length 1: answering 0 costs 1.
constexpr double kWorst = 5;

RegressionData Process(std::int64_t tokens, bool unit_keys) {
  RegressionData made = MakeRegression({.tokens = tokens}, 1);
  const std::int64_t dim = made.key_dim;
  for (std::vector<double>* rows : {&made.k, &made.q}) {
    for (std::int64_t t = 0; unit_keys && t < tokens; ++t) {
      const auto row = std::span<double>(*rows).subspan(static_cast<std::size_t>(t * dim),
                                                        static_cast<std::size_t>(dim));
      double square = 0;
      for (const double x : row) square += x * x;
      for (double& x : row) x /= std::sqrt(square);
    }
  }
  return made;
}

// The worst loss of a token.
void ExpectNoneExplodes(const std::string& name, const RegressionData& data) {
  const StudyLayer layer(name, {}, Runs::kPlanned);
  std::vector<Status> status;
  const std::vector<double> y = layer.Forward(
      {.key_dim = data.key_dim, .value_dim = data.key_dim, .k = data.k, .v = data.v, .q = data.q},
      &status);
  double worst = 0;
  for (std::int64_t t = 0; t < data.tokens; ++t) {
    EXPECT_NE(status[static_cast<std::size_t>(t)], Status::kNotConverged)
        << name << ", token " << t;
    double loss = 0;
    for (std::int64_t c = 0; c < data.key_dim; ++c) {
      const auto at = static_cast<std::size_t>(t * data.key_dim + c);
      loss += std::pow(y[at] - data.target[at], 2);
    }
    worst = std::isnan(loss) ? loss : std::max(worst, loss);
  }
  EXPECT_LE(worst, kWorst) << name << ", " << data.tokens << " tokens";
}

TEST(PaperProcess, NoLayerExplodes) {
  for (const bool unit_keys : {false, true}) {
    for (const std::int64_t tokens : {256, 4096}) {
      const RegressionData process = Process(tokens, unit_keys);
      int layers = 0;
      for (const ZooEntry& entry : Zoo()) {
        if (MakePlan(ParseRecipe(entry.name)).engine != "least_squares") continue;
        ExpectNoneExplodes(std::string(entry.name), process);
        ++layers;
      }
      EXPECT_GT(layers, 6);
    }
  }
}

}  // namespace
}  // namespace ttr::experiments
