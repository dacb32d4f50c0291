// A few rows (decode): the state is updated where it lies, with one read and one write of every
// element a row. Compiled once for every target.

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
void ForgetRows(const Options& options, const Memory& memory, const T* forgotten) {
  auto forget = [&](const Rows& matrix) {
    for (std::int64_t row = 0; row < memory.key_dim; ++row) {
      if (options.by_channel() && forgotten[row] == 0) continue;
      T* m = static_cast<T*>(matrix.data) + row * matrix.stride;
      std::fill(m + memory.first_column, m + memory.end_column, T(0));
    }
  };
  forget(memory.state);
  if (options.phase) forget(memory.second);  // a last update is no memory
}

/// How the parts of a complex memory turn.
template <class T>
void PreparePhase(const Gathered<T>& g, const Prepared<T>& out) {
  MultiplyRows(g.factors, g.sines, g.stride, out.turn[2]);
  MultiplyRows(g.factors, g.cosines, g.stride, out.turn[3]);
  std::copy_n(out.turn[3], g.stride, out.turn[0]);
  std::copy_n(out.turn[2], g.stride, out.turn[1]);
  MultiplyBy(out.turn[1], g.stride, T(-1));
}

/// The coefficients of one row: what chunked/output_scaling-inl.h does for a chunk. Does it `lie`
/// where the inputs are, in whole vectors? Otherwise it is gathered.
template <class T>
void PrepareRow(const Options& options, const Memory& memory, const Chunk& chunk, bool lie,
                Scratch<T>& scratch, const Prepared<T>& out) {
  Gathered<T>& g = scratch.gathered;
  const std::int64_t queries = memory.q && memory.Reads(chunk.first) ? memory.queries : 0;
  const T scale = static_cast<T>(options.scale);
  const bool channels = options.by_channel();
  const std::int64_t imaginary = g.query_stride * memory.queries;  // that read N
  if (!lie) GatherRows(options, memory, chunk, scratch.carried, g);
  GatherNumbers(options, memory, chunk, scratch.carried, g, chunk.rows);
  if (memory.writes()) {
    out.step[0] = g.step[0];
    out.to_end[0] = 1;
    out.decay[0] = channels ? T(1) : g.seen[0];
    if (channels) {
      std::copy_n(g.factors, g.stride, out.row_decay);
      std::copy_n(g.write, g.stride, g.products);
      for (std::int64_t d = 0; d < g.stride; ++d) {
        out.forgotten[d] = chunk.forget && g.factors[d] == 0 ? T(1) : T(0);
      }
      MultiplyRows(g.erase, g.factors, g.stride, g.products + g.stride);
      if (options.phase) PreparePhase(g, out);
    } else {
      std::fill_n(out.row_decay, g.stride, g.decay[0]);
    }
    if (options.momentum) {
      std::fill_n(out.turn[1], g.stride, g.momentum[0]);
      std::fill_n(out.turn[3], g.stride, g.momentum[0]);
    }
  }
  for (std::int64_t q = 0; q < queries; ++q) {
    T* query = g.query + q * g.query_stride;
    T& score = out.scores[q * kChunk * kChunk];
    T& score_value = out.score_values[q * kChunk * kChunk];
    out.read[q * kChunk] = scale;
    score = score_value = 0;
    if (!memory.writes()) continue;
    if (options.read_before) {
      if (options.bonus) score = Bonus(options, g, 0, query);
      continue;
    }
    score = scale * Dot(query, g.write, g.stride);
    if (options.separate_value_key()) score_value = scale * Dot(query, g.value, g.stride);
    if (options.paired()) MultiplyRows(query, out.turn[1], g.stride, query + imaginary);
    if (channels || options.paired()) {
      MultiplyRows(query, out.row_decay, g.stride, query);
    } else {
      out.read[q * kChunk] *= g.decay[0];
    }
  }
  if (queries > 0) WeighReads(options, memory, chunk, scratch, out);
  if (memory.writes() && options.denominator != Denominator::kNone) {
    UpdateSum(options, chunk, scratch, out);
  }
}

/// What a sequence of a few rows begins by waiting for.
template <class T>
void FetchInputs(const Options& options, const Memory& memory) {
  auto fetch = [](const Rows& rows, std::int64_t offset, std::int64_t count) {
    if (!rows) return;
    const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
    simd::FetchRow(static_cast<const char*>(rows.data) + offset * size, count * size);
  };
  fetch(memory.k, 0, memory.input_dim);
  fetch(memory.q, 0, memory.input_dim);
  fetch(memory.v, memory.first_column, memory.end_column - memory.first_column);
  fetch(memory.y, memory.first_column, memory.end_column - memory.first_column);
  for (const Rows& rows : {memory.log_decay, memory.erase_key, memory.erase_gate}) {
    fetch(rows, 0, memory.input_dim);
  }
  if (!memory.pending) return;
  const Pending<T> pending(memory);
  simd::FetchRow(pending.head, 1);
  if (options.by_channel()) simd::FetchRow(pending.decay, memory.key_dim);
  for (int i = 0; i < (options.separate_value_key() ? 2 : 1); ++i) {
    simd::FetchRow(pending.write[i], memory.key_dim);
    simd::FetchRow(pending.value[i], memory.value_dim);
  }
}

