// Floats are rounded to bfloat16 on every target as ToBFloat16() rounds them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "tests/support/engines.h"
#include "tests/support/targets.h"
#include "ttr/dtype.h"
#include "ttr/layer.h"
#include "ttr/short_conv.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

constexpr std::int64_t kWhole = 4 * 64;       // vectors of any target
constexpr std::int64_t kCount = kWhole + 12;  // and a rest

// The state that a convolution leaves is its last input, rounded.
Tensor RoundedByConvolution(const Tensor& x) {
  const Tensor weight(DType::kFloat32, {1, kCount, 2});
  const Tensor y(DType::kFloat32, {1, 1, 1, kCount});
  Tensor state(DType::kBFloat16, {1, 1, 1, kCount});
  ApplyShortConv({.weight = weight}, {.x = x}, state, y, SequentialExecutor());
  return state;
}

// A scan that reads before its first token outputs the state, rounded.
Tensor RoundedByScan(const Tensor& x) {
  const Layer layer(ParseRecipe("hgrn{read: before}"));
  const Tensor v(DType::kBFloat16, {1, 1, 1, kWhole});
  const Tensor log_decay(DType::kFloat32, {1, 1, 1, kWhole});
  const Inputs inputs{.v = v, .log_decay = log_decay};
  State state = layer.InitialState(inputs);
  std::copy_n(x.as<float>().data(), kWhole, state.Get("state").as<float>());
  Tensor y(DType::kBFloat16, {1, 1, 1, kWhole});
  layer.Forward(inputs, state, {.y = y});
  return y;
}

void ExpectRounded(const Tensor& x, const Tensor& rounded, std::int64_t count,
                   const std::string& target) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float number = x.as<float>()[static_cast<std::size_t>(i)];
    const std::uint16_t got = rounded.as<BFloat16>()[static_cast<std::size_t>(i)].bits;
    const auto bits = std::bit_cast<std::uint32_t>(number);
    if (std::isnan(number)) {
      EXPECT_EQ(got, (bits >> 16) | 0x40u) << target << ", " << std::hex << bits;
    } else {
      EXPECT_EQ(got, ToBFloat16(double{number}).bits) << target << ", " << std::hex << bits;
    }
  }
}

TEST(Bf16Rounding, RoundsToNearestEvenAndKeepsNaN) {
  // Halves that are even and odd, what rounds to infinity, NaN whose last bits would carry, the
  // least numbers, zeros.
  constexpr std::uint32_t kSome[] = {0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f7fffff,
                                     0xff7fffff, 0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff,
                                     0xffffffff, 0xff8fffff, 0x00000001, 0x00008000, 0x00018000,
                                     0x007fffff, 0x00000000, 0x80000000, 0x80008001, 0x3fffffff};
  Tensor x(DType::kFloat32, {1, 1, 1, kCount});
  float* const numbers = x.as<float>().data();
  CounterRandom random(7);
  for (std::int64_t i = 0; i < kCount; ++i) {
    const auto bits = i < 7 * std::ssize(kSome) ? kSome[i % std::ssize(kSome)]
                                                : static_cast<std::uint32_t>(random.Bits());
    numbers[i] = std::bit_cast<float>(bits);
  }
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    ExpectRounded(x, RoundedByConvolution(x), kCount, target);
    ExpectRounded(x, RoundedByScan(x), kWhole, target);
  }
}

}  // namespace
}  // namespace ttr
