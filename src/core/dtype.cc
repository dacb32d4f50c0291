#include "ttr/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>

namespace ttr {

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kBFloat16: return "bfloat16";
    case DType::kInt64: return "int64";
    case DType::kInt8: return "int8";
    case DType::kFloat16: return "float16";
  }
  return "unknown";
}

float ToFloat(BFloat16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }

BFloat16 ToBFloat16(double x) {
  const float nearest = static_cast<float>(x);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::isnan(x)) {
    // The quiet bit, so that a payload that lived in the lower half alone does not leave infinity.
    return {static_cast<std::uint16_t>((bits >> 16) | 0x0040U)};
  }
  // Rounding twice, to float and then to bfloat16, would err on ties. So the first rounding is to
  // odd: towards zero, with the last bit set where something was lost. That bit keeps the second
  // rounding off its ties. (One below infinity is the greatest float.)
  if (const double back = static_cast<double>(nearest); back != x) {
    if (std::fabs(back) > std::fabs(x)) --bits;
    bits |= 1U;
  }
  const std::uint32_t to_even = 0x7fffU + ((bits >> 16) & 1U);
  return {static_cast<std::uint16_t>((bits + to_even) >> 16)};
}

float ToFloat(Float16 x) {
  const int exponent = (x.bits >> 10) & 31, mantissa = x.bits & 1023;
  float size = 0;
  if (exponent == 31) {
    size = mantissa != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    size = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return (x.bits & 0x8000U) != 0 ? -size : size;
}

Float16 ToFloat16(double x) {
  const std::uint32_t sign = std::signbit(x) ? 0x8000U : 0;
  if (std::isnan(x)) return {static_cast<std::uint16_t>(sign | 0x7e00U)};
  const double size = std::fabs(x);
  if (size >= 65520) return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  // Whole steps of the numbers about x, of which the smallest are 2^-24. One too many of them is
  // the first number of the next power of two, and its bits follow on.
  const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
  const auto steps = static_cast<std::uint32_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  const std::uint32_t below = static_cast<std::uint32_t>(exponent + 14) << 10;
  return {static_cast<std::uint16_t>(sign | (below + steps))};
}

}  // namespace ttr
