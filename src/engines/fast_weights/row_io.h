/// Rows of any dtype to and from rows of T, outside of the kernels.
#pragma once

#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

/// from(i) for a pointer of the rows' own type at token t.
template <class Function>
void WithRow(const Rows& rows, std::int64_t t, Function&& function) {
  const std::int64_t offset = t * rows.stride;
  switch (rows.dtype) {
    case DType::kFloat32: function(static_cast<float*>(rows.data) + offset); return;
    case DType::kFloat64: function(static_cast<double*>(rows.data) + offset); return;
    default: function(static_cast<BFloat16*>(rows.data) + offset); return;
  }
}

template <class T, class From>
T ReadNumber(From x) {
  if constexpr (std::is_same_v<From, BFloat16>) {
    return static_cast<T>(ToFloat(x));
  } else {
    return static_cast<T>(x);
  }
}

template <class To, class T>
To WriteNumber(T x) {
  if constexpr (std::is_same_v<To, BFloat16>) {
    return ToBFloat16(x);
  } else {
    return static_cast<To>(x);
  }
}

template <class T>
void ReadRow(const Rows& rows, std::int64_t t, std::int64_t count, T* to) {
  WithRow(rows, t, [&](const auto* from) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = ReadNumber<T>(from[i]);
  });
}

/// Reads a row of `count` numbers and pads it with zeros up to `stride`.
template <class T>
void ReadPadded(const Rows& rows, std::int64_t t, std::int64_t count, std::int64_t stride, T* to) {
  ReadRow(rows, t, count, to);
  for (std::int64_t i = count; i < stride; ++i) to[i] = 0;
}

/// Writes a row, or adds it to what is there; nothing where there are no rows.
template <class T>
void WriteRow(const T* from, std::int64_t count, const Rows& rows, std::int64_t t, bool add) {
  if (!rows) return;
  WithRow(rows, t, [&](auto* to) {
    using To = std::remove_pointer_t<decltype(to)>;
    for (std::int64_t i = 0; i < count; ++i) {
      to[i] = WriteNumber<To>(add ? from[i] + ReadNumber<T>(to[i]) : from[i]);
    }
  });
}

template <class T>
T ReadOne(const Rows& rows, std::int64_t t) {
  T x;
  ReadRow(rows, t, 1, &x);
  return x;
}

template <class T>
void WriteOne(T x, const Rows& rows, std::int64_t t) {
  WriteRow(&x, 1, rows, t, false);
}

}  // namespace ttr::fast_weights
