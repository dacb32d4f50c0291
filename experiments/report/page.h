// One HTML page of results: no network, no script, light and dark, narrow and wide.
//
//   Page page{.title = "ttr", .lead = "Sequence layers as regressions solved while reading."};
//   Section& section = page.sections.emplace_back();
//   section.title = "Online regression";
//   section.text = {"What one sees.", "Why, with `code` in backquotes."};
//   section.figures.push_back(MakeFigure(chart));
//   section.tables.push_back(table);
//   section.details.push_back({"All layers", {table}, ""});
//   section.command = "ttr experiment online-regression --seeds 20";
//   WritePage(page, "report.html");
//
// All text is escaped; between backquotes it is set as code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "experiments/report/chart.h"
#include "experiments/report/table.h"

namespace ttr::report {

// A picture for wide and one for narrow screens.
struct Figure {
  std::string svg;
  std::string narrow_svg = {};  // Empty: the wide one, scrolled.
  std::string caption = {};
};

Figure MakeFigure(const Chart& chart, std::string caption = "");

// What a reader opens on demand.
struct Details {
  std::string title;
  std::vector<Table> tables = {};
  std::string text = {};  // Shown as it is, in fixed width.
};

struct Section {
  std::string title = {};
  std::vector<std::string> text = {};  // Paragraphs.
  std::vector<Figure> figures = {};
  std::vector<Table> tables = {};
  std::vector<Details> details = {};
  std::string command = {};  // What made this section.
};

struct Link {
  std::string text;
  std::string address;  // https:// or a path beside the page.
};

// A word that the page uses, explained at its top.
struct Term {
  std::string word;
  std::string meaning;
};

struct Page {
  std::string title = {};
  std::string lead = {};
  std::vector<Term> glossary = {};
  std::vector<Section> sections = {};
  std::vector<Link> links = {};
  std::string footer = {};
  bool contents = true;  // Links to the sections at the top.
};

// Throws ttr::Error for a link that is neither https:// nor a relative path.
std::string RenderPage(const Page& page);

// Written whole or not at all; throws ttr::SystemError.
void WritePage(const Page& page, const std::filesystem::path& path);

}  // namespace ttr::report
