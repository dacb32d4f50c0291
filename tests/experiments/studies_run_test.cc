// How studies are run: threads, cache, resume, options, files.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "experiments/studies/capacity.h"
#include "experiments/studies/dials.h"
#include "experiments/studies/identities.h"
#include "experiments/studies/mqar.h"
#include "experiments/studies/online_regression.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/stability.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

class StudyFolder : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("ttr_studies_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()) +
               std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

std::string Read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

OnlineRegressionOptions Small() {
  OnlineRegressionOptions options;
  options.process.tokens = 32;
  options.process.key_dim = 6;
  return options;
}

TEST(StudyRuns, NumbersDoNotDependOnThreads) {
  const auto two = MakeExecutor(2);
  StudyRun run;
  run.seeds = 3;
  run.executor = &SequentialExecutor();
  const std::string one_thread = ToJson(RunOnlineRegression(Small(), run)).dump();
  run.executor = two.get();
  EXPECT_EQ(ToJson(RunOnlineRegression(Small(), run)).dump(), one_thread);
}

TEST(StudyRuns, ASeedGivesTheSameNumbersInAnyRun) {
  StudyRun run;
  run.seeds = 1;
  run.first_seed = 7;
  const StudyResult alone = RunOnlineRegression(Small(), run);
  const PartResults parts = RunParts(
      {.seeds = 3, .first_seed = 5}, "x", 1, {}, 1,
      [](std::uint64_t seed, std::int64_t) -> Numbers { return {static_cast<double>(seed)}; });
  EXPECT_EQ(parts, (PartResults{{{5}}, {{6}}, {{7}}}));
  EXPECT_EQ(SeedRange({.seeds = 3, .first_seed = 5}, 1), "5..7");
  EXPECT_EQ(alone.tables[0].table.meta()["seeds"], "7");
}

TEST_F(StudyFolder, ResumeGivesTheSameResult) {
  StudyRun run;
  run.seeds = 2;
  run.cache = folder_ / "cache";
  RunOnlineRegression(Small(), run);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "cache" / "online-regression-2.json"));

  // Two of three seeds are there.
  std::vector<std::string> notes;
  run.seeds = 3;
  run.resume = true;
  run.note = [&](const std::string& text) { notes.push_back(text); };
  const std::string resumed = ToJson(RunOnlineRegression(Small(), run)).dump();
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("2 of 3 seeds"), std::string::npos) << notes[0];
  EXPECT_EQ(ToJson(RunOnlineRegression(Small(), {.seeds = 3})).dump(), resumed);
}

TEST_F(StudyFolder, ResumeComputesOnlyWhatIsMissing) {
  StudyRun run{.seeds = 2, .executor = &SequentialExecutor(), .cache = folder_};
  int calls = 0;
  const auto work = [&](std::uint64_t seed, std::int64_t part) -> Numbers {
    ++calls;
    return {static_cast<double>(seed) + .1 * static_cast<double>(part), std::nan(""), -INFINITY};
  };
  std::int64_t a = 1;
  const OptionFields options = {{"a", &a, ""}};
  const PartResults first = RunParts(run, "x", 1, options, 2, work);
  EXPECT_EQ(calls, 4);
  run.seeds = 3;
  run.resume = true;
  const PartResults second = RunParts(run, "x", 1, options, 2, work);
  EXPECT_EQ(calls, 6);
  EXPECT_EQ(second[1][1][0], first[1][1][0]);
  EXPECT_TRUE(std::isnan(second[0][0][1]));
  EXPECT_EQ(second[0][0][2], -INFINITY);
  // Other options, and a damaged file.
  a = 2;
  RunParts(run, "x", 1, options, 2, work);
  EXPECT_EQ(calls, 12);
  std::ofstream(folder_ / "x-2.json") << "{\"key\": ";
  RunParts(run, "x", 1, options, 2, work);
  EXPECT_EQ(calls, 14);
}

