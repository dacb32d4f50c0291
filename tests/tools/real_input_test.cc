#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/tools/command.h"

namespace ttr::test {
namespace {

std::string Rows(int begin, int end) {
  std::string text = "day,x\n";
  for (int t = begin; t < end; ++t) {
    text +=
        std::to_string(t) + "th," + (t % 11 == 3 ? "" : std::to_string(std::sin(.3 * t))) + "\n";
  }
  return text;
}

TEST(Forecast, TableInTableOut) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", Rows(0, 100));
  const Outcome run = Ttr({"forecast", folder / "t.csv", "--column", "x", "--lags", "4", "--memory",
                           "weighted_rls{decay: .95}", "--memory", "nlms", "--season", "21",
                           "--out", folder / "f.csv", "--chart", folder / "chart"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("rmse"), std::string::npos) << run.out;
  EXPECT_EQ(run.err, "");
  const std::string table = ReadAll(folder / "f.csv");
  EXPECT_TRUE(table.starts_with(
      "day,x,naive,seasonal_naive,weighted_rls{decay: .95},nlms\n0th,0.000000,,,,\n"))
      << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 101);
  EXPECT_TRUE(std::filesystem::exists(folder / "chart.svg"));
  EXPECT_TRUE(std::filesystem::exists(folder / "chart.png"));

