// What ttr forecast says about tables that it cannot read, and what to do.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tools/command.h"

namespace ttr::test {
namespace {

// The hint behind the error of a table. From standard input it is the same, or its beginning: a
// stream is not waited for to learn more.
std::string ErrorOf(const std::string& table, std::vector<std::string> more) {
  const TemporaryFolder folder;
  Write(folder / "t.csv", table);
  more.insert(more.begin(), {"forecast", folder / "t.csv", "--lags", "2", "--memory", "rls"});
  const Outcome file = Ttr(more);
  more[1] = "-";
  const Outcome piped = Ttr(more, table);
  const auto hint = [](const std::string& err) {
    return err.find(';') == err.npos ? "" : err.substr(err.find("; "));
  };
  EXPECT_EQ(file.code, 2) << file.err;
  const std::string live = hint(piped.err);
  EXPECT_EQ(live.substr(0, live.find('\n')), hint(file.err).substr(0, live.find('\n')));
  EXPECT_EQ(live.empty(), hint(file.err).empty());
  return NoRefusal(file, 2, "[table]").empty() ? hint(file.err) : "no refusal: " + file.err;
}

TEST(ForecastErrors, AnUnknownColumnSuggestsTheLikelyOne) {
  const std::string table = "date,temperature,co2\n2001-01-01,1,2\n2001-01-02,1,2\n";
  EXPECT_EQ(ErrorOf(table, {"--column", "CO2"}), "; did you mean 'co2'?\n");
  EXPECT_EQ(ErrorOf(table, {"--column", "temprature"}), "; did you mean 'temperature'?\n");
  EXPECT_EQ(ErrorOf(table, {"--column", "co2", "--column", "dat"}), "; did you mean 'date'?\n");
  EXPECT_EQ(ErrorOf(table, {"--column", "pressure"}), "");
  EXPECT_EQ(ErrorOf(table, {"--column", "temp"}), "; did you mean 'temperature'?\n");
  EXPECT_EQ(ErrorOf("day,Power [kW]\n2001-01-01,1\n2001-01-02,2\n", {"--column", "power"}),
            "; did you mean 'Power [kW]'?\n");
}

TEST(ForecastErrors, AnotherSeparatorIsNamedWithItsOption) {
  const std::string semicolons = "date;x\n2001-01-01;1.5\n2001-01-02;2.5\n2001-01-03;2\n";
  EXPECT_EQ(ErrorOf(semicolons, {"--column", "x"}),
            "; its fields are separated by ';': --separator ';'\n");
  EXPECT_EQ(ErrorOf(semicolons, {"--column", "1"}),
            "; its fields are separated by ';': --separator ';'\n");
  EXPECT_EQ(ErrorOf("date\tx\n2001-01-01\t1\n2001-01-02\t2\n", {"--column", "x"}),
            "; its fields are separated by tabs: --separator $'\\t'\n");
  EXPECT_EQ(ErrorOf("date,x\n2001-01-01,1\n2001-01-02,2\n", {"--column", "x", "--separator", ";"}),
            "; its fields are separated by ',': --separator ','\n");
  const TemporaryFolder folder;
  Write(folder / "t.csv", semicolons);
  const Outcome right = Ttr({"forecast", folder / "t.csv", "--lags", "2", "--memory", "rls",
                             "--column", "x", "--separator", ";"});
  EXPECT_EQ(right.code, 0) << right.err;
}

TEST(ForecastErrors, DecimalCommasAreNamed) {
  const std::string table = "date;x\n2001-01-01;1,5\n2001-01-02;2,5\n2001-01-03;-3,25\n";
  const std::string points = "; its numbers have decimal commas: --decimal ,\n";
  EXPECT_EQ(ErrorOf(table, {"--column", "x", "--separator", ";"}), points);
  // Both at once.
  EXPECT_EQ(ErrorOf(table, {"--column", "x"}),
            "; its fields are separated by ';': --separator ';'" + points);
  EXPECT_EQ(ErrorOf("date,x\n2001-01-01,\"1,5\"\n2001-01-02,\"2,5\"\n", {"--column", "x"}), points);
  const TemporaryFolder folder;
  Write(folder / "t.csv", table);
  const Outcome right = Ttr({"forecast", folder / "t.csv", "--lags", "1", "--memory", "rls",
                             "--column", "x", "--separator", ";", "--decimal", ","});
  EXPECT_EQ(right.code, 0) << right.err;
  EXPECT_NE(right.out.find("\n2001-01-02,2.5,"), std::string::npos) << right.out;
}

TEST(ForecastErrors, AMissingHeaderIsNamed) {
  EXPECT_EQ(ErrorOf("2001-01-01,1.5\n2001-01-02,2.5\n2001-01-03,3\n", {"--column", "x"}),
            "; its first line is data ('2001-01-01'), not names: put a line of names before it, or "
            "give the column's number\n");
  EXPECT_EQ(ErrorOf("1,1.5\n2,2.5\n3,3\n", {"--column", "x"}),
            "; its first line is data ('1'), not names: put a line of names before it, or give the "
            "column's number\n");
  // Where the number is given, the first line is the header, and is said to be lost.
  const Outcome taken = Ttr({"forecast", "-", "--column", "2", "--lags", "2", "--memory", "rls"},
                            "2001-01-01,1.5\n2001-01-02,2.5\n2001-01-03,3\n2001-01-04,4\n");
  EXPECT_EQ(taken.code, 0) << taken.err;
  EXPECT_NE(taken.err.find("taken for names of columns, but '1.5' is a number"), std::string::npos)
      << taken.err;
}

TEST(ForecastErrors, WithoutAColumnThoseOfNumbersAreNamed) {
  const TemporaryFolder folder;
  const auto forecast = [&](const std::string& table, std::vector<std::string> more) {
    Write(folder / "t.csv", table);
    more.insert(more.begin(), {"forecast", folder / "t.csv", "--lags", "1", "--memory", "rls"});
    return Ttr(more);
  };
  const std::string table = "date,warm,co2,who,rain\n2001-01-01,1,NA,a,\n2001-01-02,2,3,b,\n";
  EXPECT_EQ(NoRefusal(forecast(table, {}), 2,
                      "--column must be one or more of 'warm', 'co2' but is absent; for example "
                      "--column 'co2'"),
            "");
  EXPECT_EQ(forecast(table, {"--column", "co2"}).code, 0);
  // The only one is meant.
  const Outcome only = forecast(table, {"--exogenous", "warm"});
  EXPECT_EQ(only.code, 0) << only.err;
  EXPECT_NE(only.err.find("'co2' is the only column of numbers"), std::string::npos) << only.err;
  EXPECT_EQ(NoRefusal(forecast("date,who\n2001-01-01,a\n2001-01-02,b\n", {}), 2,
                      "a table with a column of numbers"),
            "");
}

TEST(ForecastErrors, ATableWithoutValuesSaysSo) {
  std::string table = "x\n";
  for (int t = 0; t < 20; ++t) table += "NA\n";
  const Outcome run =
      Ttr({"forecast", "-", "--column", "x", "--lags", "3", "--memory", "rls"}, table);
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.err.find("no row has a value and a forecast by every method"), std::string::npos)
      << run.err;
}

TEST(ForecastErrors, TooFewRowsSayWhichLagsWouldDo) {
  const std::vector<std::string> call = {"forecast", "-", "--column", "x", "--lags", "16"};
  EXPECT_NE(Ttr(call, "x\n1\n2\n3\n").err.find("but is of 3 (--lags 2 is the most)"),
            std::string::npos);
  EXPECT_NE(Ttr(call, "x\n1\n").err.find("but is of 1\n"), std::string::npos);
}

}  // namespace
}  // namespace ttr::test
