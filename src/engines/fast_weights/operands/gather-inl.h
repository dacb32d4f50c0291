// From inputs to the rows and numbers that act on the memory. Layers differ here, and nowhere
// after. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_OPERANDS_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_OPERANDS_GATHER_INL_H_
#undef TTR_FAST_WEIGHTS_OPERANDS_GATHER_INL_H_
#else
#define TTR_FAST_WEIGHTS_OPERANDS_GATHER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/keys-inl.h"
#include "src/engines/fast_weights/operands/rows-inl.h"
#include "src/engines/fast_weights/operands/step_rules-inl.h"
#include "src/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Rows first .. first + rows of a sequence. A decay of zero starts a chunk, whose memory then
/// begins empty (in the channels that are forgotten): what was not finite is forgotten with the
/// rest, which a multiplication by zero would not do.
struct Chunk {
  std::int64_t first = 0;
  std::int64_t rows = 0;
  bool forget = false;
  bool forget_update = false;  // and the last update with it: the momentum is 0, too
  bool decays = true;          // is the memory multiplied by its decay, or is that lazy?
  bool in_place = false;       // are keys and queries used where they lie?
};

/// Does anything of row r's decay forget everything: is its exponential 0 in T?
template <class T>
bool Forgets(const Memory& memory, std::int64_t r, bool by_channel) {
  if (!memory.Starts(r)) return false;
  const std::int64_t token = memory.Token(r);
  if (!by_channel) return LoadOne<double>(memory.inputs.log_decay, token) < sn::kForgottenBelow<T>;
  return AnyBelow(memory.inputs.log_decay, token, memory.dims.key_dim, sn::kForgottenBelow<T>);
}

/// The next chunk that starts at row `first`.
template <class T>
Chunk NextChunk(const Options& options, const Memory& memory, std::int64_t first,
                std::int64_t most = kChunk) {
  // Chunks end with time slices even if there are none: outputs have the same bits either way.
  const std::int64_t slice_end = first - first % kSliceRows + kSliceRows;
  Chunk chunk;
  chunk.first = first;
  chunk.rows = std::min(most, std::min(memory.dims.rows, slice_end) - first);
  // Where erasures see the memory before its decay, a decay of zero forgets nothing.
  if (!memory.inputs.log_decay || options.separate_value_key()) return chunk;
  const bool by_channel = options.decay == Decay::kChannel;
  chunk.forget = Forgets<T>(memory, first, by_channel);
  chunk.forget_update = chunk.forget && options.momentum &&
                        LoadOne<double>(memory.inputs.momentum, memory.Token(first)) == 0;
  for (std::int64_t i = 1; i < chunk.rows; ++i) {
    if (Forgets<T>(memory, first + i, by_channel)) chunk.rows = i;
  }
  return chunk;
}

/// A vector of the chunk's rows: one of them where the whole chunk is shorter than a vector.
template <class T>
using ChunkTag = hn::CappedTag<T, kChunk>;

/// Exponentials of at least the first `rows` numbers, none of which is positive.
template <class T>
HWY_INLINE void ExpAll(std::int64_t rows, T (&x)[kChunk]) {
  const ChunkTag<T> d;
  if (rows == 1) {  // a vector cannot be loaded before what was just stored to a part of it
    x[0] = hn::GetLane(sn::ExpNonPositive(d, hn::Set(d, x[0])));
    return;
  }
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
    hn::StoreU(sn::ExpNonPositive(d, hn::LoadU(d, x + i)), d, x + i);
  }
}

/// Decay and weight under a running maximum m of the log-weights s (mLSTM), as exponents:
///     m = max(log a + m', s),   a <- exp(log a + m' - m),   b = exp(s - m)
/// The sum of logarithms is in double precision: only differences of m count, and m grows with the
/// sequence. Returns whether the maximum is that of the past.
template <class T>
HWY_INLINE bool Stabilise(double log_decay, double log_weight, double& maximum, T& decay,
                          T& weight) {
  constexpr double kNothing = -std::numeric_limits<double>::infinity();
  // Forgetting everything forgets an infinite or undefined maximum too.
  const double past = log_decay == kNothing ? kNothing : log_decay + maximum;
  maximum = std::max(past, log_weight);
  decay = static_cast<T>(past == kNothing ? kNothing : past - maximum);
  weight = static_cast<T>(log_weight == kNothing ? kNothing : log_weight - maximum);
  return past >= log_weight;
}

