// A few rows: the state is updated in place, with one read and one write of every element a row.
// Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_DECODE_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_DECODE_DECODE_INL_H_
#undef TTR_FAST_WEIGHTS_DECODE_DECODE_INL_H_
#else
#define TTR_FAST_WEIGHTS_DECODE_DECODE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/output_scaling-inl.h"
#include "src/engines/fast_weights/chunked/prepared.h"
#include "src/engines/fast_weights/decode/columns-inl.h"
#include "src/engines/fast_weights/decode/deferred_write-inl.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// What multiplying by a decay of zero would not do: forget what is not finite, too.
template <class T>
void ForgetRows(const Options& options, const Memory& memory, const Chunk& chunk,
                const T* forgotten) {
  auto forget = [&](const Rows& matrix) {
    for (std::int64_t row = 0; row < memory.dims.key_dim; ++row) {
      if (options.by_channel() && forgotten[row] == 0) continue;
      T* m = static_cast<T*>(matrix.data) + row * matrix.stride;
      std::fill(m + memory.extent.first_column, m + memory.extent.end_column, T(0));
    }
  };
  forget(memory.entries.state);
  if (options.phase || chunk.forget_update) forget(memory.entries.second);
}

/// The decay of one row, and how a paired memory rotates.
template <class T>
void PrepareDecay(const Options& options, const Chunk& chunk, const Gathered<T>& g,
                  const Prepared<T>& out) {
  const bool channels = options.by_channel();
  out.decay[0] = channels ? T(1) : g.seen[0];
  if (!channels) {
    std::fill_n(out.row_decay, g.stride, g.decay[0]);
  } else {
    std::copy_n(g.factors, g.stride, out.row_decay);
    std::copy_n(g.write, g.stride, g.products);
    for (std::int64_t d = 0; d < g.stride; ++d) {
      out.forgotten[d] = chunk.forget && g.factors[d] == 0 ? T(1) : T(0);
    }
    MultiplyRows(g.erase, g.factors, g.stride, g.products + g.stride);
  }
  if (options.phase) {
    MultiplyRows(g.factors, g.sines, g.stride, out.rotation[2]);
    MultiplyRows(g.factors, g.cosines, g.stride, out.rotation[3]);
    std::copy_n(out.rotation[3], g.stride, out.rotation[0]);
    std::copy_n(out.rotation[2], g.stride, out.rotation[1]);
    MultiplyBy(out.rotation[1], g.stride, T(-1));
  }
  if (options.momentum) {
    std::fill_n(out.rotation[1], g.stride, g.momentum[0]);
    std::fill_n(out.rotation[3], g.stride, g.momentum[0]);
  }
}

/// Query q of one row: as it reads the memory before its decay, and what it reads of its own write.
template <class T>
void PrepareQuery(const Options& options, const Memory& memory, std::int64_t q,
                  const Gathered<T>& g, const Prepared<T>& out) {
  const T scale = static_cast<T>(options.scale);
  T* const query = g.query + q * g.query_stride;
  T* const second = query + g.query_stride * memory.dims.queries;  // that reads N
  T& score = out.scores[q * kChunk * kChunk];
  T& score_value = out.score_values[q * kChunk * kChunk];
  out.read[q * kChunk] = scale;
  score = score_value = 0;
  if (!memory.writes()) return;
  if (options.read_before) {
    if (options.bonus) score = Bonus(options, g, 0, query);
    return;
  }
  score = scale * Dot(query, g.write, g.stride);
  if (options.separate_value_key()) score_value = scale * Dot(query, g.value, g.stride);
  if (options.paired()) MultiplyRows(query, out.rotation[1], g.stride, second);
  if (options.by_channel() || options.paired()) {
    MultiplyRows(query, out.row_decay, g.stride, query);
  } else {
    out.read[q * kChunk] *= g.decay[0];
  }
}

/// The coefficients of one row: what chunked/prepare-inl.h finds for a chunk. Keys and queries are
/// used `in_place` or gathered.
template <class T>
void PrepareRow(const Options& options, const Memory& memory, const Chunk& chunk, bool in_place,
                Scratch<T>& scratch, const Prepared<T>& out) {
  Gathered<T>& g = scratch.gathered;
  const std::int64_t queries = memory.Reads(chunk.first) ? memory.readers() : 0;
  if (!in_place) GatherRows(options, memory, chunk, scratch.running, g);
  GatherNumbers(options, memory, chunk, scratch.running, g, chunk.rows);
  if (memory.writes()) {
    out.step[0] = g.step[0];
    out.to_end[0] = 1;
    PrepareDecay(options, chunk, g, out);
  }
  for (std::int64_t q = 0; q < queries; ++q) PrepareQuery(options, memory, q, g, out);
  if (queries > 0) ScaleOutputs(options, memory, chunk, scratch, out);
  if (memory.writes() && options.denominator != Denominator::kNone) {
    UpdateSum(options, chunk, scratch, out);
  }
}

