#include "experiments/report/page.h"

#include <cctype>
#include <utility>

#include "experiments/report/atomic_file.h"
#include "experiments/report/html.h"
#include "experiments/report/page_style.h"
#include "experiments/report/svg.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

// An address of the page's own: letters and digits of the title, the number where titles repeat.
std::string Anchor(const Section& section, std::size_t number) {
  std::string out;
  for (const char c : section.title) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 128 && std::isalnum(byte) != 0) {
      out += static_cast<char>(std::tolower(byte));
    } else if (!out.empty() && out.back() != '-') {
      out += '-';
    }
  }
  while (out.ends_with('-')) out.pop_back();
  return "s" + std::to_string(number + 1) + (out.empty() ? "" : "-" + out);
}

void CheckLink(const Link& link) {
  const bool web = link.address.starts_with("https://");
  const bool relative = link.address.find(':') == std::string::npos &&
                        !link.address.starts_with('/') && !link.address.empty();
  if (web || relative) return;
  throw Error("[page] address of link " + link.text +
              " must be https:// or a relative path but is " + link.address);
}

class Writer {
 public:
  std::string Write(const Page& page) {
    const std::string title = EscapeHtml(page.title);
    out_ =
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        // An attempt to load anything from elsewhere is a mistake, and fails.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'; img-src data:\">\n<title>" +
        title + "</title>\n<style>" + std::string(kPageStyle) + "</style>\n</head>\n<body>\n";
    out_ += "<header>\n<h1>" + title + "</h1>\n";
    if (!page.lead.empty()) out_ += "<p class=\"lead\">" + InlineHtml(page.lead) + "</p>\n";
    if (!page.glossary.empty()) Glossary(page);
    if (page.contents && page.sections.size() > 1) Contents(page);
    out_ += "</header>\n<main>\n";
    for (std::size_t i = 0; i < page.sections.size(); ++i) {
      WriteSection(page.sections[i], Anchor(page.sections[i], i));
    }
    out_ += "</main>\n";
    if (!page.footer.empty() || !page.links.empty()) Footer(page);
    return out_ + "</body>\n</html>\n";
  }

 private:
  void Glossary(const Page& page) {
    out_ += "<dl>";
    for (const Term& term : page.glossary) {
      out_ += "<dt>" + InlineHtml(term.word) + "</dt><dd>" + InlineHtml(term.meaning) + "</dd>\n";
    }
    out_ += "</dl>\n";
  }

  void Contents(const Page& page) {
    out_ += "<nav aria-label=\"Contents\"><ol>";
    for (std::size_t i = 0; i < page.sections.size(); ++i) {
      out_ += "<li><a href=\"#" + Anchor(page.sections[i], i) + "\">" +
              EscapeHtml(page.sections[i].title) + "</a></li>";
    }
    out_ += "</ol></nav>\n";
  }

  void WriteSection(const Section& section, const std::string& anchor) {
    out_ += "<section id=\"" + anchor + "\">\n";
    if (!section.title.empty()) out_ += "<h2>" + InlineHtml(section.title) + "</h2>\n";
    for (const std::string& text : section.text) out_ += "<p>" + InlineHtml(text) + "</p>\n";
    for (const Figure& figure : section.figures) WriteFigure(figure);
    for (const Table& table : section.tables) WriteTable(table);
    for (const Details& details : section.details) {
      out_ += "<details><summary>" + InlineHtml(details.title) + "</summary>\n";
      for (const Table& table : details.tables) WriteTable(table);
      if (!details.text.empty()) out_ += "<pre>" + EscapeHtml(details.text) + "</pre>\n";
      out_ += "</details>\n";
    }
    if (!section.command.empty()) {
      out_ += "<div class=\"command\"><span>Made by</span><pre tabindex=\"0\">" +
              EscapeHtml(section.command) + "</pre></div>\n";
    }
    out_ += "</section>\n";
  }

  void WriteFigure(const Figure& figure) {
    const bool both = !figure.narrow_svg.empty();
    out_ += both ? "<figure class=\"both\">" : "<figure>";
    out_ += "<div class=\"wide\">" + Inlined(figure.svg) + "</div>";
    if (both) out_ += "<div class=\"narrow\">" + Inlined(figure.narrow_svg) + "</div>";
    if (!figure.caption.empty()) {
      out_ += "<figcaption>" + InlineHtml(figure.caption) + "</figcaption>";
    }
    out_ += "</figure>\n";
  }

  std::string Inlined(const std::string& svg) {
    return InlineSvg(svg, "p" + std::to_string(++pictures_));
  }

  // Scrolls inside its own box, which the keyboard can reach: the page itself never moves sideways.
  void WriteTable(const Table& table) {
    out_ += "<div class=\"scroll\" tabindex=\"0\">" + TableHtml(table) + "</div>\n";
  }

  void Footer(const Page& page) {
    out_ += "<footer><div>";
    if (!page.footer.empty()) out_ += "<p>" + InlineHtml(page.footer) + "</p>";
    for (const Link& link : page.links) {
      CheckLink(link);
      out_ += "<a href=\"" + EscapeHtml(link.address) + "\">" + EscapeHtml(link.text) + "</a>";
    }
    out_ += "</div></footer>\n";
  }

  std::string out_;
  int pictures_ = 0;
};

}  // namespace

Figure MakeFigure(const Chart& chart, std::string caption) {
  return {RenderSvg(chart, Format::kWide), RenderSvg(chart, Format::kNarrow), std::move(caption)};
}

std::string RenderPage(const Page& page) { return Writer().Write(page); }

void WritePage(const Page& page, const std::filesystem::path& path) {
  WriteFile(path, RenderPage(page));
}

}  // namespace ttr::report
