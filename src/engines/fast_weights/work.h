/// How a call is cut into memories: sequences, heads and strips of columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/engines/common/row_views.h"
#include "src/engines/fast_weights/decode/deferred_write.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "src/engines/fast_weights/kernel.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/saved.h"

namespace ttr::fast_weights {

/// Below this many flops a second thread costs more than it brings (some ten microseconds).
inline constexpr double kFlopsWorthThreads = 1e6;

using common::RowsOf;
using common::Sequence;
using common::StateOf;

/// The state of a memory beside its columns: rows and numbers, in any type.
inline std::int64_t SharedBytes(const Sizes& sizes) {
  const std::int64_t numbers =
      DeferredWrite<double>::KeyNumbers(sizes.key_dim) + 2 * sizes.key_dim + 2;
  return RoundUp(numbers * static_cast<std::int64_t>(sizeof(double)), kAlignment);
}

/// The sizes of one call and how it is cut into tasks.
struct Work {
  const Options& options;
  const Call& call;
  Sizes sizes;
  std::int64_t sequences, heads, tokens;  // tokens: of all sequences
  std::int64_t parts = 1;                 // column ranges of one memory
  std::int64_t part_columns = 0;
  std::byte* copies = nullptr;  // SharedBytes of every part but the first of a memory

  Work(const Options& o, const Call& c) : options(o), call(c) {
    sequences = call.cu_seqlens.empty() ? call.state.size(0)
                                        : static_cast<std::int64_t>(call.cu_seqlens.size()) - 1;
    heads = call.state.size(1);
    sizes.key_dim = call.state.size(2);
    sizes.input_dim = call.k.defined()   ? call.k.size(3)
                      : call.q.defined() ? call.q.size(3)
                                         : sizes.key_dim;
    sizes.value_dim = call.state.size(3);
    sizes.state = call.state.dtype();
    if (call.q.defined()) sizes.queries = std::max<std::int64_t>(1, call.q.size(2) / heads);
    tokens = call.cu_seqlens.empty() ? sequences * Length() : Length();
    for (std::int64_t n = 0; n < sequences; ++n) {
      sizes.tokens = std::max(sizes.tokens, SequenceOf(n).tokens);
    }
    part_columns = sizes.value_dim;
  }

  /// Tokens of a batch row; none where nothing is read or written.
  std::int64_t Length() const {
    if (call.q.defined()) return call.q.size(1);
    return call.v.defined() ? call.v.size(1) / options.steps : 0;
  }

  Sequence SequenceOf(std::int64_t n) const {
    if (call.cu_seqlens.empty()) return {n, 0, Length()};
    const auto i = static_cast<std::size_t>(n);
    return {0, call.cu_seqlens[i], call.cu_seqlens[i + 1] - call.cu_seqlens[i]};
  }

  double Flops() const {
    return 6.0 * static_cast<double>(tokens * heads * options.steps) *
           static_cast<double>(sizes.key_dim) * static_cast<double>(sizes.value_dim);
  }

  /// Value columns are independent: cut them where memories alone do not employ all threads. An
  /// output norm needs whole rows. Each thread has at most one part that is not a memory's first.
  void Cut(int threads) {
    const std::int64_t memories = sequences * heads;
    if (memories >= threads || options.output_norm != OutputNorm::kNone) return;
    const std::int64_t width = StripColumns(sizes.state);
    const std::int64_t strips = (sizes.value_dim + width - 1) / width;
    const std::int64_t wanted = (threads + memories - 1) / memories;
    const std::int64_t strips_a_part = (strips + wanted - 1) / wanted;
    part_columns = strips_a_part * width;
    parts = (strips + strips_a_part - 1) / strips_a_part;
  }

  /// The state beside the columns belongs to all parts of a memory. The first part updates it; the
  /// others update copies, made before any part runs.
  void CopyShared(std::byte* to) {
    if (parts == 1) return;
    for (std::int64_t memory = 0; memory < sequences * heads; ++memory) {
      const Memory m = MemoryOf(memory * parts);
      for (std::int64_t part = 1; part < parts; ++part) {
        std::byte* at = to + (memory * (parts - 1) + part - 1) * SharedBytes(sizes);
        ForShared(m, [&](const Rows& shared, std::size_t bytes) {
          if (shared) std::memcpy(at, shared.data, bytes);
          at += RoundUp(static_cast<std::int64_t>(bytes), sizeof(double));
        });
      }
    }
    copies = to;
  }

  /// Tasks, where memories are not interleaved.
  std::int64_t items() const { return sequences * heads * parts; }

  /// How many neighbouring memories a worker interleaves in time slices; at most `most`.
  std::int64_t Together(int workers, std::int64_t most) const {
    const TensorView& rows = call.v.defined() ? call.v : call.q;
    if (parts > 1 || !common::HeadsSharePages(rows, sizes.tokens)) return 1;
    return common::MemoriesTogether(sequences * heads, workers, std::min(most, heads));
  }

  /// The head of an input that memory h reads. (Divisions would be felt in a decode of small
  /// states.)
  std::int64_t HeadOf(std::int64_t h, const TensorView& input) const {
    return input.size(2) == heads ? h : h * input.size(2) / heads;
  }

  /// Memory h's rows of an input, or of its gradient, in sequence n.
  Rows RowsOfOperand(const TensorView& view, Per per, std::int64_t h,
                     const Sequence& sequence) const {
    switch (per) {
      case Per::kQuery:
        return RowsOf(view, sequence.batch, sequence.first,
                      sizes.queries > 1 ? h * sizes.queries : HeadOf(h, view));
      case Per::kStep:
        return RowsOf(view, sequence.batch, sequence.first * options.steps, HeadOf(h, view));
      case Per::kToken: return RowsOf(view, sequence.batch, sequence.first, h);
      case Per::kHead: break;
    }
    return {common::ElementOf(view, h * view.stride(0)), view.dtype(), 0};
  }