TEST_F(StudyFolder, ACacheOfOtherOptionsIsNoted) {
  StudyRun run{.seeds = 2, .cache = folder_};
  RunOnlineRegression(Small(), run);
  OnlineRegressionOptions other = Small();
  other.process.rho = .25;
  std::vector<std::string> notes;
  run.resume = true;
  run.note = [&](const std::string& text) { notes.push_back(text); };
  const StudyResult resumed = RunOnlineRegression(other, run);
  ASSERT_EQ(notes.size(), 2u);
  EXPECT_NE(notes[1].find("other options"), std::string::npos) << notes[1];
  EXPECT_EQ(ToJson(resumed).dump(), ToJson(RunOnlineRegression(other, {.seeds = 2})).dump());
}

TEST_F(StudyFolder, SavesTablesAndPictures) {
  const StudyResult result = RunStability({.tokens = 64, .dim = 4}, {.seeds = 2});
  Save(result, folder_ / "deep" / "er");
  const std::filesystem::path folder = folder_ / "deep" / "er";
  EXPECT_EQ(Read(folder / "stability-norms.csv"), result.tables[0].table.ToCsv());
  EXPECT_EQ(nlohmann::ordered_json::parse(Read(folder / "stability.json")).at("command"),
            "ttr experiment stability --tokens 64 --dim 4 --seeds 2");
  EXPECT_TRUE(std::filesystem::exists(folder / "stability.svg"));
  EXPECT_TRUE(std::filesystem::exists(folder / "stability.png"));
}

// The text of the Error that a call throws.
std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(StudyOptions, BadOnesAreNamed) {
  const auto regression = [](auto change) {
    return ErrorOf([&] {
      OnlineRegressionOptions options = Small();
      change(options);
      RunOnlineRegression(options, {.seeds = 1});
    });
  };
  EXPECT_EQ(regression([](auto& o) { o.decay = 1.5; }),
            "[online-regression] decay must be in (0, 1] but is 1.5");
  EXPECT_EQ(regression([](auto& o) { o.process.tokens = 2; }),
            "[online-regression] tokens must be at least 4 but is 2");
  EXPECT_NE(regression([](auto& o) { o.process.rho = -1; }).find("rho"), std::string::npos);
  EXPECT_NE(regression([](auto& o) { o.recipes = {"linear_atention"}; }).find("linear_attention"),
            std::string::npos);
  EXPECT_NE(regression([](auto& o) {
              o.recipes = {"linear_attention{features: t2r}"};
            }).find("features.w"),
            std::string::npos);
  EXPECT_EQ(ErrorOf([] { RunMqar({.pairs = {64}, .tokens = {31}}, {.seeds = 1}); }),
            "[mqar] tokens must be at least 2 * pairs = 128 once but is 31");
  EXPECT_EQ(ErrorOf([] { RunMqar({.pairs = {}}, {.seeds = 1}); }),
            "[mqar] pairs must be one number at least but is none");
  EXPECT_EQ(ErrorOf([] { RunCapacity({.pairs = {32, 16}}, {.seeds = 1}); }),
            "[capacity] pairs must be in rising order but is 16");
  EXPECT_EQ(ErrorOf([] { RunStability({.rho = 1}, {.seeds = 1}); }),
            "[stability] rho must be in [0, 1) but is 1");
  EXPECT_EQ(ErrorOf([] { RunIdentities({.tokens = 16}, {.seeds = 1}); }),
            "[identities] tokens must be 4 * dim to 1024, here at least 32 but is 16");
  EXPECT_EQ(ErrorOf([] { RunDials({.steps = {4, 4}}, {.seeds = 1}); }),
            "[dials] steps must be rising numbers from 1 to 100000 but is 4");
  EXPECT_EQ(ErrorOf([] { RunDials({}, {.seeds = -1}); }),
            "[experiment] seeds must be 1 to 1000000 but is -1");
}

TEST(StudyOptions, TheCommandNamesWhatDiffers) {
  MqarStudyOptions options, defaults;
  options.pairs = {8, 16};
  options.recipes = {"rls{ridge: 1, read: before}"};
  options.zoology = false;
  EXPECT_EQ(CommandOf("mqar", Fields(options), Fields(defaults), {.first_seed = 9}),
            "ttr experiment mqar --pairs 8 --pairs 16 --recipe 'rls{ridge: 1, read: before}' "
            "--zoology false --seed 9");
}

}  // namespace
}  // namespace ttr::experiments
