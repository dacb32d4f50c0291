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
  T* value;        // v, and then the innovation
  T* answer;
  T decay;
  T step;
  bool forget;
};

/// Columns [0, NV vectors) of the state at `state`, of rows `stride` apart. The second pass takes
/// the rows backwards: the last of the first pass are still near.
template <int NV, class T>
void StepColumns(const Options& options, std::int64_t key_dim, const Token<T>& token,
                 T* HWY_RESTRICT state, std::int64_t stride) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  using V = hn::Vec<decltype(d)>;
  V read[NV], answer[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) read[n] = answer[n] = hn::Zero(d);

  const bool solve = token.key != nullptr && options.write == Write::kDelta && !token.forget;
  const bool ask_first = token.query != nullptr && (options.read_before || token.key == nullptr);
  if (solve || ask_first) {
    // A pass with one of the two multiplies the other's sums by zero rows nowhere: each has a loop.
    for (std::int64_t row = 0; row < key_dim; ++row) {
      const T* HWY_RESTRICT m = state + row * stride;
      if (solve) {
        const V key = hn::Set(d, token.key[row]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          read[n] = hn::MulAdd(key, hn::LoadU(d, m + n * kLanes), read[n]);
        }
      }
      if (ask_first) {
        const V query = hn::Set(d, token.query[row]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          answer[n] = hn::MulAdd(query, hn::LoadU(d, m + n * kLanes), answer[n]);
        }
      }
    }
  }

  if (token.key != nullptr) {
    const V decay = hn::Set(d, token.decay);
    const V step = hn::Set(d, token.step);
    V innovation[NV];
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const V value = hn::LoadU(d, token.value + n * kLanes);
      innovation[n] = hn::Mul(step, solve ? hn::NegMulAdd(decay, read[n], value) : value);
    }
    const bool ask_after = token.query != nullptr && !options.read_before;
    for (std::int64_t row = key_dim - 1; row >= 0; --row) {
      T* HWY_RESTRICT m = state + row * stride;
      const V key = hn::Set(d, token.key[row]);
      V now[NV];
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        const V old = token.forget ? hn::Zero(d) : hn::Mul(decay, hn::LoadU(d, m + n * kLanes));
        now[n] = hn::MulAdd(key, innovation[n], old);
        hn::StoreU(now[n], d, m + n * kLanes);
      }
      if (ask_after) {
        const V query = hn::Set(d, token.query[row]);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) answer[n] = hn::MulAdd(query, now[n], answer[n]);
      }
    }
  }
  if (token.query != nullptr) {
    const V scale = hn::Set(d, static_cast<T>(options.scale));
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      hn::StoreU(hn::Mul(scale, answer[n]), d, token.answer + n * kLanes);
    }
  }
}

/// All columns: eight vectors at a time, then one, then what does not fill one, in a padded copy.
template <class T>
void StepToken(const Options& options, const Memory& memory, const Token<T>& token,
               T* HWY_RESTRICT padded) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  constexpr int kVectors = sn::kTileRows;
  T* state = static_cast<T*>(memory.state);
  std::int64_t column = memory.first_column;
  auto at = [&](std::int64_t c) {
    Token<T> part = token;
    if (part.value != nullptr) part.value += c;
    if (part.answer != nullptr) part.answer += c;
    return part;
  };
  for (; column + kVectors * kLanes <= memory.end_column; column += kVectors * kLanes) {
    StepColumns<kVectors>(options, memory.key_dim, at(column), state + column, memory.state_stride);
  }
  for (; column + kLanes <= memory.end_column; column += kLanes) {
    StepColumns<1>(options, memory.key_dim, at(column), state + column, memory.state_stride);
  }
  const std::int64_t rest = memory.end_column - column;
  if (rest == 0) return;
  for (std::int64_t row = 0; row < memory.key_dim; ++row) {
    const T* from = state + row * memory.state_stride + column;
    std::fill(std::copy(from, from + rest, padded + row * kLanes), padded + (row + 1) * kLanes,
              T(0));
  }
  StepColumns<1>(options, memory.key_dim, at(column), padded, kLanes);
  if (token.key == nullptr) return;
  for (std::int64_t row = 0; row < memory.key_dim; ++row) {
    const T* from = padded + row * kLanes;
    std::copy(from, from + rest, state + row * memory.state_stride + column);
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

/// A sequence of a few tokens.
template <class T>
void RunDirect(const Options& options, const Memory& memory, const Scratch<T>& scratch) {
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
    if (memory.log_decay) {
      const T log_decay = LoadGate<T>(memory.log_decay, t);
      token.forget = log_decay == -std::numeric_limits<T>::infinity();
      const hn::CappedTag<T, 1> one;
      token.decay = hn::GetLane(sn::ExpNonPositive(one, hn::Set(one, log_decay)));
    }
    for (std::int64_t q = 0; q < queries; ++q) {
      Rows rows = memory.q;
      rows.data = static_cast<std::byte*>(rows.data) +
                  q * memory.q_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
      LoadKey(options, rows, t, memory.key_dim, query + q * key_rows);
    }
    Token<T> writer = token;
    if (memory.k) {
      LoadKey(options, memory.k, t, memory.key_dim, key);
      LoadRow(memory.v, t, memory.first_column, width, scratch.values + memory.first_column);
      writer.key = key;
      writer.value = scratch.values;
      writer.step = StepSize(options, token.step, key, memory.key_dim);
    }
    // The first query shares the passes of the write; further ones read before or after it.
    for (std::int64_t pass = 0; pass < 3; ++pass) {
      if (pass == 1) {
        writer.query = queries > 0 ? query : nullptr;
        writer.answer = queries > 0 ? scratch.outputs : nullptr;
        StepToken(options, memory, writer, scratch.strips);
        continue;
      }
      if ((pass == 0) != options.read_before) continue;
      for (std::int64_t q = 1; q < queries; ++q) {
        Token<T> reader = token;
        reader.query = query + q * key_rows;
        reader.answer = scratch.outputs + q * columns;
        StepToken(options, memory, reader, scratch.strips);
      }
    }
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
