// A matrix memory that decays per entry. Lanes run over value columns; a group of key rows of one
// vector of columns stays in registers for a block of tokens. Compiled once for every target.

#if defined(TTR_SCAN_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_MATRIX_INL_H_
#undef TTR_SCAN_MATRIX_INL_H_
#else
#define TTR_SCAN_MATRIX_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/scan/layout.h"
#include "src/engines/scan/norm-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/decay-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/transpose-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A block of tokens on one vector of columns. Rows of values, time steps and answers are a strip
/// apart; those of keys and queries key_dim.
template <class T>
struct Block {
  std::int64_t tokens, key_dim, queries;
  const T *k, *q;   // q: [query][kBlockTokens][key_dim]
  const T *v, *dt;  // [token]
  T* y;             // [query][kBlockTokens][y_stride]
  std::int64_t stride, y_stride;
  const T* rates;  // [key_dim][lanes]
  const T* a;      // the rates as they are given, a_stride from column to column; or null
  std::int64_t a_stride;
  T* state;  // [key_dim], state_stride apart
  std::int64_t state_stride;
  const T* next_a;  // of the memory that comes next; or null
  const T* next_state;
  bool fetches;  // rows ahead?
  T scale;

  /// The same on the vector of columns that comes next.
  HWY_INLINE Block Next() const {
    constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
    Block next = *this;
    next.v += kLanes;
    next.dt += kLanes;
    next.y += kLanes;
    next.rates += key_dim * kLanes;
    if (a != nullptr) next.a += kLanes * a_stride;
    next.state += kLanes;
    return next;
  }
};

/// y (+)= scale q M of one token and ROWS key rows from `row` on.
template <int ROWS, class D, class T = hn::TFromD<D>>
HWY_INLINE void AnswerRows(D d, const Block<T>& block, std::int64_t t, std::int64_t row,
                           const hn::Vec<D> (&m)[ROWS]) {
  for (std::int64_t query = 0; query < block.queries; ++query) {
    const std::int64_t at = query * kBlockTokens + t;
    const T* HWY_RESTRICT q = block.q + at * block.key_dim + row;
    T* HWY_RESTRICT y = block.y + at * block.y_stride;
    // Two sums, so that the additions wait less for each other.
    auto even = hn::Mul(hn::Set(d, q[0]), m[0]);
    auto odd = hn::Zero(d);
    if constexpr (ROWS > 1) odd = hn::Mul(hn::Set(d, q[1]), m[1]);
    TTR_UNROLL
    for (int r = 2; r < ROWS; ++r) {
      auto& sum = r % 2 == 0 ? even : odd;
      sum = hn::MulAdd(hn::Set(d, q[r]), m[r], sum);
    }
    const auto scale = hn::Set(d, block.scale);
    const auto part = hn::Mul(scale, hn::Add(even, odd));
    hn::StoreU(row == 0 ? part : hn::Add(hn::LoadU(d, y), part), d, y);
  }
}

/// to[r][lane] = the rate of key row `row` + r in column `lane`.
template <int ROWS, class T>
HWY_INLINE void TurnRates(const Block<T>& block, std::int64_t row, T* to) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  if constexpr (ROWS * sizeof(T) % 16 == 0) {
    sn::TransposeStrided(block.a + row, block.a_stride, kLanes, ROWS, to, kLanes);
  } else {
    for (int r = 0; r < ROWS; ++r) {
      for (std::int64_t i = 0; i < kLanes; ++i) {
        to[r * kLanes + i] = block.a[i * block.a_stride + row + r];
      }
    }
  }
}

template <int ROWS, bool WRITES, bool BEFORE, class T>
HWY_INLINE void ScanRows(const Block<T>& block, std::int64_t row) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const T* rates = block.rates + row * kLanes;
  alignas(kAlignment) T turned[ROWS * kLanes];
  if (WRITES && block.a != nullptr) {
    TurnRates<ROWS>(block, row, turned);
    rates = turned;
  }
  T* HWY_RESTRICT state = block.state + row * block.state_stride;
  hn::Vec<decltype(d)> m[ROWS];
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) m[r] = hn::LoadU(d, state + r * block.state_stride);
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    if constexpr (!WRITES || BEFORE) AnswerRows<ROWS>(d, block, t, row, m);
    if constexpr (!WRITES) continue;
    const T* HWY_RESTRICT k = block.k + t * block.key_dim + row;
    const auto dt = hn::LoadU(d, block.dt + t * block.stride);
    const auto v = hn::LoadU(d, block.v + t * block.stride);
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const auto decay = sn::RateDecay(d, dt, hn::Load(d, rates + r * kLanes));
      m[r] = hn::MulAdd(hn::Set(d, k[r]), v, sn::Fade(decay, m[r]));
    }
    if constexpr (!BEFORE) AnswerRows<ROWS>(d, block, t, row, m);
  }
  if constexpr (WRITES) {
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) hn::StoreU(m[r], d, state + r * block.state_stride);
  }
}

