// A few tokens (decode): the state is updated where it lies, with one read and one write of every
// element a token. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_DIRECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_DIRECT_INL_H_
#undef TTR_FAST_WEIGHTS_DIRECT_INL_H_
#else
#define TTR_FAST_WEIGHTS_DIRECT_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/prepare-inl.h"
#include "src/engines/fast_weights/rows-inl.h"
#include "src/simd/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// One token in the arithmetic's type.
template <class T>
struct Token {
  const T* key;    // null: nothing is written
  const T* query;  // null: nothing is read
  const T* value;
  T* answer;
  T decay;
  T step;
  const T* next;  // a state to be fetched meanwhile, of the same rows; or null
};

/// read += key M, answer += query M, of NV vectors of columns.
template <int NV, bool KEY, bool QUERY, class D, class T = hn::TFromD<D>>
HWY_INLINE void ReadColumns(D d, std::int64_t key_dim, const Token<T>& token,
                            const T* HWY_RESTRICT state, std::int64_t stride,
                            hn::Vec<D> (&read)[NV], hn::Vec<D> (&answer)[NV]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  for (std::int64_t row = 0; row < key_dim; ++row, state += stride) {
    const auto key = hn::Set(d, KEY ? token.key[row] : T(0));
    const auto query = hn::Set(d, QUERY ? token.query[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto m = hn::LoadU(d, state + n * kLanes);
      if constexpr (KEY) read[n] = hn::MulAdd(key, m, read[n]);
      if constexpr (QUERY) answer[n] = hn::MulAdd(query, m, answer[n]);
    }
  }
}

/// M = decay M + key innovation; answer += query M. Rows in reverse order: the last that were read
/// are still near. Meanwhile the next state is fetched, so that memory does not rest.
template <int NV, bool QUERY, class D, class T = hn::TFromD<D>>
HWY_INLINE void WriteColumns(D d, std::int64_t key_dim, const Token<T>& token,
                             const hn::Vec<D> (&innovation)[NV], T* HWY_RESTRICT state,
                             std::int64_t stride, hn::Vec<D> (&answer)[NV]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  const auto decay = hn::Set(d, token.decay);
  const T* next = token.next != nullptr ? token.next : state;
  for (std::int64_t row = key_dim - 1; row >= 0; --row) {
    T* HWY_RESTRICT m = state + row * stride;
    const auto key = hn::Set(d, token.key[row]);
    const auto query = hn::Set(d, QUERY ? token.query[row] : T(0));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      if (n * kLanes * sizeof(T) % 64 == 0) {
        __builtin_prefetch(next + (key_dim - 1 - row) * stride + n * kLanes, 0, 2);
      }
      const auto old = hn::Mul(decay, hn::LoadU(d, m + n * kLanes));
      const auto now = hn::MulAdd(key, innovation[n], old);
      hn::StoreU(now, d, m + n * kLanes);
      if constexpr (QUERY) answer[n] = hn::MulAdd(query, now, answer[n]);
    }
  }
}

/// One token on NV vectors of columns of the state, of rows `stride` apart.
template <int NV, class T>
void StepColumns(const Options& options, std::int64_t key_dim, const Token<T>& token,
                 T* HWY_RESTRICT state, std::int64_t stride) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  hn::Vec<decltype(d)> read[NV], answer[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) read[n] = answer[n] = hn::Zero(d);

  const bool writes = token.key != nullptr;
  const bool solve = writes && options.write == Write::kDelta;
  const bool ask_first = token.query != nullptr && (options.read_before || !writes);
  if (solve && ask_first) {
    ReadColumns<NV, true, true>(d, key_dim, token, state, stride, read, answer);
  } else if (solve) {
    ReadColumns<NV, true, false>(d, key_dim, token, state, stride, read, answer);
  } else if (ask_first) {
    ReadColumns<NV, false, true>(d, key_dim, token, state, stride, read, answer);
  }
  if (writes) {
    const auto decay = hn::Set(d, token.decay);
    const auto step = hn::Set(d, token.step);
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const auto value = hn::LoadU(d, token.value + n * kLanes);
      read[n] = hn::Mul(step, solve ? hn::NegMulAdd(decay, read[n], value) : value);
    }
    if (token.query != nullptr && !ask_first) {
      WriteColumns<NV, true>(d, key_dim, token, read, state, stride, answer);
    } else {
      WriteColumns<NV, false>(d, key_dim, token, read, state, stride, answer);
    }
  }
  if (token.query != nullptr) {
    const auto scale = hn::Set(d, static_cast<T>(options.scale));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      hn::StoreU(hn::Mul(scale, answer[n]), d, token.answer + n * kLanes);
    }
  }
}

/// Token `token` as columns from `column` on see it.
template <class T>
Token<T> FromColumn(Token<T> token, std::int64_t column) {
  if (token.value != nullptr) token.value += column;
  if (token.answer != nullptr) token.answer += column;
  if (token.next != nullptr) token.next += column;
  return token;
}

/// As many groups of NV vectors as fit, then of half as many; `column` is left behind the last.
template <int NV, class T>
void StepGroups(const Options& options, const Memory& memory, const Token<T>& token,
                std::int64_t& column) {
  constexpr std::int64_t kWidth = NV * hn::MaxLanes(hn::ScalableTag<T>());
  T* state = static_cast<T*>(memory.state);
  for (; column + kWidth <= memory.end_column; column += kWidth) {
    StepColumns<NV>(options, memory.key_dim, FromColumn(token, column), state + column,
                    memory.state_stride);
  }
  if constexpr (NV > 1) StepGroups<NV / 2>(options, memory, token, column);
}

