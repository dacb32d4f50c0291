// The colours of charts: Okabe and Ito's set, in which the colour-blind tell series apart, and what
// each becomes on a dark page.
#pragma once

#include <array>
#include <string_view>

namespace ttr::report {

struct Colour {
  std::string_view light;
  std::string_view dark;
};

inline constexpr Colour kInk = {"#24292f", "#e6e8eb"};
inline constexpr Colour kMutedInk = {"#646c76", "#9aa3ae"};
inline constexpr Colour kRule = {"#9ea5ad", "#5b636d"};
inline constexpr Colour kGridLine = {"#e6e8eb", "#2c323a"};
inline constexpr Colour kBaseline = {"#7a828c", "#8f98a3"};

// Okabe and Ito's, the yellow left out (unreadable on white) and the two lightest a little darker,
// so that thin lines and the names written in their colour keep their contrast.
inline constexpr std::array<Colour, 7> kSeriesColours = {{
    {"#0072b2", "#4db2f0"},  // blue
    {"#d55e00", "#ff8a3d"},  // vermilion
    {"#008a66", "#2ec79c"},  // green
    {"#b4508a", "#e58cbf"},  // purple
    {"#b87a00", "#f0b429"},  // orange
    {"#2b95cc", "#8fd3ff"},  // sky
    {"#3a3f45", "#cfd4da"},  // black
}};

// gnuplot dash types, one a series.
inline constexpr std::array<std::string_view, 8> kDashes = {
    "solid", "(14,5)",         "(4,4)", "(14,4,3,4)",
    "(8,4)", "(20,4,3,4,3,4)", "(2,3)", "(10,3,10,3,3,3)"};

// gnuplot point types: full circle, triangle, square, diamond, then their outlines.
inline constexpr std::array<int, 8> kMarkers = {7, 9, 5, 13, 11, 6, 8, 4};

}  // namespace ttr::report