  // Standard input and output hold the same table; the errors go to standard error.
  const Outcome piped =
      Ttr({"forecast", "-", "--column", "x", "--lags", "4", "--memory", "weighted_rls{decay: .95}",
           "--memory", "nlms", "--season", "21", "--json"},
          Rows(0, 100));
  EXPECT_EQ(piped.code, 0);
  EXPECT_EQ(piped.out, table);
  EXPECT_TRUE(nlohmann::json::accept(piped.err)) << piped.err;
}

// A sine excites two of sixteen directions; with forgetting, the inverse that textbooks carry is
// NaN after some thousand rows.
TEST(Forecast, AHundredThousandRowsOfASineWithForgetting) {
  const TemporaryFolder folder;
  std::string table = "x\n";
  for (int t = 0; t < 100'000; ++t) table += fmt::format("{}\n", std::sin(.3 * t));
  Write(folder / "t.csv", table);
  const Outcome run =
      Ttr({"forecast", folder / "t.csv", "--column", "x", "--lags", "16", "--memory",
           "weighted_rls{decay: 0.95}", "--out", folder / "f.csv", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  std::istringstream rows(ReadAll(folder / "f.csv"));
  std::string row;
  std::getline(rows, row);
  double worst = 0;
  int compared = 0;
  for (int t = 0; std::getline(rows, row); ++t) {
    if (t < 1000) continue;  // the ridge fades
    const double forecast = std::stod(row.substr(row.rfind(',') + 1));
    // NaN stays: no comparison with it is true.
    const double error = std::abs(forecast - std::sin(.3 * t));
    worst = error <= worst ? worst : error;
    ++compared;
  }
  EXPECT_EQ(compared, 99'000);
  EXPECT_LE(worst, 1e-10);
}

TEST(Forecast, StopAndResumeChangeNothing) {
  const TemporaryFolder folder;
  Write(folder / "all.csv", Rows(0, 200));
  Write(folder / "a.csv", Rows(0, 77));
  Write(folder / "b.csv", Rows(77, 200));
  const std::vector<std::string> options = {"--column",  "x",   "--lags",   "5",
                                            "--memory",  "rls", "--memory", "gated_deltanet",
                                            "--horizon", "3",   "--quiet"};
  const auto forecast = [&](const std::string& table, std::vector<std::string> more) {
    more.insert(more.begin(), {"forecast", table});
    more.insert(more.end(), options.begin(), options.end());
    const Outcome outcome = Ttr(more);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    return outcome.out;
  };
  const std::string whole = forecast(folder / "all.csv", {});
  const std::string first = forecast(folder / "a.csv", {"--save", folder / "m"});
  const std::string second = forecast(folder / "b.csv", {"--resume", folder / "m"});
  EXPECT_EQ(first + second.substr(second.find('\n') + 1), whole);
  // Options that are not said are those of the file.
  const Outcome rest = Ttr({"forecast", folder / "b.csv", "--resume", folder / "m", "--quiet"});
  EXPECT_EQ(rest.out, second) << rest.err;

  EXPECT_EQ(NoRefusal(Ttr({"forecast", folder / "b.csv", "--column", "x", "--lags", "6", "--resume",
                           folder / "m"}),
                      2, "[resume] lags must be 5"),
            "");
  EXPECT_EQ(NoRefusal(Ttr({"forecast", folder / "b.csv", "--column", "x", "--memory", "nlms",
                           "--resume", folder / "m"}),
                      2, "[resume] memories"),
            "");

  // A memory may be saved over itself, and is then that of the second table's end.
  EXPECT_EQ(forecast(folder / "b.csv", {"--resume", folder / "m", "--save", folder / "m"}), second);
  forecast(folder / "all.csv", {"--save", folder / "end"});
  const std::string next = Rows(0, 20);
  Write(folder / "c.csv", next);
  EXPECT_EQ(forecast(folder / "c.csv", {"--resume", folder / "m"}),
            forecast(folder / "c.csv", {"--resume", folder / "end"}));
}

TEST(Forecast, IntervalsFromTheCommandLine) {
  const TemporaryFolder folder;
  Write(folder / "a.csv", Rows(0, 77));
  Write(folder / "b.csv", Rows(77, 200));
  const std::vector<std::string> options = {"--column", "x",    "--lags",   "3",
                                            "--memory", "mesa", "--memory", "nlms"};
  const auto forecast = [&](std::vector<std::string> more, const std::string& in = "") {
    more.insert(more.begin(), "forecast");
    more.insert(more.end(), options.begin(), options.end());
    const Outcome outcome = Ttr(more, in);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  };
  // Live, whole, and in two runs of which the second says nothing.
  const Outcome live = forecast({"-", "--interval", "0.95", "--quiet"}, Rows(0, 200));
  EXPECT_TRUE(live.out.starts_with(
      "day,x,naive,mesa,mesa.lower,mesa.upper,nlms,nlms.lower,nlms.upper\n0th,0.000000,,,,,,,\n"))
      << live.out;
  const Outcome first =
      forecast({folder / "a.csv", "--save", folder / "m", "--quiet", "--interval"});
  const Outcome second = Ttr({"forecast", folder / "b.csv", "--resume", folder / "m", "--quiet"});
  EXPECT_EQ(first.out + second.out.substr(second.out.find('\n') + 1), live.out) << second.err;

  const Outcome errors = forecast({folder / "a.csv", "--interval", ".5", "--json", "--chart",
                                   folder / "chart", "--out", folder / "f.csv"});
  const auto json = nlohmann::json::parse(errors.out);
  EXPECT_EQ(json.at("meta").at("interval"), .5);
  EXPECT_TRUE(json.at("rows")[0].at("coverage").is_null());
  EXPECT_GT(json.at("rows")[1].at("coverage"), 0);
  EXPECT_GT(json.at("rows")[1].at("width"), 0);
  EXPECT_GT(json.at("rows")[1].at("loss"), 0);
  EXPECT_GT(json.at("rows")[1].at("condition"), 1);
  EXPECT_LT(json.at("rows")[1].at("samples"), 77);
  EXPECT_TRUE(json.at("rows")[2].at("samples").is_null());
  EXPECT_TRUE(std::filesystem::exists(folder / "chart.svg"));
}

TEST(Forecast, BadInputIsRefusedAndTheOldFileStays) {
  const TemporaryFolder folder;
  Write(folder / "f.csv", "old");
  const auto refused = [&](const std::string& table, const std::string& text,
                           std::vector<std::string> more = {"--column", "x", "--lags", "2"}) {
    Write(folder / "t.csv", table);
    more.insert(more.begin(), {"forecast", folder / "t.csv", "--out", folder / "f.csv"});
    const std::string what = NoRefusal(Ttr(more), 2, text);
    return ReadAll(folder / "f.csv") == "old" && folder.Count() <= 2 ? what
                                                                     : "something was written";
  };
  EXPECT_EQ(refused("x\n1\n2\nthree\n", "three"), "");
  EXPECT_EQ(refused("x,y\n1,2\n3\n", "line 3"), "");
  EXPECT_EQ(refused("y\n1\n", "x"), "");
  EXPECT_EQ(refused("", "empty"), "");
  EXPECT_EQ(refused("x\n1\n\"2\n", "quote"), "");
  EXPECT_EQ(refused("x,naive\n1,2\n3,4\n5,6\n", "naive"), "");
  EXPECT_EQ(refused("x\n1\n", "lags", {"--column", "x", "--lags", "0"}), "");
  EXPECT_EQ(refused("x,y\n1,2\n", "--column", {"--lags", "2"}), "");
  EXPECT_EQ(refused("x\n1\n", "rsl", {"--column", "x", "--memory", "rsl"}), "");
  EXPECT_EQ(refused("x\n1\n", "intention", {"--column", "x", "--memory", "intention"}), "");
  EXPECT_EQ(refused("x\n1\n", "decay", {"--column", "x", "--decay", "2"}), "");
  EXPECT_EQ(refused("x\n1\n", "horizon", {"--column", "x", "--horizon", "0"}), "");
  for (const char* level : {"0", "1", "95", "nan", "t.csv"}) {
    EXPECT_EQ(refused("x\n1\n", "--interval", {"--column", "x", "--interval", level}), "") << level;
  }
  EXPECT_EQ(refused("x\n1\n", "--interval", {"--column", "x", "--interval-decay", "0.9"}), "");
  EXPECT_EQ(refused("x\n1\n", "--bandwidth", {"--column", "x", "--bandwidth", "2"}), "");
  EXPECT_EQ(refused("x\n1\n", "nadaraya_watson",
                    {"--column", "x", "--memory", "rls", "--bandwidth", "auto"}),
            "");
  EXPECT_EQ(refused("x\n1\n", "--interval-decay",
                    {"--column", "x", "--interval", ".9", "--interval-decay", "0"}),
            "");
  EXPECT_EQ(NoRefusal(Ttr({"forecast", folder / "none.csv", "--column", "x"}), 2, "none.csv"), "");
  Write(folder / "t.csv", Rows(0, 20));
  EXPECT_EQ(NoRefusal(Ttr({"forecast", folder / "t.csv", "--column", "x", "--out",
                           folder / "none" / "f.csv"}),
                      1, "none"),
            "");
}

TEST(Forecast, TooFewRowsForOneForecastAreRefused) {
  const TemporaryFolder folder;
  const std::string table = folder / "t.csv", out = folder / "f.csv";
  Write(table, "x\n1\n2\n3\n");
  const auto forecast = [&](const std::string& from, std::vector<std::string> more,
                            const std::string& input = "") {
    more.insert(more.begin(), {"forecast", from, "--column", "x", "--quiet"});
    return Ttr(more, input);
  };
  EXPECT_EQ(NoRefusal(forecast(table, {"--lags", "16"}), 2,
                      "must be of 17 rows at the least, for one forecast from 16 (--lags) but is "
                      "of 3"),
            "");
  EXPECT_EQ(NoRefusal(forecast(table, {"--lags", "16", "--out", out}), 2, "of 17 rows"), "");
  EXPECT_EQ(NoRefusal(forecast(table, {"--lags", "2", "--horizon", "2"}), 2, "of 4 rows"), "");
  EXPECT_EQ(NoRefusal(forecast(table, {"--lags", "9000000000000000000"}), 2, "lags"), "");
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_EQ(forecast(table, {"--lags", "2"}).code, 0);
  // A stream has said what it knew when it ends.
  const Outcome live = forecast("-", {"--lags", "16"}, "x\n1\n2\n3\n");
  EXPECT_EQ(live.code, 2);
  EXPECT_NE(live.err.find("standard input must be of 17 rows"), std::string::npos) << live.err;
  EXPECT_EQ(std::count(live.out.begin(), live.out.end(), '\n'), 4);
  // A run that goes on may begin with a few rows.
  const Outcome begun = forecast(table, {"--lags", "16", "--save", folder / "m"});
  EXPECT_EQ(begun.code, 0) << begun.err;
  const Outcome resumed = Ttr({"forecast", table, "--resume", folder / "m", "--quiet"});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
}

TEST(Forecast, MoreLagsThanRowsOfARealTableAreSaidBeforeTheWork) {
  const Outcome run = Ttr({"forecast", TTR_SOURCE_DIR "/data/co2_weekly.csv", "--column", "co2",
                           "--lags", "5000", "--quiet"});
  EXPECT_EQ(NoRefusal(run, 2, "must be of 5001 rows"), "");
}

TEST(Forecast, BandwidthsAreSelectedAndResumed) {
  const TemporaryFolder folder;
  Write(folder / "all.csv", Rows(0, 200));
  Write(folder / "a.csv", Rows(0, 120));
  Write(folder / "b.csv", Rows(120, 200));
  const auto forecast = [&](const char* table, std::vector<std::string> more) {
    more.insert(more.begin(), {"forecast", folder / table, "--quiet"});
    const Outcome run = Ttr(more);
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  };
  const std::vector<std::string> memory = {
      "--column",    "x",   "--lags", "4", "--memory", "nadaraya_watson{bandwidth: 1000}",
      "--bandwidth", "auto"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), memory.begin(), memory.end());
    return more;
  };
  const std::string whole = forecast("all.csv", with({}));
  const std::string first = forecast("a.csv", with({"--save", folder / "m"}));
  const std::string second = forecast("b.csv", {"--resume", folder / "m"});
  EXPECT_EQ(first + second.substr(second.find('\n') + 1), whole);
  const auto rows =
      nlohmann::json::parse(forecast("all.csv", with({"--json", "--out", folder / "f.csv"})))
          .at("rows");
  EXPECT_LT(rows[1].at("bandwidth").get<double>(), 10);
  EXPECT_TRUE(rows[0].at("bandwidth").is_null());
}

TEST(Forecast, TheCommandOfTheDocumentsRuns) {
  const TemporaryFolder folder;
  const Outcome run =
      Ttr({"forecast", TTR_SOURCE_DIR "/data/co2_weekly.csv", "--column", "co2", "--lags", "52",
           "--season", "52", "--memory", "rls", "--json", "--out", folder / "f.csv"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto rows = nlohmann::json::parse(run.out).at("rows");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2].at("method"), "rls");
  EXPECT_LT(rows[2].at("rmse_of_naive").get<double>(), .9);
  EXPECT_GT(rows[1].at("rmse_of_naive").get<double>(), 1);
}

TEST(Recall, SmallTextInTableAndFilesOut) {
  const TemporaryFolder folder;
  const std::string text =
      "Hakuna Matata, it means no worries for the rest of your days. Hakuna Matata\n";
  const Outcome run = Ttr({"recall", "--memory", "rls", "--memory", "softmax{scale: 16}", "--json",
                           "--quiet", "--out", folder / "out"},
                          text);
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json.at("meta").at("tokens"), 16);
  ASSERT_EQ(json.at("rows").size(), 3u);
  for (const auto& row : json.at("rows")) EXPECT_EQ(row.at("after_seen"), 1) << row;
  for (const char* file :
       {"recall.csv", "recall.json", "recall_curve.csv", "recall.svg", "recall.png"}) {
    EXPECT_TRUE(std::filesystem::exists(folder / "out" / file)) << file;
  }
  // Words from a file, by default with all memories; and bytes.
  Write(folder / "t.txt", text);
  const Outcome file = Ttr({"recall", folder / "t.txt"});
  EXPECT_EQ(file.code, 0) << file.err;
  EXPECT_NE(file.out.find("gated_deltanet"), std::string::npos);
  const Outcome bytes =
      Ttr({"recall", "--bytes", "--limit", "20", "--memory", "rls", "--json"}, text);
  EXPECT_EQ(nlohmann::json::parse(bytes.out).at("meta").at("tokens"), 20);
}

TEST(Recall, BadInputIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(NoRefusal(Ttr({"recall", folder / "none.txt"}), 2, "none.txt"), "");
  EXPECT_EQ(NoRefusal(Ttr({"recall", folder.path()}), 2, folder.path()), "");
  EXPECT_EQ(NoRefusal(Ttr({"recall", "-"}), 2, "empty"), "");
  EXPECT_EQ(NoRefusal(Ttr({"recall", "--memory", "rsl"}, "a b"), 2, "rsl"), "");
  EXPECT_EQ(NoRefusal(Ttr({"recall", "--memory", "lru"}, "a b"), 2, "lru"), "");
  EXPECT_EQ(NoRefusal(Ttr({"recall", "--dim", "0"}, "a b"), 2, "--dim"), "");
  EXPECT_EQ(NoRefusal(Ttr({"recall", "--limit", "0"}, "a b"), 2, "--limit"), "");
}

}  // namespace
}  // namespace ttr::test
