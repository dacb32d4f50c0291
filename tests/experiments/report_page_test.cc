#include <gtest/gtest.h>

#include "experiments/report/html.h"
#include "experiments/report/page.h"
#include "tests/experiments/report_support.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Html, EscapesAndSetsCode) {
  EXPECT_EQ(EscapeHtml("<a href=\"x\">&'\x01\xFF"),
            "&lt;a href=&quot;x&quot;&gt;&amp;&#39;\xEF\xBF\xBD");
  EXPECT_EQ(InlineHtml("run `a<b` now"), "run <code>a&lt;b</code> now");
  EXPECT_EQ(InlineHtml("a lone ` stays"), "a lone ` stays");
}

Page Sample() {
  const std::string evil = "<script>alert('1')</script>";
  Table table(evil);
  table.AddText(evil).AddReal("x", 1);
  table.AddRow({evil, 1});
  Chart chart{.title = evil, .subtitle = evil};
  Panel& panel = chart.panels.emplace_back();
  panel.title = evil;
  panel.x.label = evil;
  panel.series = {{.name = evil, .y = {1, 2}}, {.name = "b", .y = {1, 2}}};

  Page page{.title = evil, .lead = evil, .glossary = {{evil, evil}}};
  page.links = {{evil, "https://example.org/?a=\"b\"&c"}, {"Design", "DESIGN.md"}};
  page.footer = evil;
  Section section{.title = evil, .text = {evil}, .command = "ttr zoo '" + evil + "'"};
  section.figures = {MakeFigure(chart, evil), MakeFigure(chart)};
  section.tables = {table};
  section.details = {{evil, {table}, evil}};
  page.sections = {section, section};
  return page;
}

TEST(Page, EscapesTextWhereverItComesFrom) {
  const std::string html = RenderPage(Sample());
  EXPECT_FALSE(Contains(html, "<script"));
  EXPECT_TRUE(Contains(html, "&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"));
  EXPECT_TRUE(Contains(html, "href=\"https://example.org/?a=&quot;b&quot;&amp;c\""));
}

TEST(Page, NeedsNothingFromElsewhere) {
  const std::string html = RenderPage(Sample());
  for (const char* part : {"src=", "@import", "url(", "<link"}) {
    EXPECT_FALSE(Contains(html, part)) << part;
  }
  EXPECT_TRUE(Contains(html, "default-src 'none'"));
  EXPECT_TRUE(Contains(html, "prefers-color-scheme:dark"));
  EXPECT_TRUE(Contains(html, "name=\"viewport\""));
}

TEST(Page, IdsAreUniqueAndContentsPointAtSections) {
  const std::string html = RenderPage(Sample());
  EXPECT_TRUE(Contains(html, "href=\"#s1-script-alert-1-script\""));
  EXPECT_TRUE(Contains(html, "<section id=\"s2-script-alert-1-script\">"));
  for (const char* id : {"id='p1-gpPt7'", "id='p4-gpPt7'", "<section id=\"s1-"}) {
    const std::size_t first = html.find(id);
    ASSERT_NE(first, std::string::npos) << id;
    EXPECT_EQ(html.find(id, first + 1), std::string::npos) << id;
  }
}

TEST(Page, RefusesLinksThatRunSomething) {
  for (const char* address : {"javascript:alert(1)", "http://example.org", "", "/etc/passwd"}) {
    Page page{.title = "a"};
    page.links = {{"x", address}};
    EXPECT_THROW(RenderPage(page), Error) << address;
  }
}

TEST(Page, IsWrittenWhole) {
  const TemporaryFolder folder;
  const Page page{.title = "ttr", .lead = "one"};
  WritePage(page, folder / "report.html");
  EXPECT_EQ(ReadAll(folder / "report.html"), RenderPage(page));
  EXPECT_EQ(folder.Count(), 1);
}

}  // namespace
}  // namespace ttr::report
