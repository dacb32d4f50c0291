// What multiplies the outputs of a chunk: gains, denominators, bonuses. All of it goes into the
// coefficients, so that no value column is touched twice. Compiled once for every target.

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
#include "src/engines/fast_weights/chunked/prepared.h"
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

/// What multiplies the output of a query whose sum of weights is z, under a maximum `log_scale`.
template <class T>
HWY_INLINE T OutputFactor(const Options& options, T z, T log_scale, bool& singular) {
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
  if (memory.status.data == nullptr) return;
  memory.status.data[memory.Token(row) * memory.status.stride + query * memory.status.head_stride] =
      kSingular;
}

template <class T>
bool HasPlainOutputs(const Options& options) {
  return options.denominator == Denominator::kNone && options.step != Step::kLogWeight &&
         options.gain == 1;
}

/// The sum of weights forgets with the memory.
template <class T>
HWY_INLINE void ForgetSum(const Options& options, const Prepared<T>& out, const Running<T>& running,
                          std::int64_t stride) {
  for (std::int64_t d = 0; d < stride; ++d) {
    if (!options.by_channel() || out.forgotten[d] != 0) running.sum[d] = 0;
  }
}

/// The maximum that divides the memory which row i of the chunk reads.
template <class T>
HWY_INLINE T LogScaleOf(const Options& options, const Memory& memory, const Gathered<T>& g,
                        std::int64_t i) {
  if (!memory.writes()) return g.first_scale;
  if (!options.read_before) return g.log_scale[i];
  return i == 0 ? g.first_scale : g.log_scale[i - 1];
}

/// The sum of weights of query q at row i.
template <class T>
HWY_INLINE T SumOfWeights(const Options& options, const Memory& memory, const Scratch<T>& scratch,
                          const Prepared<T>& out, std::int64_t q, std::int64_t i) {
  const Gathered<T>& g = scratch.gathered;
  const T* const scores = out.scores + (q * kChunk + i) * kChunk;
  const T* const query = g.query + q * g.query_stride + i * g.stride;
  T z = out.read[q * kChunk + i] * Dot(query, scratch.running.sum, g.stride);
  const std::int64_t own = options.read_before && !options.bonus ? 0 : 1;
  const std::int64_t count = memory.writes() ? i + own : 0;
  for (std::int64_t j = 0; j < count; ++j) z += scores[j] * out.step[j];
  return z;
}

/// Multiplies `read` and `scores` by the factors of the outputs.
template <class T>
HWY_INLINE void ScaleOutputs(const Options& options, const Memory& memory, const Chunk& chunk,
                             const Scratch<T>& scratch, const Prepared<T>& out) {
  if (HasPlainOutputs<T>(options)) return;
  const bool divides = options.denominator != Denominator::kNone;
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    // What forgets at the chunk's first row is still read by that row, where it reads before.
    if (divides && chunk.forget && i == (options.read_before ? 1 : 0)) {
      ForgetSum(options, out, scratch.running, scratch.gathered.stride);
    }
    if (!memory.Reads(chunk.first + i)) continue;
    const T log_scale = LogScaleOf(options, memory, scratch.gathered, i);
    for (std::int64_t q = 0; q < memory.dims.queries; ++q) {
      const T z = divides ? SumOfWeights(options, memory, scratch, out, q, i) : T(0);
      if (memory.saved.sums != nullptr && memory.extent.first_column == 0) {
        static_cast<T*>(memory.saved.sums)[(chunk.first + i) * memory.dims.queries + q] = z;
      }
      bool singular;
      const T factor = OutputFactor(options, z, log_scale, singular);
      if (singular) MarkSingular(memory, chunk.first + i, q);
      const std::int64_t at = q * kChunk + i;
      out.read[at] *= factor;
      if (!memory.writes()) continue;
      T *const scores = out.scores + at * kChunk, *const of_values = out.score_values + at * kChunk;
      for (int j = 0; j < kChunk; ++j) {
        scores[j] *= factor;
        of_values[j] *= factor;
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
  if (chunk.forget) ForgetSum(options, out, scratch.running, g.stride);
  for (std::int64_t c = 0; c < g.stride; c += hn::MaxLanes(d)) {
    auto sum = hn::Mul(hn::Load(d, out.row_decay + c), hn::Load(d, scratch.running.sum + c));
    for (std::int64_t j = 0; j < chunk.rows; ++j) {
      sum = hn::MulAdd(hn::Set(d, out.to_end[j] * out.step[j]),
                       hn::Load(d, keys + j * g.stride + c), sum);
    }
    hn::Store(sum, d, scratch.running.sum + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_OUTPUT_SCALING_INL_H_
