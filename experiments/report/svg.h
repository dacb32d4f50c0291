// gnuplot's SVG made fit for pages.
#pragma once

#include <string>
#include <string_view>

namespace ttr::report {

// gnuplot's picture under a head of ours: fonts of the reader's system, colours for light and dark
// pages, and a title and description for screen readers.
std::string FinishSvg(std::string_view drawn, std::string_view title, std::string_view description);

// The picture as an element of an HTML page: with `prefix` before every id, which must be unique in
// a page.
std::string InlineSvg(const std::string& svg, std::string_view prefix);

}  // namespace ttr::report