/// Fetches what a sequence of a few rows begins by waiting for.
template <class T>
void FetchInputs(const Options& options, const Memory& memory) {
  auto fetch = [](const Rows& rows, std::int64_t offset, std::int64_t count) {
    if (!rows) return;
    const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
    simd::FetchRow(static_cast<const char*>(rows.data) + offset * size, count * size);
  };
  fetch(memory.inputs.k, 0, memory.dims.input_dim);
  fetch(memory.inputs.q, 0, memory.dims.input_dim);
  fetch(memory.inputs.v, memory.extent.first_column,
        memory.extent.end_column - memory.extent.first_column);
  fetch(memory.y, memory.extent.first_column,
        memory.extent.end_column - memory.extent.first_column);
  for (const Rows& rows :
       {memory.inputs.log_decay, memory.inputs.erase_key, memory.inputs.erase_gate}) {
    fetch(rows, 0, memory.dims.input_dim);
  }
  if (!memory.deferred.keys) return;
  const DeferredWrite<T> deferred(memory);
  simd::FetchRow(deferred.head, 1);
  if (options.by_channel()) simd::FetchRow(deferred.decay, memory.dims.key_dim);
  for (int i = 0; i < (options.separate_value_key() ? 2 : 1); ++i) {
    simd::FetchRow(deferred.write[i], memory.dims.key_dim);
    simd::FetchRow(deferred.value[i], memory.dims.value_dim);
  }
}

/// Can rows of a single token, and those of other heads, be used in place: whole lines of T?
template <class T>
bool IsWhole(const Rows& rows, std::int64_t head_stride, std::int64_t count) {
  return rows && rows.dtype == DTypeOf<T>() && count % kLine<T> == 0 &&
         head_stride % kLine<T> == 0 &&
         reinterpret_cast<std::uintptr_t>(rows.data) % kLineBytes == 0;
}

/// A sequence of a few rows.
template <class T>
class DecodeRun {
 public:
  DecodeRun(const Options& options, const Memory& memory, const Memory& next, Scratch<T>& scratch)
      : options_(options),
        memory_(memory),
        next_(next),
        scratch_(scratch),
        gathered_(scratch.gathered),
        prepared_(options, memory, scratch, 0),
        columns_(RoundUp(memory.dims.value_dim, kLine<T>)),
        width_(memory.extent.end_column - memory.extent.first_column) {
    if (memory.dims.rows != 1) return;
    keys_in_place_ = KeysInPlace<T>(options, memory) && !options.by_channel() &&
                     !options.normalise_qk && IsWhole<T>(memory.inputs.k, 0, memory.dims.key_dim) &&
                     IsWhole<T>(memory.inputs.q, memory.q_head_stride, memory.dims.key_dim);
    values_in_place_ = IsWhole<T>(memory.inputs.v, 0, width_);
    outputs_in_place_ = options.output_norm == OutputNorm::kNone &&
                        IsWhole<T>(memory.y, memory.y_head_stride, width_);
  }

  void Run() {
    FetchInputs<T>(options_, next_);
    WithRows([&] {
      for (std::int64_t r = 0; r < memory_.dims.rows; ++r) Row(r);
    });
  }

  const Prepared<T>& prepared() const { return prepared_; }
  bool keys_in_place() const { return keys_in_place_; }
  bool values_in_place() const { return values_in_place_; }
  bool outputs_in_place() const { return outputs_in_place_; }

  /// Calls run() while `gathered` has keys and queries where they lie, if they are used there.
  template <class Function>
  void WithRows(const Function& run) {
    Gathered<T>& g = scratch_.gathered;
    const auto own = std::tuple(g.write, g.erase, g.query, g.query_stride);
    if (keys_in_place_) {
      g.write = g.erase = static_cast<T*>(memory_.inputs.k.data);  // which nobody writes
      g.query = static_cast<T*>(memory_.inputs.q.data);
      g.query_stride = memory_.q_head_stride;
    }
    run();
    std::tie(g.write, g.erase, g.query, g.query_stride) = own;
  }

