/// Element types of tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace ttr {

/// Element type of a tensor. Per-token inputs are one of the four floating-point types; `kInt64`
/// holds `cu_seqlens`, `kInt8` holds `status`.
enum class DType : std::uint8_t { kFloat32, kFloat64, kBFloat16, kInt64, kInt8, kFloat16 };

/// Bytes of one element.
constexpr std::size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 4;
    case DType::kFloat64: return 8;
    case DType::kBFloat16: return 2;
    case DType::kInt64: return 8;
    case DType::kInt8: return 1;
    case DType::kFloat16: return 2;
  }
  return 0;
}

constexpr bool IsFloating(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kBFloat16 ||
         dtype == DType::kFloat16;
}

/// Two bytes a number.
constexpr bool IsNarrow(DType dtype) {
  return dtype == DType::kBFloat16 || dtype == DType::kFloat16;
}

/// The type of arithmetic on such numbers.
constexpr DType WideOf(DType dtype) { return IsNarrow(dtype) ? DType::kFloat32 : dtype; }

/// "float32", "float64", "bfloat16", "int64", "int8", "float16".
std::string_view Name(DType dtype);

/// A bfloat16 number: the upper half of a float32. Storage only; arithmetic is done wider.
struct BFloat16 {
  std::uint16_t bits = 0;
};

/// A float16 number (IEEE 754 binary16). Storage only; arithmetic is done wider.
struct Float16 {
  std::uint16_t bits = 0;
};

/// Widening is exact.
float ToFloat(BFloat16 x);
float ToFloat(Float16 x);

/// Rounds to nearest, ties to even; a NaN stays a NaN.
BFloat16 ToBFloat16(double x);
Float16 ToFloat16(double x);

template <class T>
constexpr DType DTypeOf();
template <>
constexpr DType DTypeOf<float>() {
  return DType::kFloat32;
}
template <>
constexpr DType DTypeOf<double>() {
  return DType::kFloat64;
}
template <>
constexpr DType DTypeOf<BFloat16>() {
  return DType::kBFloat16;
}
template <>
constexpr DType DTypeOf<Float16>() {
  return DType::kFloat16;
}
template <>
constexpr DType DTypeOf<std::int64_t>() {
  return DType::kInt64;
}
template <>
constexpr DType DTypeOf<std::int8_t>() {
  return DType::kInt8;
}

}  // namespace ttr
