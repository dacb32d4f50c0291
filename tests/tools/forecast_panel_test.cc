// ttr forecast --by, as a user sees it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/report/table.h"
#include "tests/tools/command.h"

namespace ttr::test {
namespace {

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string Month(int t) {
  const std::string month = std::to_string(t % 12 + 1);
  return std::to_string(2000 + t / 12) + (month.size() == 1 ? "-0" : "-") + month;
}

// Two series of months and one of two rows; `b` has no row in month 30.
std::vector<std::string> Rows() {
  std::vector<std::string> rows;
  for (int t = 0; t < 60; ++t) {
    rows.push_back("a," + Month(t) + "," + report::ExactReal(std::sin(.4 * t)));
    if (t != 30) rows.push_back("b," + Month(t) + "," + report::ExactReal(9 + std::cos(.3 * t)));
    if (t < 2) rows.push_back("short," + Month(t) + "," + std::to_string(t));
  }
  return rows;
}

std::string Table(const std::vector<std::string>& rows) {
  std::string text = "unique_id,ds,y\n";
  for (const std::string& row : rows) text += row + "\n";
  return text;
}

std::vector<std::string> Call(const std::string& table, const std::vector<std::string>& more) {
  std::vector<std::string> call = {"forecast",        table,     "--lags", "5",         "--memory",
                                   "rls{ridge: 0.1}", "--ahead", "3",      "--interval"};
  call.insert(call.end(), more.begin(), more.end());
  return call;
}

TEST(ForecastPanel, EverySeriesIsForecastAsIfAlone) {
  const TemporaryFolder folder;
  std::vector<std::string> rows = Rows();
  Write(folder / "p.csv", Table(rows));
  const Outcome run = Ttr(Call(folder / "p.csv", {"--by", "unique_id", "--out", folder / "f.csv"}));
  ASSERT_EQ(run.code, 0) << run.err;
  const auto lines = LinesOf(ReadAll(folder / "f.csv"));
  ASSERT_EQ(lines.size(), 1 + rows.size() + 6);
  EXPECT_NE(run.err.find("1 of 3 series have too few rows for a forecast: 'short'"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("'ds' goes on by 1 month; 1 absent rows are missing values"),
            std::string::npos)
      << run.err;
  for (const std::string id : {"a", "b"}) {
    std::string alone = "unique_id,ds,y\n";
    for (const std::string& row : rows) {
      if (row.starts_with(id + ",")) alone += row + "\n";
    }
    Write(folder / "alone.csv", alone);
    const Outcome one =
        Ttr(Call(folder / "alone.csv", {"--column", "y", "--out", folder / "g.csv"}));
    ASSERT_EQ(one.code, 0) << one.err;
    std::vector<std::string> mine, its = LinesOf(ReadAll(folder / "g.csv"));
    its.erase(its.begin());
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(mine),
                 [&](const std::string& line) { return line.starts_with(id + ","); });
    ASSERT_EQ(mine.size(), its.size()) << id;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      // A row to come has its id here, and nothing in that column there.
      EXPECT_EQ(mine[i].substr(mine[i].find(',')), its[i].substr(its[i].find(','))) << id << i;
    }
  }
  // In any order of the rows.
  std::reverse(rows.begin(), rows.end());
  Write(folder / "r.csv", Table(rows));
  const Outcome other = Ttr(
      Call(folder / "r.csv", {"--by", "unique_id", "--time", "ds", "--column", "y", "--quiet"}));
  ASSERT_EQ(other.code, 0) << other.err;
  auto sorted = LinesOf(other.out), expected = LinesOf(run.out);
  std::sort(sorted.begin(), sorted.end());
  std::sort(expected.begin(), expected.end());
  EXPECT_EQ(sorted, expected);
}

TEST(ForecastPanel, AFolderHasErrorsOfEverySeriesAndPictures) {
  const TemporaryFolder folder;
  Write(folder / "p.csv", Table(Rows()));
  const Outcome run = Ttr(Call(folder / "p.csv", {"--by", "unique_id", "--out", folder / "out/"}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(LinesOf(ReadAll(folder / "out/errors.csv")).size(), 7u);  // naive and rls of three
  EXPECT_EQ(LinesOf(ReadAll(folder / "out/ahead.csv")).size(), 7u);
  EXPECT_NE(ReadAll(folder / "out/forecast.svg").find("measured"), std::string::npos);
}

TEST(ForecastPanel, TheExampleOfHelpAndDocuments) {
  const TemporaryFolder folder;
  const std::string table = TTR_SOURCE_DIR "/examples/panel/sales.csv";
  const Outcome run =
      Ttr({"forecast", table, "--by", "unique_id", "--lags", "13", "--log", "--ahead", "12",
           "--interval", "--memory", "affine_rls{ridge: 0.1}", "--out", folder / "sales/"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(LinesOf(ReadAll(folder / "sales/ahead.csv")).size(), 1u + 4 * 12);
  EXPECT_NE(run.err.find("1 month; 2 absent rows are missing values"), std::string::npos)
      << run.err;
  const std::string document = ReadAll(TTR_SOURCE_DIR "/docs/forecast.md");
  EXPECT_NE(document.find("ttr forecast examples/panel/sales.csv --by unique_id --lags 13 --log"),
            std::string::npos);
}

TEST(ForecastPanel, BadRowsAreNamed) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::vector<std::string>& more, const std::string& text,
                           std::vector<std::string> options = {}) {
    std::vector<std::string> rows = Rows();
    rows.insert(rows.end(), more.begin(), more.end());
    Write(folder / "p.csv", Table(rows));
    if (options.empty()) options = {"--by", "unique_id"};
    return NoRefusal(Ttr(Call(folder / "p.csv", options)), 2, text);
  };
  EXPECT_EQ(
      refused({"a,2001-03,1"}, "line 123 column 'ds' of 'a' must be another time than that of"),
      "");
  EXPECT_EQ(
      refused({"a,2001-03-04,1"}, "line 123 column 'ds' of 'a' must be a time as most others"), "");
  EXPECT_EQ(refused({",2001-03,1"}, "line 123 column 'unique_id' must be the name of a series"),
            "");
  EXPECT_EQ(refused({"c,2001-03,word"}, "line 123 column 'y' must be a finite number"), "");
  EXPECT_EQ(refused({}, "did you mean 'unique_id'?", {"--by", "uniqueid"}), "");
  EXPECT_EQ(refused({}, "--save must be absent with --by", {"--by", "unique_id", "--save", "m"}),
            "");
  EXPECT_EQ(
      refused({"c,2001-03,-1"}, "above 0 in every row (--log)", {"--by", "unique_id", "--log"}),
      "");
}

}  // namespace
}  // namespace ttr::test
