#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "experiments/report/html.h"
#include "experiments/report/table.h"
#include "experiments/report/utf8.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Utf8, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(DisplayWidth(""), 0);
  EXPECT_EQ(DisplayWidth("plain"), 5);
  EXPECT_EQ(DisplayWidth("Größe ±"), 7);
  EXPECT_EQ(DisplayWidth("e\xCC\x81"), 1);  // e and a combining acute accent
  EXPECT_EQ(DisplayWidth("記憶"), 4);
  EXPECT_EQ(DisplayWidth("\xF0\x9F\x99\x82"), 2);  // a smiling face
  EXPECT_EQ(DisplayWidth("a\xFFz"), 3);            // a byte that is no UTF-8
  EXPECT_EQ(DisplayWidth("\xC0\xAF"), 2);          // an overlong form is two such bytes
}

TEST(Utf8, PrintableShowsWhatWouldDriveTheTerminal) {
  EXPECT_EQ(Printable("a\x1b[2Jb\n\t"), "a\\x1b[2Jb\\n\\t");
  EXPECT_EQ(Printable("\xE9t\xE9"), "\xEF\xBF\xBDt\xEF\xBF\xBD");
  EXPECT_EQ(Printable("naïve"), "naïve");
}

TEST(Utf8, TruncateCutsAtCharactersAndFits) {
  EXPECT_EQ(Truncate("abcdef", 6), "abcdef");
  EXPECT_EQ(Truncate("abcdef", 4), "abc…");
  EXPECT_EQ(Truncate("記憶記憶", 4), "記…");  // A wide character does not fit in half.
  EXPECT_EQ(Truncate("abc", 0), "");
}

TEST(Table, TextAlignsColumns) {
  Table table;
  table.AddText("layer").AddReal("loss", 2).AddInteger("n", "kB");
  table.AddRow({"naïve", .5, 7});
  table.AddRow({"記憶", -10.25, 1234567});
  table.AddRow({"empty", {}, {}});
  EXPECT_EQ(table.ToText(),
            "layer    loss   n (kB)\n"
            "naïve    0.50        7\n"
            "記憶   -10.25  1234567\n"
            "empty\n");
}

TEST(Table, TextKeepsWithinAWidth) {
  Table table;
  table.AddText("layer").AddText("what it does");
  table.AddRow({"rls", "solves the regression over all it has read"});
  EXPECT_EQ(table.ToText({.width = 24, .wrap_last = true}),
            "layer  what it does\n"
            "rls    solves the\n"
            "       regression over\n"
            "       all it has read\n");
  EXPECT_EQ(table.ToText({.width = 24}),
            "layer  what it does\n"
            "rls    solves the regre…\n");
  EXPECT_EQ(table.ToText({.width = 24, .indent = 2}),
            "  layer  what it does\n"
            "  rls    solves the reg…\n");
}

TEST(Table, ShowRealNeverPretendsZero) {
  EXPECT_EQ(ShowReal(.1234, 3), "0.123");
  EXPECT_EQ(ShowReal(3e-9, 3), "3e-09");
  EXPECT_EQ(ShowReal(-3e-9, 3), "-3e-09");
  EXPECT_EQ(ShowReal(0, 3), "0.000");
  EXPECT_EQ(ShowReal(-0.0, 3), "0.000");
  EXPECT_EQ(ShowReal(1e20, 1), "1.0e+20");
  EXPECT_EQ(ShowReal(1234.5, 3, RealFormat::kSignificant), "1.23e+03");
  EXPECT_EQ(ShowReal(.5, 3, RealFormat::kSignificant), "0.500");
  EXPECT_EQ(ShowReal(.00012, 1, RealFormat::kScientific), "1.2e-04");
  EXPECT_EQ(ShowReal(kNan, 3), "nan");
  EXPECT_EQ(ShowReal(-kInf, 3), "-inf");
}

TEST(Table, ExactRealReadsBackAsTheSameDouble) {
  for (const double value : {.1, 1.0 / 3, 1e300, -5e-324, 123456789.0, 0.0}) {
    EXPECT_EQ(std::stod(ExactReal(value == -5e-324 ? 1e-300 : value)),
              value == -5e-324 ? 1e-300 : value);
  }
  EXPECT_EQ(ExactReal(256), "256");
  EXPECT_EQ(ExactReal(.1), "0.1");
}

