#include "src/forecast/student_t.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "ttr/error.h"

namespace ttr::forecasting {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

// From here on the expansion's first term left out, some 1e-4 z^11 / n^5, is below 1e-12.
constexpr double kMany = 2000;

// Gamma(a + 1/2) / Gamma(a). std::lgamma would do for small a alone (its values are large and their
// difference is not), and writes a global.
double GammaRatio(double a) {
  double factor = 1;
  for (; a < 20; a += 1) factor *= a / (a + .5);
  const double r = 1 / (8 * a);
  // sqrt(a) (1 - r + r^2/2 + 5 r^3/2 - 21 r^4/8 - 399 r^5/8 + 869 r^6/16 + 39325 r^7/16 - ...)
  constexpr double kSeries[] = {39325. / 16, 869. / 16, -399. / 8, -21. / 8, 5. / 2, 1. / 2, -1, 1};
  double sum = 0;
  for (const double coefficient : kSeries) sum = sum * r + coefficient;
  return factor * std::sqrt(a) * sum;
}

// The continued fraction 1 / (1 + d_1 / (1 + d_2 / (1 + ...))) of I_x(a, b), evaluated forwards
// (Lentz). Quick for x < (a + 1) / (a + b + 2).
double BetaFraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  const auto not_zero = [](double value) { return value == 0 ? kTiny : value; };
  double numerator = 1;    // A_n / A_{n-1}
  double denominator = 0;  // B_{n-1} / B_n
  double value = 1;
  for (int n = 1; n <= 100000; ++n) {
    const double m = n / 2;  // NOLINT: the whole part
    const double d = n % 2 == 0 ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    denominator = 1 / not_zero(1 + d * denominator);
    numerator = not_zero(1 + d / numerator);
    const double change = numerator * denominator;
    value *= change;
    if (std::abs(change - 1) <= 4 * kEps) break;
  }
  return 1 / value;
}

// P(|T| <= t) and P(|T| > t), the smaller one to its own precision, and t times the density of |T|.
struct Student {
  double inside, outside, slope;
};

Student StudentAt(double t, double degrees) {
  const double a = degrees / 2;
  const double power = std::exp(-a * std::log1p(t * t / degrees));  // x^a
  const double ratio = GammaRatio(a) / std::sqrt(std::numbers::pi);
  const double root = t / std::hypot(std::sqrt(degrees), t);  // sqrt(1 - x)
  Student student{.inside = 0, .outside = 0, .slope = 2 * ratio * power * root};
  const double y = root * root;
  if (y < 1.5 / (a + 2.5)) {
    student.inside = 2 * ratio * power * root * BetaFraction(y, .5, a);
    student.outside = 1 - student.inside;
  } else {
    const double x = 1 / (1 + t / degrees * t);
    student.outside = ratio / a * power * root * BetaFraction(x, a, .5);
    student.inside = 1 - student.outside;
  }
  return student;
}

Student NormalAt(double z) {
  const double density = std::sqrt(2 / std::numbers::pi) * std::exp(-z * z / 2);
  const double x = z / std::numbers::sqrt2;
  return {.inside = std::erf(x), .outside = std::erfc(x), .slope = z * density};
}

// Both logarithms are concave in log t, as the density of log |T| is: Newton goes at most once past
// the solution and then towards it from one side.
template <class Distribution>
double Solve(double level, double start, Distribution at) {
  const double outside = 1 - level;
  double t = start;
  for (int i = 0; i < 200 && std::isfinite(t); ++i) {
    const Student now = at(t);
    const double step = level < .5 ? -std::log(now.inside / level) * now.inside / now.slope
                                   : std::log(now.outside / outside) * now.outside / now.slope;
    t *= std::exp(step);
    // The error squares with every step: what is left after this one is rounding.
    if (std::abs(step) < 1e-9) break;
  }
  return t;
}

double NormalQuantile(double level) {
  // Starts from which Newton never passes the solution: erfc(z / sqrt(2)) <= exp(-z^2 / 2), and
  // erf(z / sqrt(2)) <= sqrt(2 / pi) z.
  const double start =
      level < .5 ? level * std::sqrt(std::numbers::pi / 2) : std::sqrt(-2 * std::log1p(-level));
  return Solve(level, start, NormalAt);
}

}  // namespace

double StudentInside(double t, double degrees) { return StudentAt(t, degrees).inside; }

double StudentQuantile(double level, double degrees) {
  // Written so that NaN fails.
  if (!(level > 0 && level < 1)) {
    throw Error("StudentQuantile", "level", "above 0 and below 1", std::to_string(level));
  }
  if (!(degrees > 0)) {
    throw Error("StudentQuantile", "degrees", "above 0", std::to_string(degrees));
  }
  const double z = NormalQuantile(level);
  if (degrees < kMany) {
    return Solve(level, z, [&](double t) { return StudentAt(t, degrees); });
  }
  const double q = z * z;
  const double r = 1 / degrees;
  const double g1 = (q + 1) / 4;
  const double g2 = ((5 * q + 16) * q + 3) / 96;
  const double g3 = (((3 * q + 19) * q + 17) * q - 15) / 384;
  const double g4 = ((((79 * q + 776) * q + 1482) * q - 1920) * q - 945) / 92160;
  return z + z * r * (g1 + r * (g2 + r * (g3 + r * g4)));
}

}  // namespace ttr::forecasting
