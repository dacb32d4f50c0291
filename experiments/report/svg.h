// gnuplot's SVG made fit for pages.
#pragma once

#include <string>
#include <string_view>

namespace ttr::report {

// Font names that charts give to gnuplot's SVG terminal, for FinishSvg to replace.
inline constexpr std::string_view kSvgFont = "ttr";
inline constexpr std::string_view kSvgBold = "ttrbold";

// Fonts of the reader's system, colours for light and dark pages, a title and description for
// screen readers, and nothing that names the drawing program or repeats what nobody sees.
std::string FinishSvg(std::string_view drawn, std::string_view title, std::string_view description);

// The picture as an element of an HTML page: without its XML head, and with `prefix` before every
// id, which must be unique in a page.
std::string InlineSvg(std::string_view svg, std::string_view prefix);

}  // namespace ttr::report
