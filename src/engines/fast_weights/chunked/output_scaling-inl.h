// What the answers of a chunk are multiplied by: gains, denominators, bonuses. All of it goes into
// the coefficients, so that the value columns know nothing of it. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_OUTPUT_SCALING_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_OUTPUT_SCALING_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_OUTPUT_SCALING_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_OUTPUT_SCALING_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/channel_decay-inl.h"
#include "src/engines/fast_weights/chunked/momentum-inl.h"
#include "src/engines/fast_weights/chunked/scalar_decay-inl.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

/// Status::kSingular of ttr/layer.h.
inline constexpr std::int8_t kSingular = 3;

/// scale (bonus (.) k_i) . q_i of row i and a query.
template <class T>
HWY_INLINE T Bonus(const Options& options, const Gathered<T>& g, std::int64_t i, const T* query) {
  const hn::ScalableTag<T> d;
  const T* key = g.write + i * g.stride;
  auto sum = hn::Zero(d);
  for (std::int64_t c = 0; c < g.stride; c += hn::MaxLanes(d)) {
    const auto weighted = hn::Mul(hn::Load(d, g.bonus + c), hn::Load(d, key + c));
    sum = hn::MulAdd(weighted, hn::Load(d, query + c), sum);
  }
  return static_cast<T>(options.scale) * hn::GetLane(hn::SumOfLanes(d, sum));
}

/// What multiplies the answer of a query whose sum of weights is z, under a maximum `log_scale`.
template <class T>
HWY_INLINE T ReadFactor(const Options& options, T z, T log_scale, bool& singular) {
  const T gain = static_cast<T>(options.gain);
  singular = false;
  switch (options.denominator) {
    case Denominator::kNone:
      return options.step == Step::kLogWeight ? gain * std::exp(log_scale) : gain;
    case Denominator::kSum: singular = z == 0; return singular ? T(0) : gain / z;
    case Denominator::kStabilised: return gain / std::max(std::abs(z), std::exp(-log_scale));
  }
  return gain;
}

inline void MarkSingular(const Memory& memory, std::int64_t row, std::int64_t query) {
  if (memory.status == nullptr) return;
  memory.status[memory.Token(row) * memory.status_stride + query * memory.status_head_stride] =
      kSingular;
}

template <class T>
bool HasPlainReads(const Options& options) {
  return options.denominator == Denominator::kNone && options.step != Step::kLogWeight &&
         options.gain == 1;
}

/// The sum forgets with the memory.
template <class T>
HWY_INLINE void ForgetSum(const Options& options, const Prepared<T>& out, const Running<T>& carried,
                          std::int64_t stride) {
  for (std::int64_t d = 0; d < stride; ++d) {
    if (!options.by_channel() || out.forgotten[d] != 0) carried.sum[d] = 0;
  }
}

/// Multiplies `read` and `scores` by the factors of the answers.
template <class T>
HWY_INLINE void WeighReads(const Options& options, const Memory& memory, const Chunk& chunk,
                           const Scratch<T>& scratch, const Prepared<T>& out) {
  if (HasPlainReads<T>(options)) return;
  const Gathered<T>& g = scratch.gathered;
  const Running<T>& carried = scratch.carried;
  const bool divides = options.denominator != Denominator::kNone;
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    // What forgets at the chunk's first row is still read by that row, where it reads before.
    if (divides && chunk.forget && i == (options.read_before ? 1 : 0)) {
      ForgetSum(options, out, carried, g.stride);
    }
    if (!memory.Reads(chunk.first + i)) continue;
    const bool writes = memory.writes();
    const T log_scale = !writes                ? g.first_scale
                        : !options.read_before ? g.log_scale[i]
                        : i == 0               ? g.first_scale
                                               : g.log_scale[i - 1];
    for (std::int64_t q = 0; q < memory.queries; ++q) {
      T* const scores = out.scores + (q * kChunk + i) * kChunk;
      T& read = out.read[q * kChunk + i];
      T z = 0;
      if (divides) {
        z = read * Dot(g.query + q * g.query_stride + i * g.stride, carried.sum, g.stride);
        const std::int64_t own = options.read_before && !options.bonus ? 0 : 1;
        for (std::int64_t j = 0; writes && j < i + own; ++j) z += scores[j] * out.step[j];
      }
      if (memory.saved_sums != nullptr && memory.first_column == 0) {
        static_cast<T*>(memory.saved_sums)[(chunk.first + i) * memory.queries + q] = z;
      }
      bool singular;
      const T factor = ReadFactor(options, z, log_scale, singular);
      if (singular) MarkSingular(memory, chunk.first + i, q);
      read *= factor;
      for (int j = 0; writes && j < kChunk; ++j) {
        scores[j] *= factor;
        out.score_values[(q * kChunk + i) * kChunk + j] *= factor;
      }
    }
  }
}

