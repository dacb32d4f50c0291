#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <string>

#include "ttr/error.h"
#include "ttr/util/random.h"

// Every operation here is one that IEEE 754 rounds correctly, in an order that the source fixes
// (the project compiles without contraction to fused multiply-adds). std::sqrt is the IEEE square
// root.

namespace ttr {
namespace {

template <std::size_t n>
double Polynomial(const std::array<double, n>& coefficients, double x) {
  double sum = 0;
  for (std::size_t i = n; i-- > 0;) {
    sum = sum * x + coefficients[i];
  }
  return sum;
}

// The coefficients of PPND16, lowest degree first, as Wichura prints them: numerator and
// denominator for |p - 1/2| <= 0.425, for the near tail and for the far tail.
constexpr std::array<double, 8> kMiddleTop = {3.3871328727963666080e0, 1.3314166789178437745e2,
                                              1.9715909503065514427e3, 1.3731693765509461125e4,
                                              4.5921953931549871457e4, 6.7265770927008700853e4,
                                              3.3430575583588128105e4, 2.5090809287301226727e3};
constexpr std::array<double, 8> kMiddleBottom = {1.0,
                                                 4.2313330701600911252e1,
                                                 6.8718700749205790830e2,
                                                 5.3941960214247511077e3,
                                                 2.1213794301586595867e4,
                                                 3.9307895800092710610e4,
                                                 2.8729085735721942674e4,
                                                 5.2264952788528545610e3};
constexpr std::array<double, 8> kNearTop = {1.42343711074968357734e0,  4.63033784615654529590e0,
                                            5.76949722146069140550e0,  3.64784832476320460504e0,
                                            1.27045825245236838258e0,  2.41780725177450611770e-1,
                                            2.27238449892691845833e-2, 7.74545014278341407640e-4};
constexpr std::array<double, 8> kNearBottom = {1.0,
                                               2.05319162663775882187e0,
                                               1.67638483018380384940e0,
                                               6.89767334985100004550e-1,
                                               1.48103976427480074590e-1,
                                               1.51986665636164571966e-2,
                                               5.47593808499534494600e-4,
                                               1.05075007164441684324e-9};
constexpr std::array<double, 8> kFarTop = {6.65790464350110377720e0,  5.46378491116411436990e0,
                                           1.78482653991729133580e0,  2.96560571828504891230e-1,
                                           2.65321895265761230930e-2, 1.24266094738807843860e-3,
                                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
constexpr std::array<double, 8> kFarBottom = {1.0,
                                              5.99832206555887937690e-1,
                                              1.36929880922735805310e-1,
                                              1.48753612908506148525e-2,
                                              7.86869131145613259100e-4,
                                              1.84631831751005468180e-5,
                                              1.42151175831644588870e-7,
                                              2.04426310338993978564e-15};

// 2 (1/3, 1/5, ..., 1/23): the series of log((1 + s) / (1 - s)) - 2 s over s^3. For |s| <= 0.1716
// the first term left out is below 1e-19.
constexpr std::array<double, 11> kLogSeries = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,
                                               2.0 / 11, 2.0 / 13, 2.0 / 15, 2.0 / 17,
                                               2.0 / 19, 2.0 / 21, 2.0 / 23};

// log 2 as a sum: the first part has 21 trailing zero bits, so that times an exponent it is exact.
constexpr double kLogTwoHigh = 0x1.62e42fee00000p-1;
constexpr double kLogTwoLow = 0x1.a39ef35793c76p-33;

}  // namespace

double PortableLog(double x) {
  if (!(x > 0) || x > std::numeric_limits<double>::max()) {
    throw Error("[random] x of a logarithm must be positive and finite but is " +
                std::to_string(x));
  }
  int exponent = 0;
  if (x < std::numeric_limits<double>::min()) {  // a denormal: scale it up, exactly
    x *= 0x1p54;
    exponent = -54;
  }
  const auto bits = std::bit_cast<std::uint64_t>(x);
  constexpr std::uint64_t kFraction = (std::uint64_t{1} << 52) - 1;
  constexpr std::uint64_t kOne = std::uint64_t{1023} << 52;
  exponent += static_cast<int>(bits >> 52) - 1023;
  double mantissa = std::bit_cast<double>((bits & kFraction) | kOne);
  if (mantissa > 1.4142135623730951) {
    mantissa *= 0.5;
    ++exponent;
  }
  // log m = log((1 + s) / (1 - s)) with s = f / (2 + f), f = m - 1. As 2 s = f - s f, the leading
  // term f is free of rounding.
  const double f = mantissa - 1;
  const double s = f / (2 + f);
  const double s2 = s * s;
  const double rest = s * (s2 * Polynomial(kLogSeries, s2) - f);
  const double e = exponent;
  return e * kLogTwoHigh + (f + (rest + e * kLogTwoLow));
}

double NormalQuantile(double p) {
  if (!(p > 0 && p < 1)) {
    throw Error("[random] p must be inside (0, 1) but is " + std::to_string(p));
  }
  const double centred = p - 0.5;
  if (std::fabs(centred) <= 0.425) {
    const double r = 0.180625 - centred * centred;
    return centred * Polynomial(kMiddleTop, r) / Polynomial(kMiddleBottom, r);
  }
  const double tail = centred < 0 ? p : 1 - p;
  const double r = std::sqrt(-PortableLog(tail));
  const double x = r <= 5 ? Polynomial(kNearTop, r - 1.6) / Polynomial(kNearBottom, r - 1.6)
                          : Polynomial(kFarTop, r - 5) / Polynomial(kFarBottom, r - 5);
  return centred < 0 ? -x : x;
}

}  // namespace ttr
