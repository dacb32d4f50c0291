// How time stamps go on.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "experiments/real/time_steps.h"

namespace ttr::experiments {
namespace {

// "SPACING: the next stamp, the one after it", or "none".
std::string GoOn(const std::vector<std::string>& stamps) {
  const auto steps = TimeSteps::Of(stamps);
  return steps ? steps->Spacing() + ": " + steps->After(1) + ", " + steps->After(2) : "none";
}

TEST(TimeSteps, OfFixedLength) {
  EXPECT_EQ(GoOn({"2001-12-15", "2001-12-22", "2001-12-29"}), "1 week: 2002-01-05, 2002-01-12");
  EXPECT_EQ(GoOn({"20240226", "20240227", "20240228"}), "1 day: 20240229, 20240301");
  EXPECT_EQ(GoOn({"2024-01-01T22:30", "2024-01-01T23:00", "2024-01-01T23:30"}),
            "30 minutes: 2024-01-02T00:00, 2024-01-02T00:30");
  EXPECT_EQ(GoOn({"2024-01-01 00:00:00.5Z", "2024-01-01 00:00:00.7Z", "2024-01-01 00:00:00.9Z"}),
            "0.2 seconds: 2024-01-01 00:00:01.1Z, 2024-01-01 00:00:01.3Z");
  EXPECT_EQ(GoOn({"1969-12-31T22:00", "1969-12-31T21:00", "1969-12-31T20:00"}),
            "-1 hour: 1969-12-31T19:00, 1969-12-31T18:00");
}

TEST(TimeSteps, OfMonthsAndYears) {
  EXPECT_EQ(GoOn({"1958-10", "1958-11", "1958-12"}), "1 month: 1959-01, 1959-02");
  EXPECT_EQ(GoOn({"2023-12-31", "2024-01-31", "2024-02-29"}), "1 month: 2024-03-31, 2024-04-30");
  EXPECT_EQ(GoOn({"2024-04-30", "2024-06-30", "2024-08-31"}), "2 months: 2024-10-31, 2024-12-31");
  EXPECT_EQ(GoOn({"2023-12-30", "2024-01-30", "2024-02-29"}), "1 month: 2024-03-30, 2024-04-30");
  EXPECT_EQ(GoOn({"2024-07-01", "2024-08-01", "2024-09-01"}), "1 month: 2024-10-01, 2024-11-01");
  EXPECT_EQ(GoOn({"2022/06/15", "2023/06/15", "2024/06/15"}), "1 year: 2025/06/15, 2026/06/15");
}

// "SPACING: steps from the first to the second, ...", or "none".
std::string Most(const std::vector<std::string>& stamps, bool numbers = false) {
  const auto steps = TimeSteps::OfMost(stamps, numbers);
  if (!steps) return "none";
  std::string text = steps->Spacing() + ":";
  for (std::size_t i = 1; i < stamps.size(); ++i) {
    text += " " + std::to_string(steps->Between(stamps[i - 1], stamps[i]));
  }
  return text;
}

TEST(TimeSteps, OfWhichSomeAreAbsent) {
  EXPECT_EQ(Most({"2024-01-01", "2024-01-02", "2024-01-05", "2024-01-06"}), "1 day: 1 3 1");
  EXPECT_EQ(Most({"2023-12-31", "2024-01-31", "2024-04-30", "2024-05-31"}), "1 month: 1 3 1");
  EXPECT_EQ(Most({"2024-01-01T23:30", "2024-01-02T00:00", "2024-01-02T01:30", "2024-01-02T02:00"}),
            "30 minutes: 1 3 1");
  EXPECT_EQ(Most({"2024-03-13", "2024-03-14", "2024-03-15", "2024-03-18", "2024-03-19",
                  "2024-03-22", "2024-04-08"}),
            "weekdays: 1 1 1 1 3 11");
  EXPECT_EQ(Most({"1", "2", "5", "6"}, true), "1: 1 3 1");
  EXPECT_EQ(Most({"1", "2", "5", "6"}), "none");
  for (const std::vector<std::string>& uneven : std::vector<std::vector<std::string>>{
           {"2024-01-01", "2024-01-04", "2024-01-11", "2024-01-30"},  // no step of most
           {"2024-01-01", "2024-01-01", "2024-01-02"},                // one of them twice
           {"2024-01-02", "2024-01-01", "2023-12-31"},                // backwards
           {"2024-01-01", "soon", "2024-01-03"}}) {
    EXPECT_EQ(Most(uneven), "none") << uneven[1];
  }
  const auto days = TimeSteps::OfMost(std::vector<std::string>{"2024-01-01", "2024-01-02"}, false);
  ASSERT_TRUE(days);
  EXPECT_EQ(days->Between("2024-01-05", "2024-01-04"), 0);
  EXPECT_EQ(days->Between("2024-01-05", "5"), 0);
  EXPECT_EQ(days->Behind("2024-02-28").After(2), "2024-03-01");
}

TEST(TimeSteps, OfWeekdays) {
  EXPECT_EQ(GoOn({"2024-03-13", "2024-03-14", "2024-03-15", "2024-03-18", "2024-03-19",
                  "2024-03-20", "2024-03-21"}),
            "weekdays: 2024-03-22, 2024-03-25");
}

TEST(TimeSteps, DaysOrMonthsFirst) {
  EXPECT_EQ(GoOn({"29.12.2001", "30.12.2001", "31.12.2001"}), "1 day: 01.01.2002, 02.01.2002");
  EXPECT_EQ(GoOn({"01/29/2024", "01/30/2024", "01/31/2024"}), "1 day: 02/01/2024, 02/02/2024");
  EXPECT_EQ(GoOn({"29/01/2024", "30/01/2024", "31/01/2024"}), "1 day: 01/02/2024, 02/02/2024");
  // Days of January, or the first days of three months.
  EXPECT_EQ(GoOn({"01/01/2024", "02/01/2024", "03/01/2024"}), "none");
}

TEST(TimeSteps, OfNumbers) {
  EXPECT_EQ(GoOn({"1998", "1999", "2000"}), "1: 2001, 2002");
  EXPECT_EQ(GoOn({"0.50", "0.75", "1.00"}), "0.25: 1.25, 1.50");
  EXPECT_EQ(GoOn({"007", "008", "009"}), "1: 010, 011");
  EXPECT_EQ(GoOn({"-2", "-1", "0"}), "1: 1, 2");
}

TEST(TimeSteps, OfNothingElse) {
  EXPECT_EQ(GoOn({"2001-12-22", "2001-12-29"}), "none");                // one step is no spacing
  EXPECT_EQ(GoOn({"2001-12-15", "2001-12-22", "2001-12-30"}), "none");  // uneven
  EXPECT_EQ(GoOn({"2001-12-22", "2001-12-22", "2001-12-22"}), "none");  // stands still
  EXPECT_EQ(GoOn({"2001-02-27", "2001-02-28", "2001-02-29"}), "none");  // no such day
  EXPECT_EQ(GoOn({"2001-12-15", "", "2001-12-29"}), "none");
  EXPECT_EQ(GoOn({"2001-12-15", "22 Dec 2001", "2001-12-29"}), "none");
  EXPECT_EQ(GoOn({"a", "b", "c"}), "none");
  EXPECT_EQ(GoOn({"2001-12-15T10:00Z", "2001-12-15T11:00Z", "2001-12-15T12:00+01:00"}), "none");
}

}  // namespace
}  // namespace ttr::experiments