/// Can rows of a single token, and those of other heads, be taken as they are: whole lines of T?
template <class T>
bool IsWhole(const Rows& rows, std::int64_t head_stride, std::int64_t count) {
  return rows && rows.dtype == DTypeOf<T>() && count % kLine<T> == 0 &&
         head_stride % kLine<T> == 0 &&
         reinterpret_cast<std::uintptr_t>(rows.data) % kAlignment == 0;
}

/// A sequence of a few rows.
template <class T>
void RunDirect(const Options& options, const Memory& memory, const Memory& next,
               Scratch<T>& scratch) {
  const std::int64_t columns = RoundUp(memory.value_dim, kLine<T>);
  const std::int64_t width = memory.end_column - memory.first_column;
  Gathered<T>& g = scratch.gathered;
  const Prepared<T> p(options, memory, scratch, 0);
  const bool one = memory.rows == 1;
  const bool lie = one && RowsLie<T>(options, memory) && !options.by_channel() &&
                   !options.normalise_qk && IsWhole<T>(memory.k, 0, memory.key_dim) &&
                   IsWhole<T>(memory.q, memory.q_head_stride, memory.key_dim);
  const bool values_lie = one && IsWhole<T>(memory.v, 0, width);
  const bool answers_lie = one && options.output_norm == OutputNorm::kNone &&
                           IsWhole<T>(memory.y, memory.y_head_stride, width);
  const auto home = std::tuple(g.write, g.erase, g.query, g.query_stride);
  if (lie) {
    g.write = g.erase = static_cast<T*>(memory.k.data);  // which nobody writes
    g.query = static_cast<T*>(memory.q.data);
    g.query_stride = memory.q_head_stride;
  }
  FetchInputs<T>(options, next);
  for (std::int64_t r = 0; r < memory.rows; ++r) {
    const Chunk chunk = NextChunk(options, memory, r, 1);
    PrepareRow(options, memory, chunk, lie, scratch, p);
    const Deferral<T> deferral(options, memory, p.row_decay);
    const bool may_defer = memory.pending && memory.writes() && !chunk.forget;
    bool defers = may_defer && deferral.Holds();
    if (memory.pending && !defers) {
      FlushRows<T>(memory);
      defers = may_defer && deferral.Holds();  // with nothing pending
    }
    RowStep<T> s{};
    T* erase = nullptr;
    s.key_dim = memory.key_dim;
    s.queries = memory.q && memory.Reads(r) ? memory.queries : 0;
    s.ask = true;
    s.add = !options.read_before || options.bonus;
    s.query = g.query;
    s.query_stride = g.query_stride;
    s.read = p.read;
    s.answers = answers_lie ? static_cast<T*>(memory.y.data) : scratch.outputs;
    s.answer_stride = answers_lie ? memory.y_head_stride : columns;
    // What reads before reads what is then forgotten.
    if (chunk.forget && options.read_before && s.queries > 0) {
      StepRow(memory, s, scratch.strips);
      s.ask = false;
    }
    if (chunk.forget) ForgetRows(options, memory, p.forgotten);
    if (memory.writes()) {
      if (!values_lie) {
        LoadRow(memory.v, r, memory.first_column, width, scratch.values + memory.first_column);
      }
      s.decay = p.row_decay;
      // As it meets the memory: decayed, where decays are rows and it does not see the memory
      // before.
      const bool decayed = options.by_channel() && !options.separate_value_key();
      erase = decayed ? g.products + g.stride : g.erase;
      s.erase = options.erases() ? erase : nullptr;
      s.write = g.write;
      s.value_key = options.separate_value_key() ? g.value : nullptr;
      s.erased = p.decay[0];
      s.step = p.step[0];
      s.value = values_lie ? static_cast<const T*>(memory.v.data) : scratch.values;
      s.score = p.scores;
      s.score_value = p.score_values;
      if (options.paired()) {
        s.second = static_cast<T*>(memory.second.data);
        s.second_stride = memory.second.stride;
        std::copy_n(p.turn + 1, 3, s.turn);
        s.both = options.momentum;
        const bool reads_second = !options.read_before && s.queries > 0;
        s.query_second = reads_second ? g.query + g.query_stride * memory.queries : nullptr;
      }
      if (r == memory.rows - 1 && next.state) {
        s.next = static_cast<const T*>(next.state.data) + next.first_column;
        if (options.paired())
          s.next_second = static_cast<const T*>(next.second.data) + next.first_column;
      }
    }
    if (defers) deferral.Take(erase, g.query, p.read, s);
    StepRow(memory, s, scratch.strips);
    if (defers) deferral.Leave(s);
    for (std::int64_t q = 0; q < s.queries && !answers_lie; ++q) {
      T* y = scratch.outputs + q * columns + memory.first_column;
      NormaliseOutput(options, y, width);
      StoreRow(y, memory.Token(r), q * memory.y_head_stride + memory.first_column, width, memory.y);
    }
  }
  std::tie(g.write, g.erase, g.query, g.query_stride) = home;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DECODE_DECODE_INL_H_