/// `rows` key rows of a vector of columns from `column` on, from `row` on, of this memory or of the
/// next, towards the second-level cache.
template <class T>
HWY_INLINE void FetchRows(const Block<T>& block, std::int64_t column, std::int64_t row,
                          std::int64_t rows) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const bool own = row < block.key_dim;
  if (!own && block.next_state == nullptr) return;
  const T* const a = (own ? block.a + row : block.next_a) + column * block.a_stride;
  const T* const state = (own ? block.state + row * block.state_stride : block.next_state) + column;
  for (std::int64_t i = 0; i < kLanes; ++i) __builtin_prefetch(a + i * block.a_stride, 0, 2);
  for (std::int64_t r = 0; r < rows; ++r) __builtin_prefetch(state + r * block.state_stride, 0, 2);
}

/// `vectors` of columns side by side, some rows of all of them before the next: their lines adjoin.
template <bool WRITES, bool BEFORE, class T>
void ScanBlock(const Block<T>& block, std::int64_t vectors) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::int64_t kLine = kAlignment / sizeof(T);
  std::int64_t row = 0;
  auto scan = [&](auto rows) HWY_ATTR {
    // Rates as they are given are taken by whole lines.
    constexpr std::int64_t kTimes = std::max<std::int64_t>(1, rows() == 8 ? kLine / 8 : 1);
    const std::int64_t times = row + kTimes * rows() <= block.key_dim ? kTimes : 1;
    Block<T> at = block;
    for (std::int64_t v = 0; v < vectors; ++v, at = at.Next()) {
      if (block.a != nullptr && block.fetches) {
        FetchRows(block, v * kLanes, row + times * rows(), times * rows());
      }
      for (std::int64_t i = 0; i < times; ++i) {
        ScanRows<rows(), WRITES, BEFORE>(at, row + i * rows());
      }
    }
    row += times * rows();
  };
  while (row + 8 <= block.key_dim) scan(std::integral_constant<int, 8>());
  while (row + 4 <= block.key_dim) scan(std::integral_constant<int, 4>());
  while (row < block.key_dim) scan(std::integral_constant<int, 1>());
}

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

/// Keys and queries of tokens begin .. begin + tokens, and the weights of their values.
template <class T>
void LoadTokens(const Options& options, const Matrix& memory, std::int64_t begin,
                std::int64_t tokens, const MatrixScratch<T>& scratch) {
  for (std::int64_t t = 0; t < tokens; ++t) {
    if (memory.k) {
      LoadKey(options, memory.k, begin + t, memory.key_dim, scratch.k + t * memory.key_dim);
      scratch.weights[t] = memory.importance ? sn::LoadOne<T>(memory.importance, begin + t) : T(1);
    }
    for (std::int64_t query = 0; memory.q && query < memory.queries; ++query) {
      Rows rows = memory.q;
      rows.data = static_cast<std::byte*>(rows.data) +
                  query * memory.q_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
      LoadKey(options, rows, begin + t, memory.key_dim,
              scratch.q + (query * kBlockTokens + t) * memory.key_dim);
    }
  }
}

/// Towards the second-level cache: rows of a strip lie far apart, so hardware does not foresee
/// them.
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

template <class T>
void StoreAnswers(const Options& options, const Matrix& memory, std::int64_t begin,
                  std::int64_t tokens, std::int64_t first, std::int64_t count, T* y,
                  std::int64_t stride) {
  for (std::int64_t query = 0; query < memory.queries; ++query) {
    Rows rows = memory.y;
    rows.data = static_cast<std::byte*>(rows.data) +
                query * memory.y_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
    for (std::int64_t t = 0; t < tokens; ++t) {
      T* row = y + (query * kBlockTokens + t) * stride;
      NormaliseOutput(options, row, count);
      sn::StoreRow(row, begin + t, first, count, rows);
    }
  }
}

template <class T>
void ScanColumns(const Options& options, const Matrix& memory, const Block<T>& block,
                 std::int64_t vectors) {
  if (!memory.k) {
    ScanBlock<false, false>(block, vectors);
  } else if (options.read_before) {
    ScanBlock<true, true>(block, vectors);
  } else {
    ScanBlock<true, false>(block, vectors);
  }
}

