// The study of inner losses: its pairs, its losses, and what it refuses.
#include "experiments/studies/inner_loss.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <variant>

#include "experiments/studies/inner_pairs.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

class InnerLoss : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / ("ttr_inner_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    std::ofstream text(folder_ / "words.txt"), table(folder_ / "rows.csv");
    const char* const words[] = {"one", "two", "three", "four", "five", "six", "seven"};
    for (int i = 0; i < 160; ++i) text << words[i * i % 7] << (i % 9 == 0 ? ". " : " ");
    table << "x,y\n";
    for (int i = 0; i < 160; ++i) table << i << "," << (i == 40 ? "NA" : Row(i)) << "\n";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string Row(int i) { return std::to_string(10 + std::sin(0.3 * i)); }
  std::string words() const { return folder_ / "words.txt"; }
  std::string rows() const { return folder_ / "rows.csv"; }

  std::filesystem::path folder_;
};

TEST_F(InnerLoss, PairsFollowEachOther) {
  const PairStream text = PairsOfText(words(), 8, 3, 50);
  ASSERT_EQ(text.count(), 49);
  for (std::int64_t i = 0; i < 48 * 8; ++i) {
    EXPECT_EQ(text.v[i], text.k[i + 8]);
    EXPECT_EQ(text.q[i], text.k[i + 8]);
  }
  const PairStream series = PairsOfSeries(rows(), "y", 6, 160);
  ASSERT_EQ(series.count(), 154);
  EXPECT_EQ(series.value_dim, 1);
  for (const double x : series.v) EXPECT_LE(std::abs(x), 2);
  EXPECT_THROW(PairsOfText(words(), 8, 3, 2), Error);
  EXPECT_THROW(PairsOfSeries(rows(), "y", 159, 160), Error);
}

// linear_attention holds v_0 k_0^T when it is asked with k_1.
TEST_F(InnerLoss, IsThatOfTheAnswersBeforeTheyAreKnown) {
  const PairStream pairs = PairsOfText(words(), 8, 3, 40);
  const StudyLayer layer("linear_attention");
  const InnerLosses found = LossesOf(layer, pairs);
  double along = 0, first = 0;
  for (int c = 0; c < 8; ++c) along += pairs.k[c] * pairs.k[8 + c];
  for (int c = 0; c < 8; ++c) first += std::pow(pairs.v[8 + c] - along * pairs.v[c], 2);
  EXPECT_NEAR(found.losses[0], first, 1e-13);
  EXPECT_NEAR(found.sizes[0], 1, 1e-13);
  ASSERT_EQ(found.sizes.size(), 6u);  // 1, 2-3, 4-7, 8-15, 16-31, 32-38
  EXPECT_NEAR(found.sizes[5], 7, 1e-12);
  EXPECT_NEAR(found.last_size, 19, 1e-12);  // 20 .. 38
}

TEST_F(InnerLoss, FallsOnWhatAMemoryCanRepresent) {
  InnerLossOptions options;
  options.text = {words()};
  options.table = {rows()};
  options.column = {"y"};
  options.dim = 8;
  options.lags = 6;
  options.tokens = 160;
  StudyRun run;
  run.seeds = 2;
  const StudyResult result = RunInnerLoss(options, run);
  const report::Table& table = result.tables[0].table;
  ASSERT_EQ(table.rows().size(), 14u);
  EXPECT_EQ(result.claims.size(), 6u);
  const auto share = [&](std::size_t row, std::size_t column) {
    return std::get<report::Measured>(table.rows()[row][column].value()).value;
  };
  for (std::size_t row = 0; row < table.rows().size(); ++row) {
    const std::string memory = table.Shown(row, 1);
    // What has a residual answers with the key before it has read anything.
    const bool residual = memory == "TTT-Linear" || memory == "TTT-MLP";
    EXPECT_LT(share(row, 5), residual ? share(row, 3) : 1) << memory;
    // A sine is the same linear map of its window everywhere.
    if (table.Shown(row, 0) == "series" && memory == "RLS") {
      EXPECT_LT(share(row, 5), 1e-2);
    }
  }
}

TEST_F(InnerLoss, RefusesWhatCannotBeRead) {
  const auto refuses = [&](auto change) {
    InnerLossOptions options;
    options.text = {words()};
    options.table = {rows()};
    options.column = {"y"};
    change(options);
    EXPECT_THROW(RunInnerLoss(options, {}), Error);
  };
  refuses([](auto& o) { o.text = {"no such file"}; });
  refuses([](auto& o) { o.column = {"z"}; });
  refuses([](auto& o) { o.dim = 0; });
  refuses([](auto& o) { o.tokens = 1; });
  refuses([](auto& o) { o.text = o.table = {}; });
}

}  // namespace
}  // namespace ttr::experiments