  /// Memory h of sequence n in inputs, or in their gradients.
  void PointTo(const Operands<TensorView>& views, std::int64_t n, std::int64_t h,
               Operands<Rows>& rows) const {
    const Sequence sequence = SequenceOf(n);
    ForEachOperand(views, rows, [&](const TensorView& view, Rows& to, Per per) {
      if (view.defined()) to = RowsOfOperand(view, per, h, sequence);
    });
  }
  /// The same of states.
  void PointTo(const StateOperands<TensorView>& views, std::int64_t n, std::int64_t h,
               StateOperands<Rows>& rows) const {
    ForEachOperand(views, rows,
                   [&](const TensorView& view, Rows& to) { to = StateOf(view, n, h); });
  }

  /// Task number `item`, of sequences x heads x parts.
  Memory MemoryOf(std::int64_t item) const {
    const std::int64_t memory = parts == 1 ? item : item / parts;
    const std::int64_t part = item - memory * parts;
    const std::int64_t n = memory / heads;
    const std::int64_t h = memory - n * heads;
    const Sequence sequence = SequenceOf(n);
    Memory m;
    PointTo(call, n, h, static_cast<Operands<Rows>&>(m));
    PointTo(call, n, h, static_cast<StateOperands<Rows>&>(m));
    // Where nothing is written, what a write would take is not looked at.
    if (!call.v.defined()) {
      static_cast<Operands<Rows>&>(m) = {
          .q = m.q, .features_w = m.features_w, .features_b = m.features_b};
    }
    m.read_before = options.read_before;
    m.steps = call.v.defined() ? options.steps : 1;
    m.rows = sequence.tokens * m.steps;
    if (!call.decay_factors.empty()) {
      m.decay_factor = call.decay_factors[static_cast<std::size_t>(h)];
    }
    if (call.q.defined()) {
      m.y = RowsOf(call.y, sequence.batch, sequence.first, h * sizes.queries);
      m.q_head_stride = call.q.stride(2);
      m.y_head_stride = call.y.stride(2);
      if (call.status.defined()) {
        const TensorView& status = call.status;
        m.status = status.as<std::int8_t>() + sequence.batch * status.stride(0) +
                   sequence.first * status.stride(1) + h * sizes.queries * status.stride(2);
        m.status_stride = status.stride(1);
        m.status_head_stride = status.stride(2);
      }
    }
    m.to = m.rows;
    if (call.deferred.defined()) {
      m.deferred = StateOf(call.deferred, n, h);
      m.deferred_values =
          static_cast<std::byte*>(m.deferred.data) + DeferredKeyBytes(m.deferred.dtype);
    }
    if (sizes.saved) PointToSaved(n, h, sequence, m);
    if (call.features_w.defined()) m.features = call.features_w.size(1);
    m.input_dim = sizes.input_dim;
    m.key_dim = sizes.key_dim;
    m.feature_dim = sizes.key_dim - (options.intercept ? 1 : 0);
    m.value_dim = sizes.value_dim;
    m.queries = sizes.queries;
    m.first_column = part * part_columns;
    m.end_column = std::min(sizes.value_dim, m.first_column + part_columns);
    if (part > 0) {
      std::byte* at = copies + (memory * (parts - 1) + part - 1) * SharedBytes(sizes);
      ForShared(m, [&](Rows& shared, std::size_t bytes) {
        if (shared) shared.data = at;
        at += RoundUp(static_cast<std::int64_t>(bytes), sizeof(double));
      });
      m.status = nullptr;
    }
    return m;
  }

  std::int64_t DeferredKeyBytes(DType dtype) const {
    return dtype == DType::kFloat64
               ? DeferredWrite<double>::KeyNumbers(sizes.key_dim) * std::int64_t{sizeof(double)}
               : DeferredWrite<float>::KeyNumbers(sizes.key_dim) * std::int64_t{sizeof(float)};
  }

  /// Calls visit(rows, bytes) for all of the state beside the columns; what has rows of whole
  /// vectors comes first.
  template <class AnyMemory, class Visit>
  void ForShared(AnyMemory& memory, const Visit& visit) const {
    const auto row = static_cast<std::size_t>(memory.key_dim);
    visit(memory.deferred, static_cast<std::size_t>(DeferredKeyBytes(memory.deferred.dtype)));
    visit(memory.sum, row * SizeOf(memory.sum.dtype));
    visit(memory.curvature, row * SizeOf(memory.curvature.dtype));
    visit(memory.maximum, SizeOf(memory.maximum.dtype));
    visit(memory.position, SizeOf(memory.position.dtype));
  }

  /// Points to the memory's part of what is saved.
  void PointToSaved(std::int64_t n, std::int64_t h, const Sequence& sequence, Memory& m) const {
    const bool packed = !call.cu_seqlens.empty();
    const SavedLayout layout(options, sizes, sequences, Length(), packed);
    const std::int64_t first = packed ? sequence.first : n * Length();
    const auto size = static_cast<std::int64_t>(SizeOf(sizes.state));
    std::byte* const arrays = SavedArrays(*this);
    m.saved_states = arrays + layout.StatesOf(h, n, first) * size;
    if (layout.errors) m.saved_errors = arrays + layout.ErrorsOf(heads, h, first) * size;
    if (layout.outputs > 0) m.saved_outputs = arrays + layout.OutputsOf(heads, h, first) * size;
    if (layout.sums > 0) m.saved_sums = arrays + layout.SumsOf(heads, h, first) * size;
  }
};

}  // namespace ttr::fast_weights