/// A block of tokens on all columns.
template <class T>
void RunBlock(const Options& options, const Matrix& memory, const Matrix& next, std::int64_t begin,
              std::int64_t tokens, const MatrixScratch<T>& scratch) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr std::int64_t kStrip = MatrixScratch<T>::kStrip;
  const bool norm = options.output_norm != OutputNorm::kNone;
  T* state = static_cast<T*>(memory.state);
  LoadTokens(options, memory, begin, tokens, scratch);
  Block<T> block{};
  block.tokens = tokens;
  block.key_dim = memory.key_dim;
  block.queries = memory.q ? memory.queries : 0;
  block.k = scratch.k;
  block.q = scratch.q;
  block.stride = MatrixScratch<T>::kRow;
  block.y_stride = MatrixScratch<T>::YRow(norm, memory.columns);
  block.scale = static_cast<T>(options.scale);
  block.fetches = RatesLieApart(memory.key_dim, sizeof(T));
  for (std::int64_t first = 0; first < memory.columns; first += kStrip) {
    const std::int64_t count = std::min(kStrip, memory.columns - first);
    // A single token takes the rates as they are given, if it can.
    const bool given = memory.tokens == 1 && memory.a.dtype == DTypeOf<T>();
    if (memory.k) {
      const std::int64_t turned = given ? first + count / kLanes * kLanes : first;
      if (begin == 0) LoadRates(memory, turned, first + count, scratch);
      LoadStrip(memory, begin, tokens, first, count, scratch);
    }
    // Many tokens take a vector of columns each time, which stays in the first-level cache with
    // them; of a single one all is wanted once.
    const std::int64_t most = tokens == 1 ? std::max<std::int64_t>(count / kLanes, 1) : 1;
    for (std::int64_t c = 0, vectors; c < count; c += vectors * kLanes) {
      vectors = c == 0 ? most : 1;
      const std::int64_t filled = std::min(kLanes, count - c);
      const std::int64_t column = first + c;
      block.v = scratch.v + c;
      block.dt = scratch.dt + c;
      block.y = scratch.y + (norm ? column : c);
      block.rates = scratch.rates + column * memory.key_dim;
      const bool whole = filled == kLanes;
      block.a = nullptr;
      block.next_a = block.next_state = nullptr;
      if (given && whole) {
        block.a = static_cast<const T*>(memory.a.data) + column * memory.a.stride;
        if (next.tokens == 1) {
          block.next_a = static_cast<const T*>(next.a.data) + column * memory.a.stride;
          block.next_state = static_cast<const T*>(next.state) + column;
        }
      }
      block.a_stride = memory.a.stride;
      block.state = whole ? state + column : scratch.state;
      block.state_stride = whole ? memory.state_stride : kLanes;
      for (std::int64_t row = 0; !whole && row < memory.key_dim; ++row) {
        const T* from = state + row * memory.state_stride + column;
        std::copy(from, from + filled, scratch.state + row * kLanes);
      }
      ScanColumns(options, memory, block, vectors);
      for (std::int64_t row = 0; !whole && memory.k && row < memory.key_dim; ++row) {
        const T* from = scratch.state + row * kLanes;
        std::copy(from, from + filled, state + row * memory.state_stride + column);
      }
    }
    if (memory.q && !norm) {
      StoreAnswers(options, memory, begin, tokens, first, count, scratch.y, block.y_stride);
    }
  }
  if (memory.q && norm) {
    StoreAnswers(options, memory, begin, tokens, 0, memory.columns, scratch.y, block.y_stride);
  }
}

/// Leaves the state before token t where it is kept, if it is.
template <class T>
void Keep(const Matrix& memory, std::int64_t t) {
  if (memory.saved == nullptr || t == 0) return;
  const T* state = static_cast<const T*>(memory.state);
  T* saved = static_cast<T*>(memory.saved) + (t / kCheckpoint - 1) * memory.saved_stride;
  for (std::int64_t row = 0; row < memory.key_dim; ++row) {
    std::copy(state, state + memory.columns, saved);
    state += memory.state_stride;
    saved += memory.saved_row_stride;
  }
}

template <class T>
void RunMatrix(const Options& options, const Matrix& memory, const Matrix& next,
               const MatrixScratch<T>& scratch) {
  static_assert(kBlockTokens == kCheckpoint);
  for (std::int64_t begin = 0; begin < memory.tokens; begin += kBlockTokens) {
    Keep<T>(memory, begin);
    RunBlock(options, memory, next, begin, std::min(kBlockTokens, memory.tokens - begin), scratch);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_MATRIX_INL_H_