/// n = c_n n + sum_j D_nj b_j w_j.
template <class T>
HWY_INLINE void UpdateSum(const Options& options, const Chunk& chunk, const Scratch<T>& scratch,
                          const Prepared<T>& out) {
  const hn::ScalableTag<T> d;
  const Gathered<T>& g = scratch.gathered;
  const T* keys = options.by_channel() ? g.products : g.write;
  if (chunk.forget) ForgetSum(options, out, scratch.carried, g.stride);
  for (std::int64_t c = 0; c < g.stride; c += hn::MaxLanes(d)) {
    auto sum = hn::Mul(hn::Load(d, out.row_decay + c), hn::Load(d, scratch.carried.sum + c));
    for (std::int64_t j = 0; j < chunk.rows; ++j) {
      sum = hn::MulAdd(hn::Set(d, out.to_end[j] * out.step[j]),
                       hn::Load(d, keys + j * g.stride + c), sum);
    }
    hn::Store(sum, d, scratch.carried.sum + c);
  }
}

/// A decay that all rows of the memory share is put off: strips hold the memory over a factor that
/// decays in their place, reads are multiplied by it, and what is written is divided. It is caught
/// up with where the memory itself is wanted, or the factor becomes small. A multiplication less
/// for every vector of the memory and chunk.
template <class T>
HWY_INLINE void PutOffDecay(const Options& options, std::int64_t queries, std::int64_t stride,
                            bool wanted, T& owed, Chunk& chunk, const Prepared<T>& out) {
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  constexpr T kLeast = T(1) / 1024;  // numbers of the strips are at most so much larger
  auto multiply = [&](T factor, T* row) HWY_ATTR {
    if (factor == 1) return;
    for (int j = 0; j < kChunk; j += kLanes) {
      hn::Store(hn::Mul(hn::Set(d, factor), hn::Load(d, row + j)), d, row + j);
    }
  };
  // What is forgotten is read at most once more, before: all else reads zeros.
  const T before = owed;
  if (options.erases()) multiply(before, out.decay);
  for (std::int64_t q = 0; q < queries; ++q) multiply(before, out.read + q * kChunk);
  const T after = chunk.forget ? out.row_decay[0] : before * out.row_decay[0];
  chunk.decays = wanted || !(after >= kLeast);
  owed = chunk.decays ? T(1) : after;
  if (chunk.decays) {
    if (before != 1) std::fill(out.row_decay, out.row_decay + stride, after);
  } else {
    multiply(1 / after, out.to_end);
  }
}

/// All that a chunk needs beside its values. Is the memory itself `wanted` after it?
template <class T>
HWY_INLINE void Prepare(const Options& options, const Memory& memory, bool wanted, Chunk& chunk,
                        Scratch<T>& scratch, const Prepared<T>& out) {
  Gathered<T>& g = scratch.gathered;
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const bool lie = RowsLie<T>(options, memory) &&
                   (!options.normalise_qk || FindUnits(memory, chunk, scratch.units));
  const bool units = lie && options.normalise_qk;
  if (!lie) GatherRows(options, memory, chunk, scratch.carried, g);
  GatherNumbers(options, memory, chunk, scratch.carried, g);
  if (!memory.writes()) {
    const std::int64_t state_rows = StateRows<T>(options, memory.key_dim);
    for (std::int64_t q = 0; q < queries; ++q) {
      T* query = out.queries + q * state_rows * kChunk;
      PackColumns(memory, chunk, g.query + q * g.query_stride, g.stride, true, scratch.zeros,
                  query);
      PadColumns(query, memory.key_dim, state_rows);
    }
    std::fill(out.read, out.read + queries * kChunk, static_cast<T>(options.scale));
    WeighReads(options, memory, chunk, scratch, out);
    return;
  }
  if (options.bonus) {
    for (std::int64_t q = 0; q < queries; ++q) {
      for (std::int64_t i = 0; i < chunk.rows; ++i) {
        scratch.bonuses[q * kChunk + i] =
            Bonus(options, g, i, g.query + q * g.query_stride + i * g.stride);
      }
    }
  }
  if (options.by_channel()) {
    PrepareChannels(options, memory, chunk, lie, scratch, out);
  } else if (options.momentum) {
    PrepareMomentum(options, memory, chunk, scratch, out);
  } else {
    PrepareScalar(options, memory, chunk, lie, scratch, out);
    if (units) FoldUnits(options, queries, scratch.units, out);
  }
  for (std::int64_t q = 0; options.bonus && q < queries; ++q) {
    for (int i = 0; i < kChunk; ++i) {
      out.scores[(q * kChunk + i) * kChunk + i] = scratch.bonuses[q * kChunk + i];
    }
  }
  if (queries > 0) WeighReads(options, memory, chunk, scratch, out);
  if (options.denominator != Denominator::kNone) UpdateSum(options, chunk, scratch, out);
  FoldSteps(options, units, queries, out);
  if (options.by_channel() || options.momentum) return;
  PutOffDecay(options, queries, g.stride, wanted, scratch.carried.owed, chunk, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_OUTPUT_SCALING_INL_H_
