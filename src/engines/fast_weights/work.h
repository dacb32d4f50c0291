/// How a call is cut into memories: sequences, heads and strips of columns.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/engines/common/row_views.h"
#include "src/engines/common/sequences.h"
#include "src/engines/common/tasks.h"
#include "src/engines/fast_weights/decode/deferred_write.h"
#include "src/engines/fast_weights/decode/pending.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "src/engines/fast_weights/kernel.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/saved.h"

namespace ttr::fast_weights {

using common::RowsOf;
using common::StateOf;

/// The state of a memory beside its columns: rows and numbers, in any type.
inline std::int64_t SharedBytes(const Options& options, const Sizes& sizes) {
  const std::int64_t waiting =
      std::max(DeferredWrite<double>::KeyNumbers(sizes.key_dim), PendingKeyNumbers(options, sizes));
  const std::int64_t numbers = waiting + 2 * sizes.key_dim + 2;
  return RoundUp(numbers * static_cast<std::int64_t>(sizeof(double)), kLineBytes);
}

/// The sizes of one call and how it is cut into tasks: memories, or parts of their columns.
struct Work {
  const Options& options;
  const Call& call;
  common::Sequences sequences;
  common::Heads heads;
  Sizes sizes;
  common::ColumnParts columns;
  std::byte* copies = nullptr;  // SharedBytes of every part but the first of a memory

  Work(const Options& o, const Call& c)
      : options(o),
        call(c),
        sequences(call.cu_seqlens, call.state.size(0), LengthOf(o, c), call.slots),
        heads(call.state.size(1), call.q),
        sizes{.tokens = sequences.longest(),
              .input_dim = call.k.defined()   ? call.k.size(3)
                           : call.q.defined() ? call.q.size(3)
                                              : call.state.size(2),
              .key_dim = call.state.size(2),
              .value_dim = call.state.size(3),
              .queries = heads.queries,
              .state = WideOf(call.state.dtype()),
              .rounded = IsNarrow(call.state.dtype()),
              .pairs = call.pending.defined() ? call.room.pairs() : 0},
        columns{.columns = sizes.value_dim} {}

  /// Tokens of a batch row; none where nothing is read or written.
  static std::int64_t LengthOf(const Options& options, const Call& call) {
    if (call.q.defined()) return call.q.size(1);
    return call.v.defined() ? call.v.size(1) / options.steps : 0;
  }

  std::int64_t memories() const { return sequences.count() * heads.memories; }

  /// Does the forward pass leave anything in call.saved? A decode does not.
  bool Saves() const {
    return !call.saved.empty() && sizes.pairs == 0 && !IsDecode(sizes.tokens * options.steps);
  }

  /// Tasks, where memories are not interleaved.
  std::int64_t items() const { return memories() * columns.count; }

  int Threads(const Executor& executor) const {
    const double flops = 6.0 *
                         static_cast<double>(sequences.tokens() * heads.memories * options.steps) *
                         static_cast<double>(sizes.key_dim) * static_cast<double>(sizes.value_dim);
    return common::ThreadsFor(executor, flops >= common::kFlopsWorthThreads);
  }

  /// Value columns are independent: cuts them where memories alone do not employ all threads. An
  /// output norm needs whole rows. Each thread has at most one part that is not a memory's first.
  void Cut(int threads) {
    if (options.output_norm != OutputNorm::kNone) return;
    columns.Cut(memories(), threads, StripColumns(sizes.state));
  }

