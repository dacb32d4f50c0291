// Small versions of the studies: their claims hold, their numbers are those of their layers, and do
// not depend on threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "experiments/studies/capacity.h"
#include "experiments/studies/dials.h"
#include "experiments/studies/identities.h"
#include "experiments/studies/mqar.h"
#include "experiments/studies/online_regression.h"
#include "experiments/studies/recall_task.h"
#include "experiments/studies/stability.h"
#include "experiments/studies/statistics.h"
#include "ttr/error.h"
#include "ttr/zoo.h"

namespace ttr::experiments {
namespace {

StudyRun Seeds(std::int64_t seeds) {
  StudyRun run;
  run.seeds = seeds;
  return run;
}

void ExpectAllHold(const StudyResult& result) {
  EXPECT_FALSE(result.claims.empty());
  for (const Claim& claim : result.claims) {
    EXPECT_TRUE(claim.holds) << claim.what << "\n" << claim.evidence;
  }
}

double ValueAt(const report::Table& table, std::size_t row, std::size_t column) {
  return std::get<report::Measured>(table.rows()[row][column].value()).value;
}

OnlineRegressionOptions PaperLayers() {
  OnlineRegressionOptions options;
  options.others = false;
  return options;
}

TEST(Studies, OnlineRegressionKeepsThePapersClaims) {
  // As many as tell RLS from linear attention in the last half.
  const StudyResult result = RunOnlineRegression(PaperLayers(), Seeds(20));
  ExpectAllHold(result);
  EXPECT_EQ(result.command, "ttr experiment online-regression --others false --seeds 20");
}

// The naive forecaster is no layer: its loss is |v_{t+1} - v_t|^2 of the data.
TEST(Studies, TheNaiveLossIsThatOfTheData) {
  OnlineRegressionOptions options = PaperLayers();
  options.process.tokens = 16;
  options.process.key_dim = 5;
  const StudyResult result = RunOnlineRegression(options, Seeds(1));
  const RegressionData data = MakeRegression(options.process, 1);
  const report::Table& curves = result.tables[1].table;
  for (std::size_t t = 0; t < 16; ++t) {
    double loss = 0;
    for (std::size_t i = 0; i < 5; ++i) {
      loss += std::pow(data.target[t * 5 + i] - data.v[t * 5 + i], 2);
    }
    EXPECT_NEAR(ValueAt(curves, t, 1), loss, 1e-14);
  }
  // First quarter: tokens 0 .. 3.
  double mean = 0;
  for (std::size_t t = 0; t < 4; ++t) mean += ValueAt(curves, t, 1) / 4;
  EXPECT_NEAR(ValueAt(result.tables[0].table, 0, 1), mean, 1e-14);
}

TEST(Studies, EveryLayerOfTheZooTakesPartOrIsLeftOutWithAReason) {
  std::set<std::string> seen;
  for (const RegressionLayer& layer : RegressionLayers({})) {
    if (layer.recipe.empty()) continue;
    EXPECT_NO_THROW(StudyLayer(layer.recipe, layer.gates)) << layer.recipe;
    seen.insert(layer.recipe.substr(0, layer.recipe.find('{')));
  }
  for (const LeftOut& layer : LeftOutOfRegression()) {
    EXPECT_TRUE(seen.insert(layer.name).second) << layer.name << " takes part";
    EXPECT_FALSE(layer.why.empty());
  }
  for (const ZooEntry& entry : Zoo()) {
    EXPECT_EQ(seen.count(std::string(entry.name)), 1u) << entry.name;
  }
}

// On engines: the definition would take hours where the sequence is long.
TEST(Studies, LocalFitsHaveEveryKernelAndDegree) {
  std::set<Kernel> kernels;
  std::set<std::string> names;
  for (const RegressionLayer& layer : LocalFits({})) {
    const StudyLayer fit(layer.recipe, layer.gates, Runs::kEngines);
    EXPECT_NE(fit.engine(), "definition") << layer.recipe;
    kernels.insert(fit.recipe().similarity.kernel);
    names.insert(layer.recipe.substr(0, layer.recipe.find('{')));
  }
  EXPECT_EQ(kernels.size(), 7u);
  EXPECT_EQ(names,
            (std::set<std::string>{"local_cubic", "local_linear", "local_quadratic", "softmax"}));
}

TEST(Studies, LocalFitsAreOnLinesOfTheirOwn) {
  OnlineRegressionOptions options;
  options.process.tokens = 64;
  options.process.key_dim = 8;
  const StudyResult result = RunOnlineRegression(options, Seeds(1));
  const report::Table& fits = result.tables.back().table;
  EXPECT_EQ(fits.title(), "Kernels and degrees, the same process with 6 channels");
  ASSERT_EQ(fits.rows().size(), LocalFits(options).size());
  EXPECT_NE(result.claims.back().evidence.find("p = 1 0."), std::string::npos)
      << result.claims.back().evidence;
  // The first is the study's own softmax, of the same process.
  options.process.key_dim = 6;
  const StudyResult same = RunOnlineRegression(options, Seeds(1));
  const std::size_t softmax = 4;
  EXPECT_EQ(same.tables[0].table.Shown(softmax, 0), "softmax, p = 0");
  EXPECT_EQ(ValueAt(fits, 0, 3), ValueAt(same.tables[0].table, softmax, 3));
}

TEST(Studies, LongRegressionsHaveFewerSeeds) {
  const auto seeds = [](std::int64_t tokens) {
    OnlineRegressionOptions options;
    options.process.tokens = tokens;
    return DefaultSeeds(options);
  };
  EXPECT_EQ(seeds(16), kRegressionSeeds);
  EXPECT_EQ(seeds(256), kRegressionSeeds);
  EXPECT_EQ(seeds(1024), 5);
  EXPECT_EQ(seeds(4096), 2);
}

TEST(Studies, RecallIsLimitedByCapacityNotLength) {
  MqarStudyOptions options;
  options.tokens = {256, 512, 1024};
  options.orthonormal = options.zoology = false;
  ExpectAllHold(RunMqar(options, Seeds(3)));
}

TEST(Studies, OrthonormalEmbeddingsAreRecalledByAll) {
  MqarStudyOptions options;
  options.pairs = {16};
  options.tokens = {64};
  options.dim = 16;
  options.replacement = options.all_bigrams = false;
  const StudyResult result = RunMqar(options, Seeds(2));
  const report::Table& table = result.tables[0].table;
  int orthonormal = 0;
  for (std::size_t row = 0; row < table.rows().size(); ++row) {
    if (table.Shown(row, 0) != "balanced, orthonormal") continue;
    ++orthonormal;
    EXPECT_EQ(ValueAt(table, row, 3), 1) << table.Shown(row, 2);
  }
  EXPECT_EQ(orthonormal, 5);
}

TEST(Studies, AnswersAreJudgedByTheGreatestInnerProduct) {
  RecallTask task;
  task.dim = 2;
  task.candidates = {1, 0, 0, 1};
  task.answer = {0, 1, 0, 1};
  const double nan = std::nan("");
  // Right, wrong, a tie, not a number.
  EXPECT_EQ(Accuracy(task, {2, 1, 2, 1, 1, 1, nan, nan}), .25);
}

TEST(Studies, AQueryAskedInItsPlaceSeesWhatStandsBeforeIt) {
  RecallTask task;
  task.dim = 1;
  task.k = {1, 1, 1};
  task.v = {1, 10, 100};
  task.q = {1, 1, 1};
  task.after = {1, 1, 3};
  EXPECT_EQ(AskInPlace(StudyLayer("linear_attention"), task), (std::vector<double>{1, 1, 111}));
}

TEST(Studies, AllBigramsAreThoseOfTheText) {
  MqarOptions mqar;
  mqar.law = MqarLaw::kBalanced;
  mqar.pairs = 3;
  mqar.passes = 2;
  const MqarExample example = MakeMqar(mqar, 5, 0);
  const RecallTask pairs = MakeRecallTask(example, 8, 5, Embedding::kUnit, Memorized::kPairs);
  const RecallTask all = MakeRecallTask(example, 8, 5, Embedding::kUnit, Memorized::kAllBigrams);
  EXPECT_EQ(pairs.k.size(), 6u * 8u);
  ASSERT_EQ(all.k.size(), 11u * 8u);  // 12 tokens
  // Every other bigram is a pair; the next one has its response for a key.
  for (std::size_t i = 0; i < 6 * 8; ++i) {
    const std::size_t at = i / 8 * 16 + i % 8;
    EXPECT_EQ(all.k[at], pairs.k[i]);
    EXPECT_EQ(all.v[at], pairs.v[i]);
  }
  for (std::size_t i = 0; i < 5 * 8; ++i) EXPECT_EQ(all.k[i / 8 * 16 + 8 + i % 8], pairs.v[i]);
}

TEST(Studies, CapacityOfLeastSquaresIsAboveThatOfLinearAttention) {
  CapacityOptions options;
  options.dim = 16;
  options.pairs = {8, 16, 48, 96};
  const StudyResult result = RunCapacity(options, Seeds(3));
  ExpectAllHold(result);
}

TEST(Studies, StabilityKeepsTheBound) {
  StabilityOptions options;
  options.tokens = 256;
  options.dim = 8;
  ExpectAllHold(RunStability(options, Seeds(3)));
}

TEST(Studies, SmallestEigenvalueOfKnownMatrices) {
  EXPECT_NEAR(SmallestEigenvalue({2, 1, 1, 2}, 2), 1, 1e-14);
  // The second difference: 2 - 2 cos(pi / (n + 1)).
  const std::int64_t n = 6;
  std::vector<double> matrix(36);
  for (std::int64_t i = 0; i < n; ++i) {
    matrix[i * n + i] = 2;
    if (i + 1 < n) matrix[i * n + i + 1] = matrix[(i + 1) * n + i] = -1;
  }
  EXPECT_NEAR(SmallestEigenvalue(matrix, n), 2 - 2 * std::cos(std::acos(-1) / 7), 1e-14);
}

TEST(Studies, IdentitiesHoldInOtherSizesToo) {
  ExpectAllHold(RunIdentities({}, Seeds(2)));
  IdentitiesOptions options;
  options.dim = 4;
  options.tokens = 32;
  ExpectAllHold(RunIdentities(options, Seeds(1)));
}

TEST(Studies, DialsArriveAtLeastSquares) {
  DialsOptions options;
  options.dim = 16;
  options.pairs = 32;
  options.few_pairs = 8;
  options.steps = {1, 4, 16, 64, 256};
  options.passes = {1, 4, 16};
  ExpectAllHold(RunDials(options, Seeds(2)));
}

TEST(Statistics, MeanAndItsError) {
  const report::Measured m = MeanOf({1, 2, 3, 6});
  EXPECT_EQ(m.value, 3);
  EXPECT_NEAR(m.error, std::sqrt(14. / 3 / 4), 1e-15);
  EXPECT_TRUE(std::isnan(MeanOf({1}).error));
}

TEST(Statistics, AClaimNeedsTwoStandardErrors) {
  EXPECT_TRUE(Increasing("", {{"a", {1, 2, 3}}, {"b", {2, 3.1, 3.9}}}).holds);
  // A mean difference as before, of another sign at one seed.
  EXPECT_FALSE(Increasing("", {{"a", {1, 2, 3}}, {"b", {4, 5, 0}}}).holds);
  EXPECT_FALSE(Increasing("", {{"a", {1}}, {"b", {1}}}).holds);
  EXPECT_FALSE(Increasing("", {{"a", {1, 2}}, {"b", {3, std::nan("")}}}).holds);
}

}  // namespace
}  // namespace ttr::experiments
