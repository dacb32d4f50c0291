// One row on the columns of a memory where it lies: two reads of every element and one write, or
// one of either where nothing is erased, or where a row does the write of the row before and leaves
// its own pending. Compiled once for every target.

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

/// One row as the memory meets it:
///     u = step (v - erased erase M),   answer_q = read_q query_q M + score_q u + score_value_q v,
///     M = decay (.) M + write^T u + value_key^T v
/// A paired memory (M, N), the parts of a complex one or a memory and its momentum, besides:
///     answer_q += read_q query_second_q N,
///     M += turn_0 (.) N,   N = turn_2 (.) N + (both ? write^T u : turn_1 (.) M)
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
  std::int64_t queries;
  bool ask;        // read the memory; false: the answers hold what was read of it
  bool add;        // add what the row itself writes
  const T* query;  // [query] rows, query_stride apart
  std::int64_t query_stride;
  const T* read;  // [query], kChunk apart
  const T* score;
  const T* score_value;
  T* answers;  // [query] rows, answer_stride apart
  std::int64_t answer_stride;
  const T* next;  // the state that comes after this one, with the same rows; or null
  T* second;      // N; null: the memory is not paired
  std::int64_t second_stride;
  const T* turn[3];
  bool both;
  const T* query_second;      // as query; null: N is not read
  const T* next_second;       // as next, of N
  const Pending<T>* pending;  // does the row before's write, and leaves its own there; or null
  T pending_scale;            // of the values that are left
};

/// The columns that come after these, in the same memory or the next one: their first rows are
/// fetched while the last of these are written, so that memory does not rest between them. Further
/// rows hardware fetches by itself, and sooner if nothing else is asked for; where a single pass
/// reads and writes, all of them.
template <int NV, class T>
class Following {
 public:
  Following(const T* rows, std::int64_t stride, std::int64_t count)
      : rows_(rows),
        stride_(stride),
        begin_(rows == nullptr ? count : std::max(count - kRows, {})) {}

  /// While row `row` is written.
  HWY_INLINE void Fetch(std::int64_t row) const {
    if (row >= begin_) simd::FetchRow(rows_ + (row - begin_) * stride_, kWidth);
  }

 private:
  static constexpr std::int64_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  static constexpr std::int64_t kBytes = 16 << 10;
  static constexpr std::int64_t kRows = kBytes / (kWidth * sizeof(T));

  const T* rows_;
  std::int64_t stride_, begin_;
};

/// erased += erase M, answer += query M, of NV vectors of columns.
template <int NV, bool ERASE, bool QUERY, class D, class T = hn::TFromD<D>>
HWY_INLINE void ReadColumns(D d, std::int64_t key_dim, const T* HWY_RESTRICT erase,
                            const T* HWY_RESTRICT query, const T* HWY_RESTRICT state,
                            std::int64_t stride, hn::Vec<D> (&erased)[NV],
                            hn::Vec<D> (&answer)[NV]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  for (std::int64_t row = 0; row < key_dim; ++row, state += stride) {
    const auto r = hn::Set(d, ERASE ? erase[row] : T(0));
    const auto q = hn::Set(d, QUERY ? query[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto m = hn::LoadU(d, state + n * kLanes);
      if constexpr (ERASE) erased[n] = hn::MulAdd(r, m, erased[n]);
      if constexpr (QUERY) answer[n] = hn::MulAdd(q, m, answer[n]);
    }
  }
}

// What is stored is a sum of products, not a fused one: several cores have adders beside their
// multipliers, and a Zen 4, which is short of multipliers here, takes a quarter less time.

/// M = decay (.) M + write u (+ value_key v).
template <int NV, bool APART, class D, class T = hn::TFromD<D>>
HWY_INLINE void WriteColumns(D d, const RowStep<T>& s, const hn::Vec<D> (&u)[NV],
                             const hn::Vec<D> (&v)[NV], T* HWY_RESTRICT state, std::int64_t stride,
                             const Following<NV, T>& following) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  // Copies that nothing refers to, which stay in registers.
  hn::Vec<D> by_write[NV], by_value[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) by_write[n] = u[n];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) by_value[n] = v[n];
  const T* const decays = s.decay;
  const T* const writes = s.write;
  const T* const value_keys = s.value_key;
  const std::int64_t rows = s.key_dim;
  for (std::int64_t row = 0; row < rows; ++row, state += stride) {
    following.Fetch(row);
    const auto decay = hn::Set(d, decays[row]);
    const auto key = hn::Set(d, writes[row]);
    const auto value_key = hn::Set(d, APART ? value_keys[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      auto now =
          hn::Add(hn::Mul(key, by_write[n]), hn::Mul(decay, hn::LoadU(d, state + n * kLanes)));
      if constexpr (APART) now = hn::Add(hn::Mul(value_key, by_value[n]), now);
      hn::StoreU(now, d, state + n * kLanes);
    }
  }
}