  /// The state beside the columns belongs to all parts of a memory. The first part updates it; the
  /// others update copies, made before any part runs.
  void CopyShared(std::byte* to) {
    if (columns.count == 1) return;
    copies = to;
    for (std::int64_t memory = 0; memory < memories(); ++memory) {
      const Memory m = MemoryOf(memory * columns.count);
      for (std::int64_t part = 1; part < columns.count; ++part) {
        std::byte* at = CopyOf(memory, part);
        ForShared(m, [&](const Rows& shared, std::size_t bytes) {
          if (shared) std::memcpy(at, shared.data, bytes);
          at += RoundUp(static_cast<std::int64_t>(bytes), sizeof(double));
        });
      }
    }
  }
  std::byte* CopyOf(std::int64_t memory, std::int64_t part) const {
    return copies + (memory * (columns.count - 1) + part - 1) * SharedBytes(options, sizes);
  }

  /// How many neighbouring memories a worker interleaves in time slices; at most `most`.
  std::int64_t Together(int workers, std::int64_t most) const {
    const TensorView& rows = call.v.defined() ? call.v : call.q;
    if (columns.count > 1 || sizes.pairs > 0 || !common::HeadsSharePages(rows, sizes.tokens)) {
      return 1;
    }
    return common::MemoriesTogether(memories(), workers, std::min(most, heads.memories));
  }

  /// Memory h's rows of an input, or of its gradient, in sequence n.
  Rows RowsOfOperand(const TensorView& view, Per per, std::int64_t h,
                     const common::Sequence& sequence) const {
    switch (per) {
      case Per::kQuery: return RowsOf(view, sequence, heads.QueryOf(h, view));
      case Per::kStep:
        return RowsOf(view, sequence.batch, sequence.first * options.steps, heads.Of(h, view));
      case Per::kToken: return RowsOf(view, sequence, h);
      case Per::kHead: break;
    }
    return common::ConstantOf(view, h);
  }

  /// Memory h of sequence n in inputs, or in their gradients.
  void PointTo(const Operands<TensorView>& views, std::int64_t n, std::int64_t h,
               Operands<Rows>& rows) const {
    const common::Sequence sequence = sequences[n];
    ForEachOperand(views, rows, [&](const TensorView& view, Rows& to, Per per) {
      if (view.defined()) to = RowsOfOperand(view, per, h, sequence);
    });
  }
  /// Memory h of row n of states, or of their gradients.
  void PointTo(const StateOperands<TensorView>& views, std::int64_t n, std::int64_t h,
               StateOperands<Rows>& rows) const {
    ForEachOperand(views, rows,
                   [&](const TensorView& view, Rows& to) { to = StateOf(view, n, h); });
  }

  /// Task number `item`, of sequences x heads x parts.
  Memory MemoryOf(std::int64_t item) const {
    const auto [n, h, part] = common::Task::Of(item, heads.memories, columns.count);
    const common::Sequence sequence = sequences[n];
    Memory m;
    PointTo(call, n, h, m.inputs);
    const std::int64_t state = sequences.StateRow(n);
    PointTo(call, state, h, m.entries);
    // Where nothing is written, what a write would take is not looked at.
    if (!call.v.defined()) {
      m.inputs = {
          .q = m.inputs.q, .features_w = m.inputs.features_w, .features_b = m.inputs.features_b};
    }
    m.read_before = options.read_before;
    m.dims.steps = call.v.defined() ? options.steps : 1;
    m.dims.rows = sequence.tokens * m.dims.steps;
    if (!call.decay_factors.empty()) {
      m.decay_factor = call.decay_factors[static_cast<std::size_t>(h)];
    }
    if (call.q.defined()) {
      m.y = RowsOf(call.y, sequence, heads.OutputOf(h));
      m.q_head_stride = call.q.stride(2);
      m.y_head_stride = call.y.stride(2);
      if (call.status.defined()) {
        const TensorView& status = call.status;
        m.status.data = static_cast<std::int8_t*>(RowsOf(status, sequence, heads.OutputOf(h)).data);
        m.status.stride = status.stride(1);
        m.status.head_stride = status.stride(2);
      }
    }
    m.extent.to = m.dims.rows;
    if (call.deferred.defined()) {
      m.deferred.keys = StateOf(call.deferred, state, h);
      m.deferred.values =
          static_cast<std::byte*>(m.deferred.keys.data) + DeferredKeyBytes(m.deferred.keys.dtype);
    }
    if (sizes.pairs > 0) PointToPending(state, h, m);
    if (sizes.saved) PointToSaved(n, h, m);
    if (call.features_w.defined()) m.dims.features = call.features_w.size(1);
    m.dims.input_dim = sizes.input_dim;
    m.dims.key_dim = sizes.key_dim;
    m.dims.feature_dim = sizes.key_dim - (options.intercept ? 1 : 0);
    m.dims.value_dim = sizes.value_dim;
    m.dims.queries = sizes.queries;
    m.extent.first_column = columns.First(part);
    m.extent.end_column = m.extent.first_column + columns.Columns(part);
    if (part > 0) {
      std::byte* at = CopyOf(n * heads.memories + h, part);
      ForShared(m, [&](Rows& shared, std::size_t bytes) {
        if (shared) shared.data = at;
        at += RoundUp(static_cast<std::int64_t>(bytes), sizeof(double));
      });
      m.status = {};
    }
    return m;
  }

