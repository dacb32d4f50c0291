#include "ttr/dtype.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

namespace ttr {
namespace {

// Nearest, ties to even, found by looking at both neighbours: bfloat16 numbers of one sign are in
// the order of their bits, with infinity standing for 2^128.
std::uint16_t NearestByComparison(double x) {
  const auto value = [](std::uint32_t bits) {
    return bits == 0x7f80 ? std::ldexp(1.0, 128)
                          : static_cast<double>(std::bit_cast<float>(bits << 16));
  };
  std::uint32_t below = 0;
  std::uint32_t above = 0x7f80;
  if (std::fabs(x) >= value(above)) return static_cast<std::uint16_t>(x < 0 ? 0xff80 : 0x7f80);
  while (above - below > 1) {
    const std::uint32_t middle = (below + above) / 2;
    (value(middle) <= std::fabs(x) ? below : above) = middle;
  }
  const double down = std::fabs(x) - value(below);
  const double up = value(above) - std::fabs(x);
  const bool take_above = up < down || (up == down && above % 2 == 0);
  const std::uint32_t bits = take_above ? above : below;
  return static_cast<std::uint16_t>(bits | (std::signbit(x) ? 0x8000U : 0U));
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(Name(DType::kFloat32), "float32");
  EXPECT_EQ(Name(DType::kFloat64), "float64");
  EXPECT_EQ(Name(DType::kBFloat16), "bfloat16");
  EXPECT_EQ(Name(DType::kInt64), "int64");
  EXPECT_EQ(Name(DType::kInt8), "int8");
  EXPECT_EQ(SizeOf(DType::kBFloat16), 2U);
  EXPECT_EQ(SizeOf(DType::kInt64), 8U);
  EXPECT_FALSE(IsFloating(DType::kInt8));
  EXPECT_TRUE(IsFloating(DType::kBFloat16));
}

TEST(BFloat16, EveryNumberComesBack) {
  for (std::uint32_t i = 0; i < 0x10000; ++i) {
    const BFloat16 x{static_cast<std::uint16_t>(i)};
    const float wide = ToFloat(x);
    ASSERT_EQ(std::bit_cast<std::uint32_t>(wide), i << 16);
    const BFloat16 back = ToBFloat16(wide);
    if (std::isnan(wide)) {
      ASSERT_TRUE(std::isnan(ToFloat(back))) << i;
      ASSERT_EQ(back.bits & 0x8000, x.bits & 0x8000) << i;
    } else {
      ASSERT_EQ(back.bits, x.bits);
    }
  }
}

TEST(BFloat16, TiesGoToEven) {
  for (std::uint32_t i = 0; i < 0x7f80; ++i) {
    const double low = std::bit_cast<float>(i << 16);
    const double tie = std::bit_cast<float>((i << 16) | 0x8000U);
    const std::uint32_t even = i % 2 == 0 ? i : i + 1;
    ASSERT_EQ(ToBFloat16(tie).bits, even) << i;
    ASSERT_EQ(ToBFloat16(-tie).bits, even | 0x8000U) << i;
    // The next doubles beside the tie are closer to one side; a float could not tell them apart.
    ASSERT_EQ(ToBFloat16(std::nextafter(tie, low)).bits, i) << i;
    ASSERT_EQ(ToBFloat16(std::nextafter(tie, 1e300)).bits, i + 1) << i;
  }
}

TEST(BFloat16, AgreesWithTheNearestOfBothNeighbours) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200000; ++i) {
    // All bit patterns of a double, and those whose exponent a bfloat16 has.
    std::uint64_t bits = random();
    if (i % 2 == 0) {
      bits = (bits & 0x800fffffffffffffU) | ((random() % 290 + 1023 - 145) << 52);
    }
    const auto x = std::bit_cast<double>(bits);
    if (std::isnan(x)) continue;
    ASSERT_EQ(ToBFloat16(x).bits, NearestByComparison(x)) << std::hexfloat << x;
  }
}

TEST(BFloat16, Overflow) {
  const double greatest = std::bit_cast<float>(0x7f7f0000U);
  const double tie = std::bit_cast<float>(0x7f7f8000U);  // halfway to 2^128
  EXPECT_EQ(ToBFloat16(greatest).bits, 0x7f7f);
  EXPECT_EQ(ToBFloat16(std::nextafter(tie, 0)).bits, 0x7f7f);
  EXPECT_EQ(ToBFloat16(tie).bits, 0x7f80);
  EXPECT_EQ(ToBFloat16(1e300).bits, 0x7f80);
  EXPECT_EQ(ToBFloat16(-1e300).bits, 0xff80);
  EXPECT_EQ(ToBFloat16(std::numeric_limits<double>::infinity()).bits, 0x7f80);
}

TEST(BFloat16, Underflow) {
  EXPECT_EQ(ToBFloat16(0.0).bits, 0x0000);
  EXPECT_EQ(ToBFloat16(-0.0).bits, 0x8000);
  EXPECT_EQ(ToBFloat16(1e-300).bits, 0x0000);
  EXPECT_EQ(ToBFloat16(-1e-300).bits, 0x8000);
  const double least = std::ldexp(1.0, -133);
  EXPECT_EQ(ToBFloat16(least).bits, 0x0001);
  EXPECT_EQ(ToBFloat16(least / 2).bits, 0x0000);
  EXPECT_EQ(ToBFloat16(std::nextafter(least / 2, 1)).bits, 0x0001);
}

TEST(BFloat16, NaNStaysNaN) {
  // Payloads in the lowest bits, that a cut would turn into infinity.
  for (const std::uint64_t bits :
       {0x7ff0000000000001U, 0xfff0000000000001U, 0x7ff8000000000000U, 0x7ff0000020000000U}) {
    const BFloat16 x = ToBFloat16(std::bit_cast<double>(bits));
    EXPECT_TRUE(std::isnan(ToFloat(x))) << std::hex << bits;
    EXPECT_EQ(x.bits >> 15, bits >> 63) << std::hex << bits;
  }
}

}  // namespace
}  // namespace ttr