  /// Row r, which is prepared: on the state in place, or deferred.
  void Apply(std::int64_t r, const Chunk& chunk) {
    const Deferral<T> deferral(options_, memory_, prepared_.row_decay);
    const bool defers = Defers(chunk, deferral);
    RowStep<T> s{};
    s.key_dim = memory_.dims.key_dim;
    SetReads(r, s.reads);
    // What reads before reads what is then forgotten.
    if (chunk.forget && options_.read_before && s.reads.queries > 0) {
      StepRow(memory_, s, scratch_.strips);
      s.reads.ask = false;
    }
    if (chunk.forget) ForgetRows(options_, memory_, chunk, prepared_.forgotten);
    if (memory_.writes()) SetWrite(r, s);
    if (defers) deferral.Take(EraseKey(), gathered_.query, prepared_.read, s);
    StepRow(memory_, s, scratch_.strips);
    if (defers) deferral.Leave(s);
    for (std::int64_t q = 0; q < s.reads.queries && !outputs_in_place_; ++q) {
      T* y = scratch_.columns.outputs + q * columns_ + memory_.extent.first_column;
      NormaliseOutput(options_, y, width_);
      StoreRow(y, memory_.Token(r), q * memory_.y_head_stride + memory_.extent.first_column, width_,
               memory_.y);
    }
  }

  /// r as it meets the memory: decayed, where decays are rows and it does not see the memory
  /// before.
  T* EraseKey() const {
    const bool decayed = options_.by_channel() && !options_.separate_value_key();
    return decayed ? gathered_.products + gathered_.stride : gathered_.erase;
  }

 private:
  void Row(std::int64_t r) {
    const Chunk chunk = NextChunk<T>(options_, memory_, r, 1);
    PrepareRow(options_, memory_, chunk, keys_in_place_, scratch_, prepared_);
    Apply(r, chunk);
  }

  /// Is the row's write deferred? Where it is not, none is deferred before it.
  bool Defers(const Chunk& chunk, const Deferral<T>& deferral) const {
    if (!memory_.deferred.keys) return false;
    const bool may = memory_.writes() && !chunk.forget;
    if (may && deferral.Fits()) return true;
    FlushRows<T>(memory_);
    return may && deferral.Fits();  // with nothing deferred
  }

  void SetReads(std::int64_t r, RowReads<T>& reads) const {
    reads.queries = memory_.Reads(r) ? memory_.readers() : 0;
    reads.ask = true;
    reads.add_own = !options_.read_before || options_.bonus;
    reads.query = gathered_.query;
    reads.query_stride = gathered_.query_stride;
    reads.read = prepared_.read;
    reads.score = prepared_.scores;
    reads.score_value = prepared_.score_values;
    reads.outputs = outputs_in_place_ ? static_cast<T*>(memory_.y.data) : scratch_.columns.outputs;
    reads.output_stride = outputs_in_place_ ? memory_.y_head_stride : columns_;
  }

  void SetWrite(std::int64_t r, RowStep<T>& s) const {
    const std::int64_t column = memory_.extent.first_column;
    T* const values = scratch_.columns.values;
    if (!values_in_place_) LoadRow(memory_.inputs.v, r, column, width_, values + column);
    s.value = values_in_place_ ? static_cast<const T*>(memory_.inputs.v.data) : values;
    s.decay = prepared_.row_decay;
    s.erase = options_.erases() ? EraseKey() : nullptr;
    s.write = gathered_.write;
    s.value_key = options_.separate_value_key() ? gathered_.value : nullptr;
    s.erased = prepared_.decay[0];
    s.step = prepared_.step[0];
    if (options_.paired()) SetSecond(s);
    if (r < memory_.dims.rows - 1 || !next_.entries.state) return;
    s.next = static_cast<const T*>(next_.entries.state.data) + next_.extent.first_column;
    if (options_.paired()) {
      s.second.next = static_cast<const T*>(next_.entries.second.data) + next_.extent.first_column;
    }
  }

  void SetSecond(RowStep<T>& s) const {
    s.second.state = static_cast<T*>(memory_.entries.second.data);
    s.second.stride = memory_.entries.second.stride;
    std::copy_n(prepared_.rotation + 1, 3, s.second.rotation);
    s.second.both = options_.momentum;
    if (options_.read_before || s.reads.queries == 0) return;
    s.second.query = gathered_.query + gathered_.query_stride * memory_.dims.queries;
  }

  const Options& options_;
  const Memory& memory_;
  const Memory& next_;  // only fetched towards the caches
  Scratch<T>& scratch_;
  const Gathered<T>& gathered_;
  const Prepared<T> prepared_;
  const std::int64_t columns_, width_;
  bool keys_in_place_ = false, values_in_place_ = false, outputs_in_place_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DECODE_DECODE_INL_H_
