#include "ttr/dtype.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace ttr {

std::string_view Name(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat64: return "float64";
    case DType::kBFloat16: return "bfloat16";
    case DType::kInt64: return "int64";
    case DType::kInt8: return "int8";
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

}  // namespace ttr
