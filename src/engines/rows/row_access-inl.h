// Rows in place when they are of the arithmetic's type, else by way of a scratch. Compiled
// once for every target.

#if defined(TTR_ROWS_ROW_ACCESS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_ROW_ACCESS_INL_H_
#undef TTR_ROWS_ROW_ACCESS_INL_H_
#else
#define TTR_ROWS_ROW_ACCESS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/simd/rows-inl.h"
#include "src/simd/rows.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

/// Row t for reading: `count` numbers.
template <class T>
const T* Read(const simd::Rows& rows, std::int64_t t, std::int64_t count, T* scratch) {
  if (rows.dtype == DTypeOf<T>()) return static_cast<const T*>(rows.data) + t * rows.stride;
  simd::HWY_NAMESPACE::LoadRow(rows, t, 0, count, scratch);
  return scratch;
}

/// Where row t is computed; Finish() takes it from there to its place.
template <class T>
T* Destination(const simd::Rows& rows, std::int64_t t, T* scratch) {
  if (rows.dtype == DTypeOf<T>()) return static_cast<T*>(rows.data) + t * rows.stride;
  return scratch;
}

template <class T>
void Finish(const T* computed, std::int64_t t, std::int64_t count, const simd::Rows& rows) {
  if (rows.dtype != DTypeOf<T>()) simd::HWY_NAMESPACE::StoreRow(computed, t, 0, count, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_ROW_ACCESS_INL_H_
