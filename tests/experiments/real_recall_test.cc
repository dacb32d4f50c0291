#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/real/recall.h"
#include "experiments/real/recall_report.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

RecallOptions Options(const std::vector<std::string>& memories) {
  RecallOptions options;
  for (const std::string& text : memories) options.memories.push_back({text, ParseRecipe(text)});
  return options;
}

void ReadText(RecallRun& run, const std::string& text) {
  std::istringstream in(text);
  TextReader reader(in, "test");
  std::string token;
  while (reader.Next(token)) run.Read(token);
  run.Finish();
}

const std::vector<std::string> kMemories = {"linear_attention",
                                            "retnet",
                                            "deltanet",
                                            "nlms",
                                            "gated_deltanet",
                                            "rls",
                                            "weighted_rls",
                                            "mesa",
                                            "softmax{scale: 16}",
                                            "rls{read: before}",
                                            "linear_attention{read: before}",
                                            "comba",
                                            "kda"};

TEST(Recall, HakunaMatata) {
  RecallRun run(Options(kMemories));
  ReadText(run, "Hakuna Matata, it means no worries for the rest of your days. Hakuna Matata");
  const std::int64_t matata = run.vocabulary().Find("Matata");
  for (std::size_t m = 0; m < kMemories.size(); ++m) {
    EXPECT_EQ(run.latest_answer(m), matata) << kMemories[m];
    const RecallResult& result = run.results()[m + 1];
    EXPECT_EQ(result.tokens, 16);
    // "Hakuna" alone comes again with a word behind it.
    EXPECT_EQ(result.seen.questions, 1) << kMemories[m];
    EXPECT_EQ(result.seen.hits, 1) << kMemories[m];
    EXPECT_EQ(result.all.questions, 15);
    EXPECT_EQ(result.all.hits, 1);
    EXPECT_EQ(result.known, 2);
  }
}

// A cycle: every token has one successor, and every memory that has seen
// it names it.
TEST(Recall, NamesTheSuccessorsOfACycle) {
  RecallRun run(Options({"linear_attention", "rls", "softmax{scale: 32}", "nlms"}));
  for (int t = 0; t < 1500; ++t) run.Read("w" + std::to_string(t % 20));
  run.Finish();
  for (const RecallResult& result : run.results()) {
    EXPECT_EQ(result.seen.questions, 1500 - 21) << result.method;
    EXPECT_EQ(result.pair.questions, 1500 - 21) << result.method;
    EXPECT_EQ(result.seen.hits, result.seen.questions) << result.method;
  }
}

TEST(Recall, BlocksDoNotShow) {
  // The end of the text may come anywhere: the answers before it are the same.
  std::vector<std::string> tokens;
  CounterRandom random(2);
  for (int t = 0; t < 700; ++t) tokens.push_back("w" + std::to_string(random.Below(40)));
  const auto bits = [&](std::int64_t pause) {
    RecallRun run(Options({"gated_deltanet", "rls", "softmax{scale: 16}", "rls{read: before}"}));
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      run.Read(tokens[t]);
      if (pause > 0 && static_cast<std::int64_t>(t) % pause == 0) run.Finish();
    }
    run.Finish();
    return run.results();
  };
  const auto whole = bits(0);
  const auto pieces = bits(13);
  for (std::size_t m = 0; m < whole.size(); ++m) {
    EXPECT_NEAR(whole[m].bits, pieces[m].bits, 1e-3 * whole[m].bits) << whole[m].method;
    EXPECT_NEAR(static_cast<double>(whole[m].all.hits), static_cast<double>(pieces[m].all.hits), 2);
  }
  // Read before write, or everything one token late: the same questions.
  EXPECT_NEAR(whole[2].bits, whole[4].bits, 1e-6 * whole[2].bits);
}

TEST(Recall, GrowingMemoriesStop) {
  RecallOptions options = Options({"softmax", "rls", "window_softmax"});
  options.kept = 300;
  RecallRun run(options);
  for (int t = 0; t < 1000; ++t) run.Read(std::to_string(t % 7));
  run.Finish();
  EXPECT_EQ(run.results()[1].tokens, 300);
  EXPECT_EQ(run.results()[2].tokens, 1000);
  EXPECT_EQ(run.results()[3].tokens, 1000);
}