TEST(Table, CsvQuotesAsRfc4180) {
  EXPECT_EQ(CsvLine({"a", "b c", ""}), "a,b c,");
  EXPECT_EQ(CsvLine({"a,b", "say \"hi\"", "two\nlines", "\r"}),
            "\"a,b\",\"say \"\"hi\"\"\",\"two\nlines\",\"\r\"");
  EXPECT_EQ(CsvLine({""}), "\"\"");
}

TEST(Table, CsvHasFullPrecisionAndBothPartsOfAMeasurement) {
  Table table;
  table.AddText("layer").AddMeasured("loss", 1).AddReal("x", 0);
  table.AddRow({"a,b", Measured{1.0 / 3, .125}, 2});
  table.AddRow({{}, {}, kNan});
  table.AddRow({"c", 7, -kInf});
  EXPECT_EQ(table.ToCsv(),
            "layer,loss,loss_error,x\n"
            "\"a,b\",0.3333333333333333,0.125,2\n"
            ",,,nan\n"
            "c,7,nan,-inf\n");
}

TEST(Table, JsonHasRowsMetadataAndNulls) {
  Table table("Recall");
  table.AddText("layer").AddMeasured("recall", 2).AddReal("x", 1, "ms").AddInteger("n");
  table.AddRow({"rls", Measured{.5, kNan}, kNan, std::int64_t{1} << 60});
  table.AddRow({"\xFF", {}, kInf, {}});
  table.SetMeta("seeds", 20);
  const auto json = nlohmann::ordered_json::parse(DumpJson(table.ToJson()));
  EXPECT_EQ(json["title"], "Recall");
  EXPECT_EQ(json["meta"]["seeds"], 20);
  EXPECT_EQ(json["columns"][2]["unit"], "ms");
  ASSERT_EQ(json["rows"].size(), 2u);
  EXPECT_EQ(json["rows"][0]["recall"], .5);
  EXPECT_TRUE(json["rows"][0]["recall_error"].is_null());
  EXPECT_TRUE(json["rows"][0]["x"].is_null());
  EXPECT_EQ(json["rows"][0]["n"], std::int64_t{1} << 60);
  EXPECT_EQ(json["rows"][1]["layer"], "\xEF\xBF\xBD");
  EXPECT_TRUE(json["rows"][1]["x"].is_null());
  EXPECT_TRUE(json["rows"][1]["recall"].is_null());
}

TEST(Table, MarkdownEscapesBarsAndAlignsNumbers) {
  Table table;
  table.AddText("a|b").AddMeasured("loss", 2);
  table.AddRow({"x|y", Measured{.5, .125}});
  EXPECT_EQ(table.ToMarkdown(),
            "| a\\|b | loss |\n"
            "|---|---:|\n"
            "| x\\|y | 0.50 ± 0.12 |\n");
}

TEST(Table, HtmlEscapesEveryCell) {
  Table table("<caption>");
  table.AddText("a&b").AddReal("x", 1);
  table.AddRow({"<script>", 1.5});
  const std::string html = TableHtml(table);
  EXPECT_EQ(html.find("<script>"), std::string::npos);
  EXPECT_NE(html.find("<td>&lt;script&gt;</td>"), std::string::npos);
  EXPECT_NE(html.find("<th>a&amp;b</th>"), std::string::npos);
  EXPECT_NE(html.find("<td class=\"n\">1.5</td>"), std::string::npos);
  EXPECT_NE(html.find("&lt;caption&gt;"), std::string::npos);
}

TEST(Table, RefusesWhatDoesNotFit) {
  Table table;
  table.AddText("layer").AddInteger("n");
  EXPECT_THROW(table.AddRow({"a"}), Error);
  EXPECT_THROW(table.AddRow({"a", 1.5}), Error);
  EXPECT_THROW(table.AddRow({1, 1}), Error);
  EXPECT_THROW(table.AddText("n"), Error);
  table.AddRow({"a", std::optional<int>()});
  EXPECT_EQ(table.Shown(0, 1), "");
  EXPECT_THROW(table.AddText("late"), Error);
}

}  // namespace
}  // namespace ttr::report
