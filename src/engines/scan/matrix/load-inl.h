// Inputs of a matrix memory into a worker's scratch. Compiled once for every target.

#if defined(TTR_SCAN_MATRIX_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_MATRIX_LOAD_INL_H_
#undef TTR_SCAN_MATRIX_LOAD_INL_H_
#else
#define TTR_SCAN_MATRIX_LOAD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/scan/matrix/task.h"
#include "src/simd/decay-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// The rates of columns first .. end, a vector of columns at a time, transposed. Columns beyond the
/// memory's last get zeros.
template <class T>
void LoadRates(const Matrix& memory, std::int64_t first, std::int64_t end,
               const MatrixScratch<T>& scratch) {
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const T* rows[kLanes];
  for (std::int64_t c = first; c < end; c += kLanes) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      const std::int64_t column = c + static_cast<std::int64_t>(i);
      if (column < memory.columns && memory.a.dtype == DTypeOf<T>()) {
        rows[i] = static_cast<const T*>(memory.a.data) + column * memory.a.stride;
        continue;
      }
      T* copy = scratch.a_rows + i * memory.key_dim;
      std::fill(copy, copy + memory.key_dim, T(0));
      if (column < memory.columns) sn::LoadRow(memory.a, column, 0, memory.key_dim, copy);
      rows[i] = copy;
    }
    sn::Transpose<kLanes>(rows, memory.key_dim, scratch.rates + c * memory.key_dim);
  }
}

/// Row t of keys or queries in T, of unit length where the options say so.
template <class T>
void LoadKey(const Options& options, const Rows& rows, std::int64_t t, std::int64_t count, T* to) {
  sn::LoadRow(rows, t, 0, count, to);
  if (options.normalise_qk) sn::Multiply(to, count, static_cast<T>(sn::UnitFactor(to, count)));
}

/// Loads keys and queries of tokens begin .. begin + tokens, and the weights of their values.
template <class T>
void LoadTokens(const Options& options, const Matrix& memory, std::int64_t begin,
                std::int64_t tokens, const MatrixScratch<T>& scratch) {
  const std::int64_t dim = memory.key_dim;
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (memory.k) {
      LoadKey(options, memory.k, begin + t, dim, scratch.k + t * dim);
      scratch.weights[t] = memory.importance ? sn::LoadOne<T>(memory.importance, begin + t) : T(1);
    }
    for (std::int64_t query = 0; memory.q && query < memory.queries; ++query) {
      LoadKey(options, memory.q.Of(query), begin + t, dim,
              scratch.q + (query * kBlockTokens + t) * dim);
    }
  }
}

/// Fetches a row towards the second-level cache: hardware does not foresee rows of a strip, which
/// are far apart.
inline void Fetch(const Rows& rows, std::int64_t t, std::int64_t first) {
  const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
  const char* data = static_cast<const char*>(rows.data) + (t * rows.stride + first) * size;
  for (std::int64_t byte = 0; byte < kStripBytes; byte += 64) {
    __builtin_prefetch(data + byte, 0, 2);
  }
}

/// Values, and time steps in the unit of RateDecay, of columns first .. first + count. Those that
/// come next are fetched.
template <class T>
void LoadStrip(const Matrix& memory, std::int64_t begin, std::int64_t tokens, std::int64_t first,
               std::int64_t count, const MatrixScratch<T>& scratch) {
  constexpr std::int64_t kStrip = MatrixScratch<T>::kStrip;
  const bool last = first + kStrip >= memory.columns;
  const std::int64_t next = last ? 0 : first + kStrip;
  const std::int64_t next_begin = last ? begin + tokens : begin;
  for (std::int64_t t = 0; t < tokens; ++t) {
    T* v = scratch.v + t * MatrixScratch<T>::kRow;
    T* dt = scratch.dt + t * MatrixScratch<T>::kRow;
    if (next_begin + t < memory.tokens) {
      Fetch(memory.v, next_begin + t, next);
      Fetch(memory.dt, next_begin + t, next);
    }
    sn::LoadRow(memory.v, begin + t, first, count, v);
    if (memory.importance) sn::Multiply(v, count, scratch.weights[t]);
    sn::LoadRow(memory.dt, begin + t, first, count, dt);
    sn::Multiply(dt, count, static_cast<T>(sn::kRateUnit<T>));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_MATRIX_LOAD_INL_H_
