// Activations and their derivatives beside formulas in long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/activation_kernels.h"
#include "tests/support/engines.h"
#include "tests/support/targets.h"

namespace ttr {
namespace {

using simd::Activation;
using Wide = long double;

Wide Value(Activation activation, Wide z) {
  const Wide pi = 3.14159265358979323846264338327950288L;
  switch (activation) {
    case Activation::kSilu: return z / (1 + std::exp(-z));
    case Activation::kGelu:
      return z / (1 + std::exp(-2 * std::sqrt(2 / pi) * (z + 0.044715L * z * z * z)));
    case Activation::kRelu: return z <= 0 ? 0 : z;
    case Activation::kTanh: return std::tanh(z);
  }
  return z;
}

// By central differences of sixth order: some 14 digits of the first, 11 of the second.
Wide Slope(Activation activation, Wide z) {
  const Wide h = 1e-3L;
  const auto f = [&](int i) { return Value(activation, z + h * i); };
  return (45 * (f(1) - f(-1)) - 9 * (f(2) - f(-2)) + (f(3) - f(-3))) / (60 * h);
}
Wide Bend(Activation activation, Wide z) {
  const Wide h = 5e-3L;
  const auto f = [&](int i) { return Value(activation, z + h * i) + Value(activation, z - h * i); };
  return (270 * f(1) - 27 * f(2) + 2 * f(3) - 490 * Value(activation, z)) / (180 * h * h);
}

template <class T>
void ExpectFormulas(Activation activation, double tolerance) {
  std::vector<T> z;
  for (int i = -400; i <= 400; ++i) z.push_back(static_cast<T>(i) / 37);
  std::vector<T> value(z.size()), slope(z.size()), curvature(z.size());
  test::Activate(activation, static_cast<std::int64_t>(z.size()), z.data(), value.data(),
                 slope.data(), curvature.data());
  for (std::size_t i = 0; i < z.size(); ++i) {
    const auto x = static_cast<Wide>(z[i]);
    const double size = 1 + std::abs(static_cast<double>(z[i]));
    EXPECT_NEAR(static_cast<double>(value[i]), static_cast<double>(Value(activation, x)),
                tolerance * size)
        << z[i];
    if (activation == Activation::kRelu) {
      EXPECT_EQ(slope[i], z[i] <= 0 ? 0 : 1);
      EXPECT_EQ(curvature[i], 0);
      continue;
    }
    EXPECT_NEAR(static_cast<double>(slope[i]), static_cast<double>(Slope(activation, x)),
                tolerance * size)
        << z[i];
    EXPECT_NEAR(static_cast<double>(curvature[i]), static_cast<double>(Bend(activation, x)),
                std::max(tolerance * size * 4, 1e-10))
        << z[i];
  }
}

class Activations : public testing::TestWithParam<Activation> {};
INSTANTIATE_TEST_SUITE_P(All, Activations,
                         testing::Values(Activation::kSilu, Activation::kGelu, Activation::kRelu,
                                         Activation::kTanh),
                         [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(Activations, AreTheirFormulas) {
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    ExpectFormulas<double>(GetParam(), 2e-13);
    ExpectFormulas<float>(GetParam(), 1e-6);
  }
}

template <class T>
void ExpectEnds(Activation activation) {
  constexpr T kNan = std::numeric_limits<T>::quiet_NaN();
  const T far = std::numeric_limits<T>::max() / 4;
  const T z[] = {kNan, far, -far, T(100), T(-100), T(0)};
  T value[6], slope[6], curvature[6];
  test::Activate(activation, 6, z, value, slope, curvature);
  EXPECT_TRUE(std::isnan(value[0]));
  const bool tanh = activation == Activation::kTanh;
  for (const int i : {1, 3}) {
    EXPECT_EQ(value[i], tanh ? 1 : z[i]);
    EXPECT_NEAR(slope[i], tanh ? 0 : 1, 1e-20);
    EXPECT_NEAR(curvature[i], 0, 1e-20);
  }
  for (const int i : {2, 4}) {
    EXPECT_NEAR(value[i], tanh ? -1 : 0, 1e-20);
    EXPECT_NEAR(slope[i], 0, 1e-20);
    EXPECT_NEAR(curvature[i], 0, 1e-20);
  }
  EXPECT_EQ(value[5], 0);
}

TEST_P(Activations, ReachTheirEnds) {
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    ExpectEnds<float>(GetParam());
    ExpectEnds<double>(GetParam());
  }
}

}  // namespace
}  // namespace ttr
