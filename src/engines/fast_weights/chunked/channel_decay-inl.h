// A chunk whose decay is a number a channel: the decays multiply the keys. Compiled once for every
// target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_DECAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_DECAY_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_DECAY_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_DECAY_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/channel_pairs-inl.h"
#include "src/engines/fast_weights/chunked/scalar_decay-inl.h"
#include "src/engines/fast_weights/layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// A decay that is a number a channel. Do the rows `lie`, as RowsLie() says? Otherwise they are
/// gathered. Rows of g are used up.
template <class T>
HWY_INLINE void PrepareChannels(const Options& options, const Memory& memory, const Chunk& chunk,
                                bool lie, const Scratch<T>& scratch, const Prepared<T>& out) {
  const Gathered<T>& g = scratch.gathered;
  const std::int64_t stride = g.stride;
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const T scale = static_cast<T>(options.scale);
  const std::int64_t state_rows = StateRows<T>(options, memory.key_dim);
  const bool apart = options.separate_value_key();
  T* const keys = g.products;
  T* const others = g.products + kChunk * stride;  // keys of values, or imaginary parts
  // An erasure has no pair with its own row.
  const std::int64_t erasures = options.erases() ? FirstPair(kChunk) : 0;
  const std::int64_t imaginary = g.query_stride * memory.queries;
  // Rows where they lie, from number `offset` of a token on, or as they were gathered.
  auto rows_of = [&](const Rows& rows, std::int64_t offset, const T* gathered) -> PairRows<T> {
    if (!lie) return {gathered, stride};
    return {static_cast<const T*>(rows.data) + chunk.first * rows.stride + offset, rows.stride};
  };
  for (std::int64_t i = 0; lie && i < chunk.rows; ++i) {
    const auto* row =
        static_cast<const T*>(memory.log_decay.data) + (chunk.first + i) * memory.log_decay.stride;
    ExpRow(row, stride, g.factors + i * stride);
  }
  for (std::int64_t d = 0; d < stride; ++d) {
    out.forgotten[d] = chunk.forget && g.factors[d] == 0 ? T(1) : T(0);
  }

  PairCall<T> call{};
  call.rows = chunk.rows;
  call.stride = stride;
  call.factors = g.factors;
  call.cosines = g.cosines;
  call.sines = g.sines;
  call.imaginary_carried = others;
  call.decay = out.row_decay;
  call.turned = out.turn[2];
  if (options.erases()) {
    call.erase = {1, rows_of(memory.k, 0, g.erase), 0, nullptr, nullptr, 0, g.sums};
  }
  call.queries = {queries,
                  rows_of(memory.q, 0, g.query),
                  lie ? memory.q_head_stride : g.query_stride,
                  nullptr,
                  g.query + imaginary,
                  g.query_stride,
                  g.sums + erasures * hn::MaxLanes(hn::ScalableTag<T>())};
  for (int i = 0; i < kChunk; ++i) {
    call.asks[i] = i < chunk.rows && memory.Reads(chunk.first + i);
  }
  auto carry = [&](PairRows<T> rows, T* carried, T* lower, T* scores) {
    call.keys = rows;
    call.carried = carried;
    if (options.phase) {
      CarryPairs<Carry::kTurned>(call, options.read_before);
    } else if (apart) {
      CarryPairs<Carry::kUndecayed>(call, options.read_before);
    } else {
      CarryPairs<Carry::kKeys>(call, options.read_before);
    }
    SumPairs(erasures + queries * kPairs, g.sums);
    if (options.erases()) UnfoldPairs(g.sums, false, T(-1), lower);
    for (std::int64_t q = 0; q < queries; ++q) {
      UnfoldPairs(g.sums + erasures + q * kPairs, !options.read_before, scale,
                  scores + q * kChunk * kChunk);
    }
  };
  if (apart) carry({g.value, stride}, others, out.lower_value, out.score_values);
  // Where they stand, and so with the last keys.
  call.erase.decayed = g.erase;
  call.queries.decayed = g.query;
  carry(rows_of(memory.k, 0, g.write), keys, out.lower, out.scores);

  auto pack = [&](const T* rows, bool reads, T* first, std::int64_t second) {
    PackColumns(memory, chunk, rows, stride, reads, scratch.zeros, first);
    if (options.phase) {
      PackColumns(memory, chunk, rows + second, stride, reads, scratch.zeros,
                  first + memory.key_dim * kChunk);
    }
    PadColumns(first, (options.phase ? 2 : 1) * memory.key_dim, state_rows);
  };
  if (options.erases()) pack(g.erase, false, out.erase, 0);
  if (apart) pack(others, false, out.value, 0);
  pack(keys, false, out.write, kChunk * stride);
  for (std::int64_t q = 0; q < queries; ++q) {
    pack(g.query + q * g.query_stride, true, out.queries + q * state_rows * kChunk, imaginary);
  }
  if (options.phase) {
    for (std::int64_t d = 0; d < stride; ++d) {
      out.turn[1][d] = -out.turn[2][d];
      out.turn[3][d] = out.row_decay[d];
    }
  }
  std::fill(out.read, out.read + queries * kChunk, scale);
  for (int i = 0; i < kChunk; ++i) {
    out.step[i] = g.step[i];
    out.decay[i] = out.to_end[i] = 1;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_DECAY_INL_H_
