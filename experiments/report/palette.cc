#include "experiments/report/palette.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace ttr::report {
namespace {

void AppendRules(std::string& out, const Colour& colour) {
  for (const std::string_view property : {"stroke", "fill", "color"}) {
    out.append("[").append(property).append("=\"").append(colour.light).append("\"]{");
    out.append(property).append(":").append(colour.dark).append("}");
  }
}

double ShareOfChannel(unsigned rgb, int shift) {
  return static_cast<double>((rgb >> shift) & 255u) / 255;
}

}  // namespace

std::string DarkRules() {
  std::string out;
  for (const Colour& colour : {kInk, kMutedInk, kRule, kGridLine, kBaseline}) {
    AppendRules(out, colour);
  }
  for (const Colour& colour : kSeriesColours) AppendRules(out, colour);
  return out;
}

unsigned HeatColour(double fraction) {
  // Stops of a single-hue scale whose lightness falls evenly: it reads in grey and for every kind
  // of colour vision.
  static constexpr std::array<unsigned, 7> kStops = {0xeef4fb, 0xcfe1f2, 0xa3cbe5, 0x6aaed6,
                                                     0x3b8bc2, 0x1a64a5, 0x08396f};
  const double place = std::clamp(fraction, 0.0, 1.0) * static_cast<double>(kStops.size() - 1);
  const auto below = std::min(static_cast<std::size_t>(place), kStops.size() - 2);
  const double share = place - static_cast<double>(below);
  unsigned rgb = 0;
  for (const int shift : {16, 8, 0}) {
    const double mixed = (1 - share) * ShareOfChannel(kStops[below], shift) +
                         share * ShareOfChannel(kStops[below + 1], shift);
    rgb |= static_cast<unsigned>(std::lround(mixed * 255)) << shift;
  }
  return rgb;
}

bool IsDark(unsigned rgb) {
  // Relative luminance of WCAG; .18 is where contrast with white equals that with black.
  double luminance = 0;
  const double weights[] = {.2126, .7152, .0722};
  for (int i = 0; i < 3; ++i) {
    const double c = ShareOfChannel(rgb, 16 - 8 * i);
    luminance += weights[i] * (c <= .04045 ? c / 12.92 : std::pow((c + .055) / 1.055, 2.4));
  }
  return luminance < .18;
}

}  // namespace ttr::report
