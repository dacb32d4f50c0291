/// Which memory reads and writes which rows of a call.
#pragma once

#include <cstdint>

#include "src/engines/common/row_views.h"
#include "src/engines/common/sequences.h"
#include "src/engines/common/tasks.h"
#include "src/engines/least_squares/memory.h"
#include "src/simd/caches.h"
#include "src/simd/prefetcher.h"
#include "ttr/executor.h"

namespace ttr::least_squares {

/// The state of the memory of row n and head h.
inline MemoryState MemoryStateOf(const Call& call, std::int64_t n, std::int64_t h) {
  return {.a = common::StateOf(call.a, n, h).data,
          .b = common::StateOf(call.b, n, h).data,
          .rss = common::StateOf(call.rss, n, h).data,
          .a_stride = call.a.stride(2),
          .b_stride = call.b.stride(2),
          .factor = common::StateOf(call.factor, n, h).data,
          .deferred = call.deferred,
          .key_dim = call.b.size(2),
          .value_dim = call.b.size(3)};
}

struct Work {
  const Call& call;
  const TensorView& y;  // outputs, or their gradients
  common::Sequences sequences;
  common::Heads heads;
  Sizes sizes;

  explicit Work(const Call& c) : Work(c, c.y) {}
  Work(const Call& c, const TensorView& outputs)
      : call(c),
        y(outputs),
        sequences(call.cu_seqlens, call.b.size(0),
                  call.v.defined() ? call.v.size(1) : call.q.size(1), call.slots),
        heads(call.b.size(1), call.q),
        sizes{.tokens = sequences.longest(),
              .key_dim = call.b.size(2),
              .value_dim = call.b.size(3),
              .queries = call.q.defined() ? heads.queries : 0,
              .state = call.b.dtype()} {}

  /// Memories: sequences x heads.
  std::int64_t items() const { return sequences.count() * heads.memories; }

  int Threads(const Executor& executor) const {
    const double flops = 10.0 * static_cast<double>(sequences.tokens() * heads.memories) *
                         static_cast<double>(sizes.key_dim) *
                         static_cast<double>(sizes.key_dim + sizes.value_dim);
    return common::ThreadsFor(executor, flops >= common::kFlopsWorthThreads);
  }

  Memory MemoryOf(std::int64_t item) const {
    const common::Task task = common::Task::Of(item, heads.memories, 1);
    const std::int64_t h = task.head;
    const common::Sequence sequence = sequences[task.sequence];
    const auto rows = [&](const TensorView& view, std::int64_t head) {
      return common::RowsOf(view, sequence, head);
    };
    Memory m;
    m.state = MemoryStateOf(call, sequences.StateRow(task.sequence), h);
    if (call.v.defined()) {
      m.k = rows(call.k, heads.Of(h, call.k));
      m.v = rows(call.v, heads.Of(h, call.v));
      m.log_decay = rows(call.log_decay, h);
      m.importance = rows(call.importance, h);
      if (!call.decay_factors.empty()) {
        m.decay_factor = call.decay_factors[static_cast<std::size_t>(h)];
      }
    }
    if (call.q.defined()) {
      m.queries = sizes.queries;
      m.q = rows(call.q, heads.QueryOf(h, call.q));
      m.step = rows(call.step, h);
      m.momentum = rows(call.momentum, h);
      m.y = rows(y, heads.OutputOf(h));
      m.q_head_stride = call.q.stride(2);
      m.y_head_stride = y.stride(2);
      const auto report = [&]<class Number>(const TensorView& view, Report<Number>& to) {
        if (!view.defined()) return;
        void* const data = rows(view, heads.OutputOf(h)).data;
        to = {static_cast<Number*>(data), view.stride(1), view.stride(2)};
      };
      report(call.status, m.status);
      report(call.iterations, m.iterations);
      report(call.residual, m.residual);
    }
    if (call.ridge.defined()) m.ridge = call.ridge.as<double>() + h * call.ridge.stride(0);
    m.tokens = sequence.tokens;
    return m;
  }

  /// What a single token of memory `item` reads, if there is such a memory and two of them fit in a
  /// cache.
  Upcoming UpcomingOf(std::int64_t item) const {
    const std::int64_t numbers = sizes.key_dim * (2 * sizes.key_dim + sizes.value_dim);
    if (sizes.tokens != 1 || item >= items() || numbers > simd::TheCaches().numbers_ahead)
      return {};
    const common::Task task = common::Task::Of(item, heads.memories, 1);
    const MemoryState state = MemoryStateOf(call, sequences.StateRow(task.sequence), task.head);
    if (call.deferred) return {nullptr, state.factor, nullptr};
    return {state.a, state.factor, state.b};
  }
};

}  // namespace ttr::least_squares