/// Row i's decay and step before their exponentials and step rules.
template <class T>
HWY_INLINE void GatherNumbersOf(const Options& options, const Memory& memory, const Chunk& chunk,
                                std::int64_t i, Running<T>& running, Gathered<T>& out) {
  const std::int64_t row = chunk.first + i;
  const double factor = options.decay == Decay::kConstant ? memory.decay_factor : 1;
  if (memory.inputs.step) out.step[i] = LoadOne<T>(memory.inputs.step, row);
  if (options.step == Step::kLogWeight) {
    const double log_decay =
        memory.inputs.log_decay ? LoadOne<double>(memory.inputs.log_decay, row) : std::log(factor);
    out.saved[i] = Stabilise(log_decay, LoadOne<double>(memory.inputs.step, row), running.maximum,
                             out.decay[i], out.step[i]);
    out.log_scale[i] = static_cast<T>(running.maximum);
  } else if (!options.by_channel() && memory.Starts(row)) {
    // A chunk that begins by forgetting begins with an empty memory: nothing is left to decay.
    const bool empty = chunk.forget && i == 0;
    out.decay[i] = options.decay != Decay::kScalar ? static_cast<T>(factor)
                   : empty                         ? T(0)
                           : LoadOne<T>(memory.inputs.log_decay, memory.Token(row));
  }
  if (options.momentum) out.momentum[i] = LoadOne<T>(memory.inputs.momentum, memory.Token(row));
}

/// The numbers of a chunk's rows; rows from its last up to `room` have no step and no decay.
template <class T>
HWY_INLINE void GatherNumbers(const Options& options, const Memory& memory, const Chunk& chunk,
                              Running<T>& running, Gathered<T>& out, std::int64_t room = kChunk) {
  out.first_scale = static_cast<T>(running.maximum);
  if (!memory.writes()) return;
  const bool stabilised = options.step == Step::kLogWeight;
  const bool logarithms = stabilised || (!options.by_channel() && options.decay == Decay::kScalar);
  T norms[kChunk] = {};
  for (std::int64_t i = 0; i < room; ++i) {
    out.step[i] = out.momentum[i] = out.log_scale[i] = 0;
    out.decay[i] = logarithms ? T(0) : T(1);
    if (i >= chunk.rows) continue;
    GatherNumbersOf(options, memory, chunk, i, running, out);
    const T* key = out.write + i * out.stride;
    if (options.step_reads_norm()) norms[i] = Dot(key, key, out.stride);
  }
  if (logarithms) ExpAll(chunk.rows, out.decay);
  if (stabilised) ExpAll(chunk.rows, out.step);
  StepSizes(options, norms, out.step);
  for (std::int64_t i = 0; i < room; ++i) {
    out.seen[i] = options.separate_value_key() ? T(1) : out.decay[i];
    if (i >= chunk.rows) {
      out.step[i] = 0;
      out.decay[i] = out.seen[i] = 1;
    } else if (options.shrink != Shrink::kNone) {
      const T lambda = LoadOne<T>(memory.inputs.weight_decay, memory.Token(chunk.first + i));
      out.decay[i] *= 1 - (options.shrink == Shrink::kCoupled ? out.step[i] * lambda : lambda);
    }
  }
}

/// The keys, queries and decays per channel of a chunk's rows.
template <class T>
HWY_INLINE void GatherRows(const Options& options, const Memory& memory, const Chunk& chunk,
                           Running<T>& running, Gathered<T>& out) {
  const std::int64_t queries = memory.readers();
  for (std::int64_t i = 0; i < chunk.rows; ++i) {
    if (memory.writes()) {
      GatherKey(options, memory, chunk.first + i, i, running, out);
      if (options.by_channel()) GatherDecay(options, memory, chunk.first + i, i, out);
    }
    if (!memory.Reads(chunk.first + i)) continue;
    for (std::int64_t q = 0; q < queries; ++q) {
      T* const query = out.query + q * out.query_stride + i * out.stride;
      GatherQuery(options, memory, chunk.first + i, q, running, out.erase + i * out.stride, out.raw,
                  query);
    }
  }
  // All rows together: an exponential is a long chain, of which many go on side by side.
  if (memory.writes() && options.decay == Decay::kChannel) {
    ExpRow(out.factors, chunk.rows * out.stride, out.factors);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_OPERANDS_GATHER_INL_H_