/// answer += query M, M = decay (.) M + write u, in one pass: where nothing is erased, what is
/// written does not wait for what is read.
template <int NV, bool QUERY, class D, class T = hn::TFromD<D>>
HWY_INLINE void ReadAndWriteColumns(D d, const RowStep<T>& s, const hn::Vec<D> (&u)[NV],
                                    T* HWY_RESTRICT state, std::int64_t stride,
                                    hn::Vec<D> (&answer)[NV]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  for (std::int64_t row = 0; row < s.key_dim; ++row, state += stride) {
    const auto decay = hn::Set(d, s.decay[row]);
    const auto key = hn::Set(d, s.write[row]);
    const auto q = hn::Set(d, QUERY ? s.query[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto m = hn::LoadU(d, state + n * kLanes);
      if constexpr (QUERY) answer[n] = hn::MulAdd(q, m, answer[n]);
      hn::StoreU(hn::Add(hn::Mul(key, u[n]), hn::Mul(decay, m)), d, state + n * kLanes);
    }
  }
}

/// M += what is pending, erased += erase M, answer += query M, in one pass.
template <int NV, bool APART, bool QUERY, class D, class T = hn::TFromD<D>>
HWY_INLINE void WriteAndReadColumns(D d, const RowStep<T>& s, std::int64_t column,
                                    T* HWY_RESTRICT state, std::int64_t stride,
                                    hn::Vec<D> (&erased)[NV], hn::Vec<D> (&answer)[NV]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  hn::Vec<D> u[NV], v[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    u[n] = hn::LoadU(d, s.pending->value[0] + column + n * kLanes);
    v[n] = APART ? hn::LoadU(d, s.pending->value[1] + column + n * kLanes) : hn::Zero(d);
  }
  const T* const by_u = s.pending->write[0];
  const T* const by_v = s.pending->write[1];
  const T* const erases = s.erase;
  const T* const queries = s.query;
  const std::int64_t rows = s.key_dim;
  for (std::int64_t row = 0; row < rows; ++row, state += stride) {
    const auto key = hn::Set(d, by_u[row]);
    const auto value_key = hn::Set(d, APART ? by_v[row] : T(0));
    const auto erase = hn::Set(d, erases[row]);
    const auto query = hn::Set(d, QUERY ? queries[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      auto m = hn::Add(hn::Mul(key, u[n]), hn::LoadU(d, state + n * kLanes));
      if constexpr (APART) m = hn::Add(hn::Mul(value_key, v[n]), m);
      hn::StoreU(m, d, state + n * kLanes);
      erased[n] = hn::MulAdd(erase, m, erased[n]);
      if constexpr (QUERY) answer[n] = hn::MulAdd(query, m, answer[n]);
    }
  }
}

/// The same of a paired memory; READ: answer += query M + query_second N, in the same pass.
template <int NV, bool READ, class D, class T = hn::TFromD<D>>
HWY_INLINE void TurnAndWriteColumns(D d, const RowStep<T>& s, const hn::Vec<D> (&u)[NV],
                                    T* HWY_RESTRICT state, std::int64_t stride,
                                    T* HWY_RESTRICT second, const Following<NV, T>& following,
                                    const Following<NV, T>& following_second,
                                    hn::Vec<D> (&answer)[NV]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  for (std::int64_t row = 0; row < s.key_dim; ++row, state += stride, second += s.second_stride) {
    following.Fetch(row);
    following_second.Fetch(row);
    const auto decay = hn::Set(d, s.decay[row]);
    const auto to_first = hn::Set(d, s.turn[0][row]);
    const auto to_second = hn::Set(d, s.turn[1][row]);
    const auto decay_second = hn::Set(d, s.turn[2][row]);
    const auto key = hn::Set(d, s.write[row]);
    const auto q = hn::Set(d, READ ? s.query[row] : T(0));
    const auto q_second = hn::Set(d, READ ? s.query_second[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto x = hn::LoadU(d, state + n * kLanes);
      const auto y = hn::LoadU(d, second + n * kLanes);
      if constexpr (READ) {
        answer[n] = hn::MulAdd(q_second, y, hn::MulAdd(q, x, answer[n]));
      }
      const auto written = hn::Mul(key, u[n]);
      const auto turned = s.both ? written : hn::Mul(to_second, x);
      hn::StoreU(hn::MulAdd(decay, x, hn::MulAdd(to_first, y, written)), d, state + n * kLanes);
      hn::StoreU(hn::MulAdd(decay_second, y, turned), d, second + n * kLanes);
    }
  }
}

/// One row on NV vectors of columns from `column` on; `state` and `second` begin there, their rows
/// lie `stride` and s.second_stride apart; after them come the columns at `next`, `next_second`, or
/// none (null).
template <int NV, class T>
void StepColumns(const RowStep<T>& s, std::int64_t column, T* HWY_RESTRICT state,
                 std::int64_t stride, T* HWY_RESTRICT second, const T* next, const T* next_second) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  T* const answers = s.answers == nullptr ? nullptr : s.answers + column;
  const Following<NV, T> following(next, stride, s.key_dim);
  const Following<NV, T> following_second(next_second, s.second_stride, s.key_dim);
  hn::Vec<decltype(d)> u[NV], v[NV], answer[NV];
  auto clear = [&](auto& x) HWY_ATTR {
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) x[n] = hn::Zero(d);
  };
  auto keep = [&](std::int64_t q) HWY_ATTR {
    const auto read = hn::Set(d, s.read[q * kChunk]);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      hn::StoreU(hn::Mul(read, answer[n]), d, answers + q * s.answer_stride + n * kLanes);
    }
  };
  auto read_second = [&](std::int64_t q) HWY_ATTR {
    if (s.query_second == nullptr) return;
    ReadColumns<NV, false, true>(d, s.key_dim, s.query, s.query_second + q * s.query_stride, second,
                                 s.second_stride, u, answer);
  };
  clear(u);
  const bool ask = s.ask && s.queries > 0;
  const bool paired = s.second != nullptr;
  const bool apart = s.value_key != nullptr;
  const bool writes_first = s.pending != nullptr && s.pending->keys() > 0;
  if (writes_first) {
    clear(answer);
    auto write_and_read = [&]<bool APART, bool QUERY>() HWY_ATTR {
      WriteAndReadColumns<NV, APART, QUERY>(d, s, column, state, stride, u, answer);
    };
    if (apart && ask) {
      write_and_read.template operator()<true, true>();
    } else if (apart) {
      write_and_read.template operator()<true, false>();
    } else if (ask) {
      write_and_read.template operator()<false, true>();
    } else {
      write_and_read.template operator()<false, false>();
    }
    if (ask) keep(0);
  }
  for (std::int64_t q = 1; s.ask && q < s.queries; ++q) {
    clear(answer);
    ReadColumns<NV, false, true>(d, s.key_dim, s.query, s.query + q * s.query_stride, state, stride,
                                 u, answer);
    read_second(q);
    keep(q);
  }
  clear(answer);
  // Where nothing is erased, what is written does not wait for what is read.
  const bool once = s.pending == nullptr && s.write != nullptr && s.erase == nullptr &&
                    (!paired || s.query_second != nullptr);
  if (writes_first) {
    // All is read.
  } else if (s.erase != nullptr && ask) {
    ReadColumns<NV, true, true>(d, s.key_dim, s.erase, s.query, state, stride, u, answer);
  } else if (s.erase != nullptr) {
    ReadColumns<NV, true, false>(d, s.key_dim, s.erase, s.query, state, stride, u, answer);
  } else if (ask && !once) {
    ReadColumns<NV, false, true>(d, s.key_dim, s.query, s.query, state, stride, u, answer);
  }
  if (ask && !once && !writes_first) {
    read_second(0);
    keep(0);
  }
  if (s.write == nullptr) return;

  const auto erased = hn::Set(d, s.erased);
  const auto step = hn::Set(d, s.step);
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    v[n] = hn::LoadU(d, s.value + column + n * kLanes);
    const auto given = apart ? hn::Zero(d) : v[n];
    u[n] = hn::Mul(step, s.erase != nullptr ? hn::NegMulAdd(erased, u[n], given) : given);
  }
  if (s.pending != nullptr) {
    const auto scale = hn::Set(d, s.pending_scale);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const std::int64_t at = column + n * kLanes;
      hn::StoreU(hn::Mul(scale, u[n]), d, s.pending->value[0] + at);
      if (apart) hn::StoreU(hn::Mul(scale, v[n]), d, s.pending->value[1] + at);
    }
  } else if (paired && once && ask) {
    TurnAndWriteColumns<NV, true>(d, s, u, state, stride, second, following, following_second,
                                  answer);
  } else if (paired) {
    TurnAndWriteColumns<NV, false>(d, s, u, state, stride, second, following, following_second,
                                   answer);
  } else if (once && ask) {
    ReadAndWriteColumns<NV, true>(d, s, u, state, stride, answer);
  } else if (once) {
    ReadAndWriteColumns<NV, false>(d, s, u, state, stride, answer);
  } else if (apart) {
    WriteColumns<NV, true>(d, s, u, v, state, stride, following);
  } else {
    WriteColumns<NV, false>(d, s, u, v, state, stride, following);
  }
  if (once && ask) keep(0);
  for (std::int64_t q = 0; s.add && q < s.queries; ++q) {
    T* const to = answers + q * s.answer_stride;
    const auto score = hn::Set(d, s.score[q * kChunk * kChunk]);
    const auto score_value = hn::Set(d, apart ? s.score_value[q * kChunk * kChunk] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      auto y = hn::MulAdd(score, u[n], hn::LoadU(d, to + n * kLanes));
      if (apart) y = hn::MulAdd(score_value, v[n], y);
      hn::StoreU(y, d, to + n * kLanes);
    }
  }
}

