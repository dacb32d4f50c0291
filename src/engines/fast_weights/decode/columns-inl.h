// One row on the columns of a memory in place: two reads of every element and one write, or one of
// either where nothing is erased, or where a row does the write of the row before and defers its
// own. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_DECODE_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_DECODE_COLUMNS_INL_H_
#undef TTR_FAST_WEIGHTS_DECODE_COLUMNS_INL_H_
#else
#define TTR_FAST_WEIGHTS_DECODE_COLUMNS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/decode/deferred_write.h"
#include "src/engines/fast_weights/layout.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// How the queries of a row read the memory.
template <class T>
struct RowReads {
  std::int64_t queries;
  bool ask;        // read the memory; false: the outputs hold what was read of it
  bool add_own;    // add what the row itself writes
  const T* query;  // [query] rows, query_stride apart
  std::int64_t query_stride;
  const T* read;  // [query], kChunk apart
  const T* score;
  const T* score_value;
  T* outputs;  // [query] rows, output_stride apart
  std::int64_t output_stride;

  bool asks() const { return ask && queries > 0; }
};

/// The second matrix N of a paired memory (M, N), the planes of a complex one or a memory and its
/// momentum:
///     output_q += read_q query_q N,
///     M += rotation_0 (.) N,   N = rotation_2 (.) N + (both ? write^T u : rotation_1 (.) M)
template <class T>
struct SecondMatrix {
  T* state;  // null: the memory is not paired
  std::int64_t stride;
  const T* rotation[3];
  bool both;
  const T* query;  // as RowReads::query; null: N is not read
  const T* next;   // as RowStep::next
};

/// One row as the memory meets it:
///     u = step (v - erased erase M),   output_q = read_q query_q M + score_q u + score_value_q v,
///     M = decay (.) M + write^T u + value_key^T v
template <class T>
struct RowStep {
  std::int64_t key_dim;
  const T* decay;
  const T* erase;      // null: nothing is erased
  const T* write;      // null: nothing is written
  const T* value_key;  // null: v is part of u
  T erased;
  T step;
  const T* value;
  RowReads<T> reads;
  SecondMatrix<T> second;
  const T* next;  // the state that comes after this one, with the same rows; or null
  const DeferredWrite<T>* deferred;  // does the write found there, and leaves its own; or null
  T deferred_scale;                  // of the values that are left

  /// Is there a deferred write to be done in the pass that reads?
  bool writes_first() const { return deferred != nullptr && deferred->keys() > 0; }
  /// Does one pass read and write? Where nothing is erased, what is written does not wait for what
  /// is read.
  bool once() const {
    return deferred == nullptr && write != nullptr && erase == nullptr &&
           (second.state == nullptr || second.query != nullptr);
  }
};

/// The columns that come after these, in the same memory or the next one: their first rows are
/// fetched while the last of these are written, so that memory is never idle. Hardware prefetches
/// further rows, and sooner if nothing else is requested; where a single pass reads and writes, it
/// does all of them.
template <int NV, class T, class Stored = T>
class Following {
 public:
  Following(const Stored* rows, std::int64_t stride, std::int64_t count)
      : rows_(rows),
        stride_(stride),
        begin_(rows == nullptr ? count : std::max(count - kRows, {})) {}

  /// While row `row` is written.
  HWY_INLINE void Fetch(std::int64_t row) const {
    if (row >= begin_) simd::FetchRow(rows_ + (row - begin_) * stride_, kWidth);
  }

 private:
  static constexpr std::int64_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  static constexpr std::int64_t kBytes = (sizeof(Stored) < 4 ? 32 : 16) << 10;
  static constexpr std::int64_t kRows = kBytes / (kWidth * sizeof(Stored));

  const Stored* rows_;
  std::int64_t stride_, begin_;
};

/// Columns of a memory from `column` on, where `state` and `second` begin.
template <int NV, class T>
struct ColumnGroup {
  std::int64_t column;
  T* state;
  std::int64_t stride;
  T* second;
  std::int64_t second_stride;
  Following<NV, T> following, following_second;
};

/// NV vectors of columns: what is read, and what is written.
template <int NV, class D>
struct ColumnVectors {
  hn::Vec<D> erased[NV], output[NV];
  hn::Vec<D> u[NV], v[NV];
};

template <int NV, class D>
HWY_INLINE void SetZero(D d, hn::Vec<D> (&x)[NV]) {
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) x[n] = hn::Zero(d);
}

/// What one pass over the rows of a matrix M does, in this order.
struct Pass {
  bool deferred = false;  // M += write u, of the deferred write
  bool erase = false;     // erased += erase M
  bool query = false;     // output += query M
  bool write = false;     // M = decay (.) M + write u
  bool separate = false;  // what is written has a separate value key: + value_key v
  bool fetches = false;   // the columns that follow are fetched
};