  std::int64_t DeferredKeyBytes(DType dtype) const {
    return dtype == DType::kFloat64
               ? DeferredWrite<double>::KeyNumbers(sizes.key_dim) * std::int64_t{sizeof(double)}
               : DeferredWrite<float>::KeyNumbers(sizes.key_dim) * std::int64_t{sizeof(float)};
  }
  void PointToPending(std::int64_t state, std::int64_t h, Memory& m) const {
    m.pending.keys = StateOf(call.pending, state, h);
    m.pending.values = static_cast<std::byte*>(m.pending.keys.data) + PendingKeyBytes();
    m.pending.pairs = sizes.pairs;
    m.pending.window = call.room.window;
    m.pending.kept = call.room.kept;
  }
  std::int64_t PendingKeyBytes() const {
    if (sizes.pairs == 0) return 0;
    return PendingKeyNumbers(options, sizes) * static_cast<std::int64_t>(SizeOf(sizes.state));
  }

  /// Calls visit(rows, bytes) for all of the state beside the columns; what has rows of whole
  /// vectors comes first.
  template <class AnyMemory, class Visit>
  void ForShared(AnyMemory& memory, const Visit& visit) const {
    const auto row = static_cast<std::size_t>(memory.dims.key_dim);
    visit(memory.deferred.keys,
          static_cast<std::size_t>(DeferredKeyBytes(memory.deferred.keys.dtype)));
    visit(memory.pending.keys, static_cast<std::size_t>(PendingKeyBytes()));
    visit(memory.entries.sum, row * SizeOf(memory.entries.sum.dtype));
    visit(memory.entries.curvature, row * SizeOf(memory.entries.curvature.dtype));
    visit(memory.entries.maximum, SizeOf(memory.entries.maximum.dtype));
    visit(memory.entries.position, SizeOf(memory.entries.position.dtype));
  }

  /// Points to the memory's part of what is saved.
  void PointToSaved(std::int64_t n, std::int64_t h, Memory& m) const {
    const SavedLayout layout(options, sizes, sequences.count(), sequences.length(),
                             sequences.packed());
    const std::int64_t first = sequences.Place(sequences[n]), all = heads.memories;
    const auto size = static_cast<std::int64_t>(SizeOf(sizes.state));
    std::byte* const arrays = call.saved.data();
    m.saved.states = arrays + layout.StatesOf(h, n, first) * size;
    if (layout.errors) m.saved.errors = arrays + layout.ErrorsOf(all, h, first) * size;
    if (layout.outputs > 0) m.saved.outputs = arrays + layout.OutputsOf(all, h, first) * size;
    if (layout.sums > 0) m.saved.sums = arrays + layout.SumsOf(all, h, first) * size;
  }
};

}  // namespace ttr::fast_weights
