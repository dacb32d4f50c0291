#include "experiments/report/svg.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <regex>

#include "experiments/report/html.h"
#include "experiments/report/palette.h"

namespace ttr::report {
namespace {

constexpr std::string_view kFonts =
    "text,tspan{font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans','DejaVu Sans',"
    "sans-serif}[font-family='sans-serif:Bold'] text{font-weight:600}";

// Rules that give a light colour's elements the dark one. gnuplot pads the numbers of what it draws
// and not those of what it writes.
std::string DarkRules(const Colour& colour) {
  std::array<int, 3> rgb{};
  for (std::size_t i = 0; i < rgb.size(); ++i) {
    const char* digits = colour.light.data() + 1 + 2 * i;
    std::from_chars(digits, digits + 2, rgb[i], 16);
  }
  const std::string drawn = fmt::format("rgb({:3}, {:3}, {:3})", rgb[0], rgb[1], rgb[2]);
  const std::string written = fmt::format("rgb({},{},{})", rgb[0], rgb[1], rgb[2]);
  return fmt::format(
      "[stroke='{0}']{{stroke:{2}}}[color='{0}']{{color:{2}}}"
      "[fill='{0}'],[fill='{1}']{{fill:{2}}}",
      drawn, written, colour.dark);
}

std::string DarkRules() {
  std::string out;
  for (const Colour& colour : {kInk, kMutedInk, kRule, kGridLine, kBaseline}) {
    out += DarkRules(colour);
  }
  for (const Colour& colour : kSeriesColours) out += DarkRules(colour);
  return out;
}

}  // namespace

std::string FinishSvg(std::string_view drawn, std::string_view title,
                      std::string_view description) {
  // gnuplot's head is an XML declaration, the root's tag, and a title and description of its own.
  constexpr std::string_view kBegin = "<svg", kEnd = "</desc>\n";
  const std::size_t begin = drawn.find(kBegin) + kBegin.size();
  const std::string_view tag = drawn.substr(begin, drawn.find('>', begin) - begin);
  // Opened on its own, the picture needs a ground that fits its colours; in a page it has the
  // page's.
  return fmt::format(
      "<svg role=\"img\"{}>\n<title>{}</title>\n<desc>{}</desc>\n"
      "<style>{}svg:root{{background:#fff}}@media (prefers-color-scheme:dark)"
      "{{svg:root{{background:#14171b}}{}}}</style>\n{}",
      tag, EscapeHtml(title), EscapeHtml(description), kFonts, DarkRules(),
      drawn.substr(drawn.find(kEnd) + kEnd.size()));
}

std::string InlineSvg(const std::string& svg, std::string_view prefix) {
  static const std::regex ids("( id=['\"]| xlink:href='#)");
  return std::regex_replace(svg, ids, fmt::format("$1{}-", prefix));
}

}  // namespace ttr::report