/// A number for each row of the matrix; null where the pass does not need it.
template <class T>
struct RowFactors {
  const T *erase = nullptr, *query = nullptr;
  const T *decay = nullptr, *write = nullptr, *value_key = nullptr;
};

// What is stored is a sum of products, not a fused one: several cores have adders beside their
// multipliers, and a Zen 4, which is short of multipliers here, takes a quarter less time.

/// One pass over M, which begins at `state`.
template <Pass PASS, int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void PassOver(D d, const ColumnGroup<NV, T>& group, std::int64_t rows, RowFactors<T> by,
                         T* HWY_RESTRICT state, std::int64_t stride, ColumnVectors<NV, D>& x) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  constexpr bool kWrites = PASS.write || PASS.deferred;
  // Copies that nothing refers to, which stay in registers.
  hn::Vec<D> erased[NV], output[NV], u[NV], v[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    if constexpr (PASS.erase) erased[n] = x.erased[n];
    if constexpr (PASS.query) output[n] = x.output[n];
    if constexpr (kWrites) u[n] = x.u[n];
    if constexpr (PASS.separate) v[n] = x.v[n];
  }
  const Following<NV, T> following = group.following;
  for (std::int64_t row = 0; row < rows; ++row, state += stride) {
    if constexpr (PASS.fetches) following.Fetch(row);
    const auto erase = hn::Set(d, PASS.erase ? by.erase[row] : T(0));
    const auto query = hn::Set(d, PASS.query ? by.query[row] : T(0));
    const auto decay = hn::Set(d, PASS.write ? by.decay[row] : T(0));
    const auto key = hn::Set(d, kWrites ? by.write[row] : T(0));
    const auto value_key = hn::Set(d, PASS.separate ? by.value_key[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      auto m = hn::LoadU(d, state + n * kLanes);
      if constexpr (PASS.deferred) m = hn::Add(hn::Mul(key, u[n]), m);
      if constexpr (PASS.deferred && PASS.separate) m = hn::Add(hn::Mul(value_key, v[n]), m);
      if constexpr (PASS.deferred) hn::StoreU(m, d, state + n * kLanes);
      if constexpr (PASS.erase) erased[n] = hn::MulAdd(erase, m, erased[n]);
      if constexpr (PASS.query) output[n] = hn::MulAdd(query, m, output[n]);
      if constexpr (PASS.write) {
        m = hn::Add(hn::Mul(key, u[n]), hn::Mul(decay, m));
        if constexpr (PASS.separate) m = hn::Add(hn::Mul(value_key, v[n]), m);
        hn::StoreU(m, d, state + n * kLanes);
      }
    }
  }
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    if constexpr (PASS.erase) x.erased[n] = erased[n];
    if constexpr (PASS.query) x.output[n] = output[n];
  }
}

/// M and N of a paired memory are written; READ: output += query M + query_second N, in the same
/// pass.
template <bool READ, int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void WritePair(D d, const RowStep<T>& s, const ColumnGroup<NV, T>& c,
                          ColumnVectors<NV, D>& columns) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  // Copies that nothing refers to, which stay in registers.
  const SecondMatrix<T> pair = s.second;
  const T *const decays = s.decay, *const writes = s.write, *const queries = s.reads.query;
  const std::int64_t rows = s.key_dim, stride = c.stride, second_stride = c.second_stride;
  const Following<NV, T> following = c.following, following_second = c.following_second;
  hn::Vec<D> u[NV], output[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) u[n] = columns.u[n];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) output[n] = columns.output[n];
  T* HWY_RESTRICT state = c.state;
  T* HWY_RESTRICT second = c.second;
  for (std::int64_t row = 0; row < rows; ++row, state += stride, second += second_stride) {
    following.Fetch(row);
    following_second.Fetch(row);
    const auto decay = hn::Set(d, decays[row]);
    const auto to_first = hn::Set(d, pair.rotation[0][row]);
    const auto to_second = hn::Set(d, pair.rotation[1][row]);
    const auto decay_second = hn::Set(d, pair.rotation[2][row]);
    const auto key = hn::Set(d, writes[row]);
    const auto q = hn::Set(d, READ ? queries[row] : T(0));
    const auto q_second = hn::Set(d, READ ? pair.query[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto x = hn::LoadU(d, state + n * kLanes);
      const auto y = hn::LoadU(d, second + n * kLanes);
      if constexpr (READ) {
        output[n] = hn::MulAdd(q_second, y, hn::MulAdd(q, x, output[n]));
      }
      const auto written = hn::Mul(key, u[n]);
      const auto passed_on = pair.both ? written : hn::Mul(to_second, x);
      hn::StoreU(hn::MulAdd(decay, x, hn::MulAdd(to_first, y, written)), d, state + n * kLanes);
      hn::StoreU(hn::MulAdd(decay_second, y, passed_on), d, second + n * kLanes);
    }
  }
  TTR_UNROLL
  for (int n = 0; READ && n < NV; ++n) columns.output[n] = output[n];
}