TEST(Recall, RefusesWhatCannotRead) {
  EXPECT_THROW(RecallRun{Options({"intention"})}, Error);
  EXPECT_THROW(RecallRun{Options({"hgrn"})}, Error);
  EXPECT_THROW(RecallRun{Options({"rls", "rls"})}, Error);
  RecallOptions options = Options({"rls"});
  options.dim = 0;
  EXPECT_THROW(RecallRun{options}, Error);
}

TEST(Recall, TablesAndPictureHoldEveryMethod) {
  const RecallOptions options = Options({"rls", "deltanet"});
  RecallRun run(options);
  for (int t = 0; t < 300; ++t) run.Read(std::to_string(t % 7));
  run.Finish();
  EXPECT_EQ(RecallTable(run, options, "x").rows().size(), 3u);
  EXPECT_GT(RecallCurve(run).rows().size(), 12u);
  EXPECT_NE(report::RenderSvg(RecallChart(run, options, "x")).find("deltanet"), std::string::npos);
}

TEST(TokenCode, SoftmaxOfEveryTemperatureSumsToOne) {
  const std::vector<float> scores = {.3f, -.2f, 1.5f, .7f, 0, .1f, -1, .2f, .9f, 1.1f, .4f};
  std::vector<double> sums(kTemperatures);
  double mixture = 0;
  for (std::int64_t token = 0; token < 11; ++token) {
    std::vector<float> copy = scores;
    const ScoreSummary summary = Summarise(copy, token);
    EXPECT_EQ(summary.best, 2);
    for (int i = 0; i < kTemperatures; ++i) sums[i] += std::exp(summary.log_p[i]);
    TemperatureMixture fresh;
    mixture += std::exp2(-fresh.Bits(summary));
  }
  for (const double sum : sums) EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_NEAR(mixture, 1, 1e-5);
}

TEST(TokenCode, MixtureFindsTheTemperature) {
  TemperatureMixture mixture;
  std::vector<float> scores = {1, 0, 0, 0};
  const ScoreSummary right = Summarise(scores, 0);
  double bits = 0;
  for (int t = 0; t < 20; ++t) bits = mixture.Bits(right);
  EXPECT_LT(bits, .05);
}

TEST(TokenCode, WhatSaysNothingCostsAUniformChoice) {
  std::vector<float> zeros(8, 0.f);
  const ScoreSummary nothing = Summarise(zeros, 3);
  EXPECT_EQ(nothing.best, -1);
  EXPECT_NEAR(TemperatureMixture().Bits(nothing), 3, 1e-6);
  std::vector<float> broken = {1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(Summarise(broken, 0).best, -1);
}

TEST(TokenCode, NoveltyIsAProperCode) {
  // After 3 new among 7 tokens: P(new) = 3.5 / 8; a known token costs what is left.
  Novelty words(TokenKind::kWords);
  for (int t = 0; t < 7; ++t) words.Bits(t < 3, "ab");
  Novelty copy = words;
  EXPECT_NEAR(words.Bits(false, "ab"), -std::log2(4.5 / 8), 1e-12);
  EXPECT_NEAR(copy.Bits(true, "ab"), -std::log2(3.5 / 8) + 3 * std::log2(257.), 1e-12);
  Novelty bytes(TokenKind::kBytes);
  EXPECT_NEAR(bytes.Bits(true, "a"), 1 + 8, 1e-12);
}

TEST(PairCounts, MostFrequentSuccessorTheLatestOfEquals) {
  BigramCounts counts;
  EXPECT_EQ(counts.Best(0), -1);
  counts.Add(-1, 0);
  counts.Add(0, 1);
  counts.Add(1, 0);
  counts.Add(0, 2);
  EXPECT_EQ(counts.Best(0), 2);
  counts.Add(2, 0);
  counts.Add(0, 1);
  EXPECT_EQ(counts.Best(0), 1);
  EXPECT_TRUE(counts.Followed(0, 2));
  EXPECT_FALSE(counts.Followed(1, 2));
  // Six tokens: 0 three times, 1 twice, 2 once; 0 was followed three times.
  EXPECT_NEAR(counts.Bits(0, 1), -std::log2((2 + 2. / 6) / 4), 1e-12);
  double sum = 0;
  for (std::int64_t next = 0; next < 3; ++next) sum += std::exp2(-counts.Bits(0, next));
  EXPECT_NEAR(sum, 1, 1e-12);
}

}  // namespace
}  // namespace ttr::experiments
