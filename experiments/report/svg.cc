#include "experiments/report/svg.h"

#include <fmt/core.h>

#include <charconv>
#include <system_error>
#include <vector>

#include "experiments/report/html.h"
#include "experiments/report/palette.h"

namespace ttr::report {
namespace {

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    out.append(text, begin, at - begin).append(to);
    begin = at + from.size();
  }
  out.append(text, begin);
  text = std::move(out);
}

// Removes every piece from `from` through `to`.
void Cut(std::string& text, std::string_view from, std::string_view to) {
  std::string out;
  std::size_t begin = 0;
  for (;;) {
    const std::size_t at = text.find(from, begin);
    const std::size_t end = at == std::string::npos ? at : text.find(to, at + from.size());
    if (end == std::string::npos) break;
    out.append(text, begin, at - begin);
    begin = end + to.size();
  }
  text = out + text.substr(begin);
}

// Reads "rgb(  0, 114, 178)" at the head of `text`, with the quote after it, as "#0072b2" in
// quotes; empty when something else stands there (a text of the chart may hold anything).
std::string HexColour(std::string_view text, std::size_t& length) {
  std::size_t place = 4;
  std::string hex = "\"#";
  for (int i = 0; i < 3; ++i) {
    while (place < text.size() && (text[place] == ' ' || text[place] == ',')) ++place;
    unsigned char part = 0;
    const auto read = std::from_chars(text.data() + place, text.data() + text.size(), part);
    if (read.ec != std::errc()) return "";
    place = static_cast<std::size_t>(read.ptr - text.data());
    hex += fmt::format("{:02x}", part);
  }
  const std::string_view tail = text.substr(place, 2);
  if (tail != ")'" && tail != ")\"") return "";
  length = place + 2;
  return hex + "\"";
}

// Colours in the form that style rules can name.
std::string HexColours(std::string_view text) {
  std::string out;
  for (;;) {
    const std::size_t at = text.find("rgb(");
    if (at == std::string_view::npos || at == 0) return out.append(text);
    std::size_t length = 4;
    const bool quoted = text[at - 1] == '\'' || text[at - 1] == '"';
    const std::string hex = quoted ? HexColour(text.substr(at), length) : "";
    // The opening quote goes with the colour.
    out.append(text.substr(0, hex.empty() ? at + length : at - 1)).append(hex);
    text.remove_prefix(at + length);
  }
}

// Groups that hold nothing: gnuplot opens one at each change of its pen.
void CutEmptyGroups(std::string& text) {
  std::vector<std::string_view> kept;
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end);
    if (line == "\n") continue;
    if (line == "</g>\n" && !kept.empty() && kept.back().starts_with("<g fill=\"none\"")) {
      kept.pop_back();
    } else {
      kept.push_back(line);
    }
  }
  std::string out;
  for (const std::string_view line : kept) out += line;
  text = std::move(out);
}

constexpr std::string_view kFonts =
    "font-family=\"system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', "
    "sans-serif\"";

}  // namespace

std::string FinishSvg(std::string_view drawn, std::string_view title,
                      std::string_view description) {
  std::string svg = HexColours(drawn);
  Cut(svg, "<title>", "</title>");
  Cut(svg, "<desc>", "</desc>");
  Cut(svg, "<filter id=", "</filter>");
  CutEmptyGroups(svg);
  ReplaceAll(svg, " shape-rendering='crispEdges'", "");
  ReplaceAll(svg, fmt::format("font-family=\"{}\"", kSvgFont), "");
  ReplaceAll(svg, fmt::format("font-family=\"{}\"", kSvgBold), "font-weight=\"600\"");
  // Opened on its own, the picture needs a ground that fits its colours; in a page it has the
  // page's.
  const std::string head = fmt::format("<svg role=\"img\" {}", kFonts);
  const std::string after = fmt::format(
      ">\n<title>{}</title>\n<desc>{}</desc>\n<style>svg:root{{background:#fff}}"
      "@media (prefers-color-scheme:dark){{svg:root{{background:#14171b}}{}}}</style>\n",
      EscapeHtml(title), EscapeHtml(description), DarkRules());
  const std::size_t begin = svg.find("<svg");
  const std::size_t end = svg.find('>', begin);
  if (begin == std::string::npos || end == std::string::npos) return svg;
  return svg.substr(0, begin) + head + svg.substr(begin + 4, end - begin - 4) + after +
         svg.substr(end + 1);
}

std::string InlineSvg(std::string_view svg, std::string_view prefix) {
  std::string out(svg.substr(std::min(svg.find("<svg"), svg.size())));
  for (const std::string_view before : {" id='", " id=\"", " xlink:href='#"}) {
    ReplaceAll(out, before, std::string(before) + std::string(prefix) + "-");
  }
  return out;
}

}  // namespace ttr::report
