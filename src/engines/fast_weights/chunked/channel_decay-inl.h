// A chunk whose decay is a number a channel: the decays multiply keys and queries. Compiled once
// for every target.

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
#include "src/engines/fast_weights/chunked/columns-inl.h"
#include "src/engines/fast_weights/chunked/prepared.h"
#include "src/engines/fast_weights/layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Prepares one chunk. Keys, queries and decays are used `in_place` (KeysInPlace()) or gathered;
/// rows of scratch.gathered are used up.
template <class T>
class ChannelDecay {
 public:
  ChannelDecay(const Options& options, const Memory& memory, const Chunk& chunk, bool in_place,
               const Scratch<T>& scratch, const Prepared<T>& out)
      : options_(options),
        memory_(memory),
        chunk_(chunk),
        in_place_(in_place),
        g_(scratch.gathered),
        zeros_(scratch.prepared.zeros),
        out_(out),
        queries_(memory.readers()),
        second_queries_(g_.query_stride * memory.dims.queries),
        second_keys_(g_.products + kChunk * g_.stride) {}

  HWY_INLINE void Prepare() {
    FindFactors();
    FindPairs();
    Pack();
    const T scale = static_cast<T>(options_.scale);
    std::fill(out_.read, out_.read + queries_ * kChunk, scale);
    for (int i = 0; i < kChunk; ++i) {
      out_.step[i] = g_.step[i];
      out_.decay[i] = out_.to_end[i] = 1;
    }
    for (std::int64_t d = 0; options_.phase && d < g_.stride; ++d) {
      out_.rotation[1][d] = -out_.rotation[2][d];
      out_.rotation[3][d] = out_.row_decay[d];
    }
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());

  void FindFactors() {
    const Rows& decays = memory_.inputs.log_decay;
    for (std::int64_t i = 0; in_place_ && i < chunk_.rows; ++i) {
      const auto* row = static_cast<const T*>(decays.data) + (chunk_.first + i) * decays.stride;
      ExpRow(row, g_.stride, g_.factors + i * g_.stride);
    }
    for (std::int64_t d = 0; d < g_.stride; ++d) {
      out_.forgotten[d] = chunk_.forget && g_.factors[d] == 0 ? T(1) : T(0);
    }
  }

  /// Rows in place, or as they were gathered.
  PairRows<T> RowsOf(const Rows& rows, const T* gathered) const {
    if (!in_place_) return {gathered, g_.stride};
    return {static_cast<const T*>(rows.data) + chunk_.first * rows.stride, rows.stride};
  }

  /// The products of all pairs, and keys, erase keys and queries times their decays.
  HWY_INLINE void FindPairs() {
    // An erasure has no pair with its own row.
    const std::int64_t erasures = options_.erases() ? FirstPair(kChunk) : 0;
    PairCall<T> call{};
    call.rows = chunk_.rows;
    call.stride = g_.stride;
    call.factors = g_.factors;
    call.cosines = g_.cosines;
    call.sines = g_.sines;
    call.imaginary_carried = second_keys_;
    call.decay = out_.row_decay;
    call.rotated = out_.rotation[2];
    if (options_.erases()) {
      call.erase = {1, RowsOf(memory_.inputs.k, g_.erase), 0, nullptr, nullptr, 0, g_.sums};
    }
    call.queries = {queries_,
                    RowsOf(memory_.inputs.q, g_.query),
                    in_place_ ? memory_.q_head_stride : g_.query_stride,
                    nullptr,
                    g_.query + second_queries_,
                    g_.query_stride,
                    g_.sums + erasures * kLanes};
    for (int i = 0; i < kChunk; ++i) {
      call.reads[i] = i < chunk_.rows && memory_.Reads(chunk_.first + i);
    }
    if (options_.separate_value_key()) {
      call.keys = {g_.value, g_.stride};
      call.carried = second_keys_;
      Carry(call, erasures, out_.lower_value, out_.score_values);
    }
    // In place, and so with the last keys.
    call.erase.decayed = g_.erase;
    call.queries.decayed = g_.query;
    call.keys = RowsOf(memory_.inputs.k, g_.write);
    call.carried = g_.products;
    Carry(call, erasures, out_.lower, out_.scores);
  }

  HWY_INLINE void Carry(const PairCall<T>& call, std::int64_t erasures, T* lower, T* scores) {
    if (options_.phase) {
      CarryPairs<Carried::kComplex>(call, options_.read_before);
    } else if (options_.separate_value_key()) {
      CarryPairs<Carried::kUndecayed>(call, options_.read_before);
    } else {
      CarryPairs<Carried::kKeys>(call, options_.read_before);
    }
    SumPairs(erasures + queries_ * kPairs, g_.sums);
    if (options_.erases()) UnfoldPairs(g_.sums, false, T(-1), lower);
    for (std::int64_t q = 0; q < queries_; ++q) {
      UnfoldPairs(g_.sums + erasures + q * kPairs, !options_.read_before,
                  static_cast<T>(options_.scale), scores + q * kChunk * kChunk);
    }
  }

  /// Rows as columns, the imaginary part of complex ones `second` numbers behind the real part.
  HWY_INLINE void PackPlane(const T* rows, bool reads, std::int64_t second, T* to) {
    const std::int64_t keys = memory_.dims.key_dim;
    PackColumns(memory_, chunk_, rows, g_.stride, reads, zeros_, to);
    if (options_.phase) {
      PackColumns(memory_, chunk_, rows + second, g_.stride, reads, zeros_, to + keys * kChunk);
    }
    PadColumns(to, (options_.phase ? 2 : 1) * keys, StateRows<T>(options_, keys));
  }

  HWY_INLINE void Pack() {
    const std::int64_t columns = StateRows<T>(options_, memory_.dims.key_dim) * kChunk;
    if (options_.erases()) PackPlane(g_.erase, false, 0, out_.columns.erase);
    if (options_.separate_value_key()) PackPlane(second_keys_, false, 0, out_.columns.value);
    PackPlane(g_.products, false, kChunk * g_.stride, out_.columns.write);
    for (std::int64_t q = 0; q < queries_; ++q) {
      PackPlane(g_.query + q * g_.query_stride, true, second_queries_,
                out_.columns.queries + q * columns);
    }
  }

  const Options& options_;
  const Memory& memory_;
  const Chunk& chunk_;
  const bool in_place_;
  const Gathered<T>& g_;
  const T* zeros_;
  const Prepared<T>& out_;
  const std::int64_t queries_, second_queries_;  // from queries to those of a pair's second
  T* const second_keys_;                         // separate value keys, or imaginary parts of keys
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_DECAY_INL_H_