/// All columns; what does not fill a vector goes through a padded copy.
template <class T>
void StepToken(const Options& options, const Memory& memory, const Token<T>& token,
               T* HWY_RESTRICT padded) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  T* state = static_cast<T*>(memory.state);
  std::int64_t column = memory.first_column;
  StepGroups<sn::kTileRows>(options, memory, token, column);
  const std::int64_t rest = memory.end_column - column;
  if (rest == 0) return;
  for (std::int64_t row = 0; row < memory.key_dim; ++row) {
    const T* from = state + row * memory.state_stride + column;
    std::fill(std::copy(from, from + rest, padded + row * kLanes), padded + (row + 1) * kLanes,
              T(0));
  }
  Token<T> last = FromColumn(token, column);
  last.next = nullptr;
  StepColumns<1>(options, memory.key_dim, last, padded, kLanes);
  if (token.key == nullptr) return;
  for (std::int64_t row = 0; row < memory.key_dim; ++row) {
    const T* from = padded + row * kLanes;
    std::copy(from, from + rest, state + row * memory.state_stride + column);
  }
}

/// What multiplying by a gate of zero would not do: forget what is not finite, too.
template <class T>
void Forget(const Memory& memory) {
  for (std::int64_t row = 0; row < memory.key_dim; ++row) {
    T* m = static_cast<T*>(memory.state) + row * memory.state_stride;
    std::fill(m + memory.first_column, m + memory.end_column, T(0));
  }
}

template <class T>
T StepSize(const Options& options, T s, const T* key, std::int64_t key_dim) {
  if (options.step == Step::kOne) return T(1);
  if (options.step == Step::kInput) return s;
  // The chunked kernel's formulas, on one lane of its arrays.
  HWY_ALIGN T steps[kChunk] = {s};
  HWY_ALIGN T gram[kChunk * kChunk] = {static_cast<T>(SumOfSquares(key, key_dim))};
  Steps(options, 1, gram, steps);
  return steps[0];
}

/// Elements of a state that is fetched while another of its size is updated: both fit in a
/// second-level cache.
inline constexpr std::int64_t kMostFetchedAhead = 1 << 16;

/// A sequence of a few tokens.
template <class T>
void RunDirect(const Options& options, const Memory& memory, const Memory& next,
               const Scratch<T>& scratch) {
  const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
  const std::int64_t columns = RoundUp(memory.value_dim, kAlignment / sizeof(T));
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const std::int64_t width = memory.end_column - memory.first_column;
  T* key = scratch.rows;
  T* query = scratch.rows + key_rows;
  for (std::int64_t t = 0; t < memory.tokens; ++t) {
    Token<T> token{};
    token.decay = static_cast<T>(memory.decay_factor);
    token.step = memory.step ? LoadGate<T>(memory.step, t) : T(1);
    bool forget = false;
    if (memory.log_decay) {
      const T log_decay = LoadGate<T>(memory.log_decay, t);
      forget = log_decay == -std::numeric_limits<T>::infinity();
      const hn::CappedTag<T, 1> one;
      token.decay = hn::GetLane(sn::ExpNonPositive(one, hn::Set(one, log_decay)));
    }
    for (std::int64_t q = 0; q < queries; ++q) {
      Rows rows = memory.q;
      rows.data = static_cast<std::byte*>(rows.data) +
                  q * memory.q_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
      LoadKey(options, rows, t, memory.key_dim, query + q * key_rows);
    }
    // The first query shares the passes of the write, unless the memory is forgotten in between.
    const bool shared = queries > 0 && !(forget && options.read_before);
    auto ask = [&](std::int64_t first) {
      for (std::int64_t q = first; q < queries; ++q) {
        Token<T> reader = token;
        reader.query = query + q * key_rows;
        reader.answer = scratch.outputs + q * columns;
        StepToken(options, memory, reader, scratch.strips);
      }
    };
    if (options.read_before) ask(shared ? 1 : 0);
    if (forget) Forget<T>(memory);
    Token<T> writer = token;
    if (memory.k) {
      LoadKey(options, memory.k, t, memory.key_dim, key);
      LoadRow(memory.v, t, memory.first_column, width, scratch.values + memory.first_column);
      writer.key = key;
      writer.value = scratch.values;
      writer.step = StepSize(options, token.step, key, memory.key_dim);
      if (t == memory.tokens - 1 && memory.key_dim * memory.value_dim <= kMostFetchedAhead) {
        writer.next = static_cast<const T*>(next.state);
      }
    }
    if (shared) {
      writer.query = query;
      writer.answer = scratch.outputs;
    }
    StepToken(options, memory, writer, scratch.strips);
    if (!options.read_before) ask(1);
    for (std::int64_t q = 0; q < queries; ++q) {
      T* y = scratch.outputs + q * columns + memory.first_column;
      NormaliseOutput(options, y, width);
      StoreRow(y, width, memory.y.data, memory.y.dtype,
               t * memory.y.stride + q * memory.y_head_stride + memory.first_column);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DIRECT_INL_H_