/// As many groups of NV vectors as fit, then of half as many; `column` is left behind the last.
template <int NV, class T>
void StepGroups(const Memory& memory, const RowStep<T>& s, std::int64_t& column) {
  constexpr std::int64_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  T* state = static_cast<T*>(memory.state.data);
  for (; column + kWidth <= memory.end_column; column += kWidth) {
    const std::int64_t end = column + kWidth;
    auto at = [](T* rows, std::int64_t c) { return rows == nullptr ? nullptr : rows + c; };
    const bool last = end >= memory.end_column;
    StepColumns<NV>(s, column, state + column, memory.state.stride, at(s.second, column),
                    last ? s.next : state + end, last ? s.next_second : at(s.second, end));
  }
  if constexpr (NV > 1) StepGroups<NV / 2>(memory, s, column);
}

/// All columns; what does not fill a vector goes through a padded copy.
template <class T>
void StepRow(const Memory& memory, const RowStep<T>& s, T* HWY_RESTRICT padded) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  T* state = static_cast<T*>(memory.state.data);
  std::int64_t column = memory.first_column;
  StepGroups<ln::kTileRows>(memory, s, column);
  const std::int64_t rest = memory.end_column - column;
  if (rest == 0) return;
  auto load = [&](const T* from, std::int64_t stride, T* to) {
    for (std::int64_t row = 0; row < memory.key_dim; ++row, from += stride, to += kLanes) {
      std::fill(std::copy(from, from + rest, to), to + kLanes, T(0));
    }
  };
  auto store = [&](const T* from, T* to, std::int64_t stride) {
    for (std::int64_t row = 0; row < memory.key_dim; ++row, from += kLanes, to += stride) {
      std::copy(from, from + rest, to);
    }
  };
  T* const padded_second = padded + memory.key_dim * kLanes;
  RowStep<T> last = s;
  last.second_stride = kLanes;
  load(state + column, memory.state.stride, padded);
  if (s.second != nullptr) load(s.second + column, s.second_stride, padded_second);
  StepColumns<1, T>(last, column, padded, kLanes, padded_second, nullptr, nullptr);
  if (s.write == nullptr) return;
  store(padded, state + column, memory.state.stride);
  if (s.second != nullptr) store(padded_second, s.second + column, s.second_stride);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DECODE_COLUMNS_INL_H_