/// outputs_q = read_q output.
template <int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void StoreOutput(D d, const RowReads<T>& reads, std::int64_t q, std::int64_t column,
                            const hn::Vec<D> (&output)[NV]) {
  T* const to = reads.outputs + column + q * reads.output_stride;
  const auto read = hn::Set(d, reads.read[q * kChunk]);
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    hn::StoreU(hn::Mul(read, output[n]), d, to + n * hn::MaxLanes(d));
  }
}

/// What the row reads before it writes: erased = erase M, and the outputs of all queries, but the
/// first where the pass that writes finds it.
template <int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void ReadStep(D d, const RowStep<T>& s, const ColumnGroup<NV, T>& c,
                         ColumnVectors<NV, D>& x) {
  const RowReads<T>& reads = s.reads;
  const bool asks = reads.asks(), deferred = s.writes_first();
  // One pass of query q, and of what is erased; over both matrices of a paired memory.
  auto pass = [&]<Pass PASS>(std::int64_t q) HWY_ATTR {
    const std::int64_t at = q * reads.query_stride;
    SetZero(d, x.output);
    RowFactors<T> by{.erase = s.erase, .query = reads.query + at};
    if constexpr (PASS.deferred) by.write = s.deferred->write[0];
    if constexpr (PASS.separate) by.value_key = s.deferred->write[1];
    PassOver<PASS>(d, c, s.key_dim, by, c.state, c.stride, x);
    if constexpr (!PASS.query) return;
    if (s.second.query != nullptr) {
      by.query = s.second.query + at;
      PassOver<Pass{.query = true}>(d, c, s.key_dim, by, c.second, c.second_stride, x);
    }
    StoreOutput(d, reads, q, c.column, x.output);
  };
  SetZero(d, x.erased);
  if (deferred) {
    const bool separate = s.value_key != nullptr;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const std::int64_t at = c.column + n * hn::MaxLanes(d);
      x.u[n] = hn::LoadU(d, s.deferred->value[0] + at);
      x.v[n] = separate ? hn::LoadU(d, s.deferred->value[1] + at) : hn::Zero(d);
    }
    constexpr Pass kRead{.deferred = true, .erase = true, .query = true};
    constexpr Pass kErase{.deferred = true, .erase = true};
    constexpr Pass kReadBoth{.deferred = true, .erase = true, .query = true, .separate = true};
    constexpr Pass kEraseBoth{.deferred = true, .erase = true, .separate = true};
    if (separate) {
      asks ? pass.template operator()<kReadBoth>(0) : pass.template operator()<kEraseBoth>(0);
    } else {
      asks ? pass.template operator()<kRead>(0) : pass.template operator()<kErase>(0);
    }
  }
  for (std::int64_t q = 1; asks && q < reads.queries; ++q) {
    pass.template operator()<Pass{.query = true}>(q);
  }
  if (deferred) return;
  const bool asks_now = asks && !s.once();
  if (s.erase != nullptr) {
    asks_now ? pass.template operator()<Pass{.erase = true, .query = true}>(0)
             : pass.template operator()<Pass{.erase = true}>(0);
  } else if (asks_now) {
    pass.template operator()<Pass{.query = true}>(0);
  }
}

/// The row's write of u, and of v with a separate key: now, or deferred.
template <int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void WriteStep(D d, const RowStep<T>& s, const ColumnGroup<NV, T>& c,
                          ColumnVectors<NV, D>& x) {
  const bool separate = s.value_key != nullptr;
  if (s.deferred != nullptr) {
    const auto scale = hn::Set(d, s.deferred_scale);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const std::int64_t at = c.column + n * hn::MaxLanes(d);
      hn::StoreU(hn::Mul(scale, x.u[n]), d, s.deferred->value[0] + at);
      if (separate) hn::StoreU(hn::Mul(scale, x.v[n]), d, s.deferred->value[1] + at);
    }
    return;
  }
  const bool paired = s.second.state != nullptr, once = s.once(), asks = once && s.reads.asks();
  auto pass = [&]<Pass PASS>() HWY_ATTR {
    const RowFactors<T> by{nullptr, s.reads.query, s.decay, s.write, s.value_key};
    PassOver<PASS>(d, c, s.key_dim, by, c.state, c.stride, x);
  };
  SetZero(d, x.output);
  if (paired) {
    asks ? WritePair<true>(d, s, c, x) : WritePair<false>(d, s, c, x);
  } else if (once) {
    asks ? pass.template operator()<Pass{.query = true, .write = true}>()
         : pass.template operator()<Pass{.write = true}>();
  } else {
    constexpr Pass kBoth{.write = true, .separate = true, .fetches = true};
    separate ? pass.template operator()<kBoth>()
             : pass.template operator()<Pass{.write = true, .fetches = true}>();
  }
  if (asks) StoreOutput(d, s.reads, 0, c.column, x.output);
}

