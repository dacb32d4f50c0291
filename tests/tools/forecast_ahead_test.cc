// ttr forecast --ahead, as a user sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/tools/command.h"

namespace ttr::test {
namespace {

constexpr const char* kCo2 = TTR_SOURCE_DIR "/data/co2_weekly.csv";

std::string Monthly(int rows, const char* separator = ",") {
  std::string text = std::string("month") + separator + "x" + separator + "note\n";
  for (int t = 0; t < rows; ++t) {
    const std::string month = std::to_string(t % 12 + 1);
    text += std::to_string(2000 + t / 12) + (month.size() == 1 ? "-0" : "-") + month + separator +
            std::to_string(std::sin(.3 * t)) + separator + "ok\n";
  }
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

TEST(ForecastAhead, TheExampleOfHelpAndDocuments) {
  const Outcome run = Ttr({"forecast", kCo2, "--column", "co2", "--lags", "52", "--memory",
                           "rls{ridge: 0.1}", "--ahead", "12", "--interval", "0.95"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 13u) << run.out;
  EXPECT_TRUE(lines[0].starts_with("date ")) << lines[0];
  EXPECT_NE(lines[0].find("rls{ridge: 0.1}.upper"), std::string::npos);
  EXPECT_TRUE(lines[1].starts_with("2002-01-05 ")) << lines[1];
  EXPECT_TRUE(lines[12].starts_with("2002-03-23 ")) << lines[12];
  EXPECT_TRUE(run.err.starts_with("ttr: 'date' goes on by 1 week\n")) << run.err;
  EXPECT_NE(run.err.find("rmse"), std::string::npos) << run.err;
  const std::string document = ReadAll(TTR_SOURCE_DIR "/docs/forecast.md");
  EXPECT_NE(document.find(lines[12]), std::string::npos) << "docs/forecast.md shows another table";
}

TEST(ForecastAhead, HelpBeginsWithTheFuture) {
  const std::string help = Ttr({"forecast", "--help"}).out;
  EXPECT_NE(help.find("next rows"), std::string::npos);
  const std::size_t examples = help.find("Examples:");
  EXPECT_LT(help.find("--ahead 12", examples), help.find("--out", examples));
}

TEST(ForecastAhead, RowsFollowTheTableInEveryForm) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", Monthly(60));
  const std::vector<std::string> common = {
      "forecast", folder / "t.csv", "--column",  "x",        "--lags", "4",        "--ahead",
      "3",        "--memory",       "nlms",      "--memory", "rls",    "--season", "12",
      "--chart",  folder / "c",     "--interval"};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = common;
    all.insert(all.end(), more.begin(), more.end());
    return Ttr(all);
  };
  const Outcome run = with({"--out", folder / "f.csv", "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  const auto json = nlohmann::json::parse(run.out);
  EXPECT_EQ(json.at("meta").at("ahead"), 3);
  EXPECT_EQ(json.at("meta").at("spacing"), "1 month");
  ASSERT_EQ(json.at("rows").size(), 3u);
  EXPECT_EQ(json.at("rows")[0].at("month"), "2005-01");
  const auto lines = Lines(ReadAll(folder / "f.csv"));
  ASSERT_EQ(lines.size(), 64u);
  EXPECT_TRUE(lines[60].starts_with("2004-12,")) << lines[60];
  EXPECT_TRUE(lines[61].starts_with("2005-01,,,")) << lines[61];
  EXPECT_TRUE(lines[63].starts_with("2005-03,,,")) << lines[63];
  // The table, JSON, and rows that are written one by one have equal numbers.
  EXPECT_EQ(std::stod(lines[61].substr(lines[61].rfind(',') + 1)),
            json.at("rows")[0].at("rls.upper").get<double>());
  ASSERT_EQ(with({"--out", folder / "f.json"}).code, 0);
  EXPECT_EQ(nlohmann::json::parse(ReadAll(folder / "f.json")), json);
  EXPECT_EQ(with({"--out", "-", "--quiet"}).out, ReadAll(folder / "f.csv"));
  EXPECT_NE(ReadAll(folder / "c.svg").find("the table ends"), std::string::npos);

  const Outcome refused =
      Ttr({"forecast", folder / "t.csv", "--column", "x", "--out", folder / "g.json"});
  EXPECT_EQ(NoRefusal(refused, 2, "--out must be a file of CSV"), "");
}

TEST(ForecastAhead, RowsAreNumberedWhereNoTimeIsTold) {
  const Outcome run =
      Ttr({"forecast", "-", "--column", "x", "--lags", "2", "--memory", "rls", "--ahead", "2"},
          "what,x\na,1\nb,2\na,3\nb,5\nc,4\n");
  ASSERT_EQ(run.code, 0) << run.err;
  const auto lines = Lines(run.out);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_TRUE(lines[0].starts_with("row ")) << lines[0];
  EXPECT_TRUE(lines[1].starts_with("6 ")) << lines[1];
  EXPECT_NE(run.err.find("rows to come are numbered"), std::string::npos) << run.err;
}

TEST(ForecastAhead, ResumesWithAsManyRows) {
  const TemporaryFolder folder;
  Write(folder / "all.csv", Monthly(90));
  const std::string all = Monthly(90);
  std::size_t cut = 0;
  for (int line = 0; line < 51; ++line) cut = all.find('\n', cut) + 1;
  Write(folder / "a.csv", all.substr(0, cut));
  Write(folder / "b.csv", "month,x,note\n" + all.substr(cut));
  const std::vector<std::string> options = {
      "--column", "x", "--lags", "3", "--memory", "rls", "--ahead", "8", "--interval", "--quiet"};
  const auto forecast = [&](const std::string& table, std::vector<std::string> more) {
    more.insert(more.begin(), {"forecast", folder / table.c_str()});
    if (more.size() == 2 || more[2] == "--save") {
      more.insert(more.begin() + 2, options.begin(), options.end() - 2);
      more.insert(more.end(), {"--interval=0.95", "--quiet"});
    }
    const Outcome run = Ttr(more);
    EXPECT_EQ(run.code, 0) << run.err;
    return run.out;
  };
  forecast("a.csv", {"--save", folder / "m"});
  EXPECT_EQ(forecast("b.csv", {"--resume", folder / "m", "--quiet"}), forecast("all.csv", {}));
  const Outcome few =
      Ttr({"forecast", "-", "--column", "x", "--lags", "9", "--save", folder / "n", "--ahead", "2"},
          "x\n1\n2\n");
  EXPECT_EQ(NoRefusal(few, 2, "--ahead must be asked after 9 rows"), "");
}

}  // namespace
}  // namespace ttr::test