/// One row on NV vectors of columns.
template <int NV, class T>
void StepColumns(const RowStep<T>& s, const ColumnGroup<NV, T>& c) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const RowReads<T>& reads = s.reads;
  const bool separate = s.value_key != nullptr;
  ColumnVectors<NV, hn::ScalableTag<T>> x;
  ReadStep(d, s, c, x);
  if (s.write == nullptr) return;
  const auto erased = hn::Set(d, s.erased);
  const auto step = hn::Set(d, s.step);
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    x.v[n] = hn::LoadU(d, s.value + c.column + n * kLanes);
    const auto given = separate ? hn::Zero(d) : x.v[n];
    x.u[n] = hn::Mul(step, s.erase != nullptr ? hn::NegMulAdd(erased, x.erased[n], given) : given);
  }
  WriteStep(d, s, c, x);
  for (std::int64_t q = 0; reads.add_own && q < reads.queries; ++q) {
    T* const to = reads.outputs + c.column + q * reads.output_stride;
    const auto score = hn::Set(d, reads.score[q * kChunk * kChunk]);
    const auto score_value = hn::Set(d, separate ? reads.score_value[q * kChunk * kChunk] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      auto y = hn::MulAdd(score, x.u[n], hn::LoadU(d, to + n * kLanes));
      if (separate) y = hn::MulAdd(score_value, x.v[n], y);
      hn::StoreU(y, d, to + n * kLanes);
    }
  }
}

/// As many groups of NV vectors as fit, then of half as many; `column` is left behind the last.
template <int NV, class T>
void StepGroups(const Memory& memory, const RowStep<T>& s, std::int64_t& column) {
  constexpr std::int64_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  T* state = static_cast<T*>(memory.entries.state.data);
  auto at = [](T* rows, std::int64_t c) { return rows == nullptr ? nullptr : rows + c; };
  for (; column + kWidth <= memory.extent.end_column; column += kWidth) {
    const std::int64_t end = column + kWidth;
    const bool last = end >= memory.extent.end_column;
    const T* const next = last ? s.next : state + end;
    const T* const next_second = last ? s.second.next : at(s.second.state, end);
    StepColumns<NV, T>(s, {.column = column,
                           .state = state + column,
                           .stride = memory.entries.state.stride,
                           .second = at(s.second.state, column),
                           .second_stride = s.second.stride,
                           .following = {next, memory.entries.state.stride, s.key_dim},
                           .following_second = {next_second, s.second.stride, s.key_dim}});
  }
  if constexpr (NV > 1) StepGroups<NV / 2>(memory, s, column);
}

/// All columns; what does not fill a vector goes through a padded copy.
template <class T>
void StepRow(const Memory& memory, const RowStep<T>& s, T* HWY_RESTRICT padded) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  T* state = static_cast<T*>(memory.entries.state.data);
  std::int64_t column = memory.extent.first_column;
  StepGroups<ln::kTileRows>(memory, s, column);
  const std::int64_t rest = memory.extent.end_column - column;
  if (rest == 0) return;
  auto load = [&](const T* from, std::int64_t stride, T* to) {
    for (std::int64_t row = 0; row < memory.dims.key_dim; ++row, from += stride, to += kLanes) {
      std::fill(std::copy(from, from + rest, to), to + kLanes, T(0));
    }
  };
  auto store = [&](const T* from, T* to, std::int64_t stride) {
    for (std::int64_t row = 0; row < memory.dims.key_dim; ++row, from += kLanes, to += stride) {
      std::copy(from, from + rest, to);
    }
  };
  T* const padded_second = padded + memory.dims.key_dim * kLanes;
  T* const second = s.second.state;
  load(state + column, memory.entries.state.stride, padded);
  if (second != nullptr) load(second + column, s.second.stride, padded_second);
  const Following<1, T> nothing(nullptr, kLanes, s.key_dim);
  StepColumns<1, T>(s, {column, padded, kLanes, padded_second, kLanes, nothing, nothing});
  if (s.write == nullptr) return;
  store(padded, state + column, memory.entries.state.stride);
  if (second != nullptr) store(padded_second, second + column, s.second.stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DECODE_COLUMNS_INL_H_
