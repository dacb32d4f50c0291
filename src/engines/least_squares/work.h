/// Which memory reads and writes which rows of a call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/least_squares/arena.h"
#include "src/engines/least_squares/memory.h"
#include "src/parallel/claimed.h"
#include "src/parallel/workers.h"
#include "src/simd/prefetcher.h"
#include "src/simd/row_views.h"
#include "ttr/executor.h"

namespace ttr::least_squares {

/// Below this many flops a second thread costs more than it brings (some ten microseconds).
inline constexpr double kFlopsWorthThreads = 1e6;

/// Calls run(item, scratch) for every item, each worker with `bytes` of its own.
template <class RunItem>
void RunItems(Executor& executor, int threads, std::int64_t items, std::size_t bytes,
              std::span<std::byte> scratch, const RunItem& run) {
  const int workers = static_cast<int>(std::min<std::int64_t>(threads, items));
  const Claimed claimed("least_squares", scratch,
                        static_cast<std::size_t>(workers) * bytes + kAlignment);
  RunOnWorkers(executor, workers, items, [&](std::int64_t item, int worker) {
    run(item, claimed.start() + static_cast<std::size_t>(worker) * bytes);
  });
}

/// The state of the memory of sequence n and head h.
inline MemoryState StateOf(const Call& call, std::int64_t n, std::int64_t h) {
  MemoryState m;
  m.a = simd::KeptOf(call.a, n, h);
  m.b = simd::KeptOf(call.b, n, h);
  m.factor = simd::KeptOf(call.factor, n, h);
  m.deferred = call.deferred;
  m.a_stride = call.a.stride(2);
  m.b_stride = call.b.stride(2);
  m.key_dim = call.b.size(2);
  m.value_dim = call.b.size(3);
  return m;
}

struct Work {
  const Call& call;
  const TensorView& y;  // outputs, or their gradients
  Sizes sizes;
  std::int64_t sequences, heads, tokens;  // tokens: of all sequences

  explicit Work(const Call& c) : Work(c, c.y) {}
  Work(const Call& c, const TensorView& outputs) : call(c), y(outputs) {
    sequences = call.cu_seqlens.empty() ? call.b.size(0)
                                        : static_cast<std::int64_t>(call.cu_seqlens.size()) - 1;
    heads = call.b.size(1);
    sizes.key_dim = call.b.size(2);
    sizes.value_dim = call.b.size(3);
    sizes.state = call.b.dtype();
    sizes.queries = call.q.defined() ? std::max<std::int64_t>(1, call.q.size(2) / heads) : 0;
    tokens = call.cu_seqlens.empty() ? sequences * Length() : Length();
    for (std::int64_t n = 0; n < sequences; ++n) {
      sizes.tokens = std::max(sizes.tokens, SequenceOf(n).tokens);
    }
  }

  /// Tokens of a batch row.
  std::int64_t Length() const { return call.v.defined() ? call.v.size(1) : call.q.size(1); }

  struct Sequence {
    std::int64_t batch, first, tokens;
  };
  Sequence SequenceOf(std::int64_t n) const {
    if (call.cu_seqlens.empty()) return {n, 0, Length()};
    const auto i = static_cast<std::size_t>(n);
    return {0, call.cu_seqlens[i], call.cu_seqlens[i + 1] - call.cu_seqlens[i]};
  }

  int Threads(const Executor& executor) const {
    return Flops() < kFlopsWorthThreads ? 1 : executor.threads();
  }

  double Flops() const {
    return 10.0 * static_cast<double>(tokens * heads) * static_cast<double>(sizes.key_dim) *
           static_cast<double>(sizes.key_dim + sizes.value_dim);
  }

  /// The head of an input that memory h reads. (Divisions would be felt by single tokens.)
  std::int64_t HeadOf(std::int64_t h, const TensorView& input) const {
    return input.size(2) == heads ? h : h * input.size(2) / heads;
  }

  /// Memory `item` of sequences x heads.
  Memory MemoryOf(std::int64_t item) const {
    const std::int64_t n = item / heads;
    const std::int64_t h = item - n * heads;
    const Sequence sequence = SequenceOf(n);
    const auto rows = [&](const TensorView& view, std::int64_t head) {
      return simd::RowsOf(view, sequence.batch, sequence.first, head);
    };
    Memory m;
    m.state = StateOf(call, n, h);
    if (call.v.defined()) {
      m.k = rows(call.k, HeadOf(h, call.k));
      m.v = rows(call.v, HeadOf(h, call.v));
      m.log_decay = rows(call.log_decay, h);
      m.importance = rows(call.importance, h);
      if (!call.decay_factors.empty()) {
        m.decay_factor = call.decay_factors[static_cast<std::size_t>(h)];
      }
    }
    if (call.q.defined()) {
      m.queries = sizes.queries;
      m.q = rows(call.q, sizes.queries > 1 ? h * sizes.queries : HeadOf(h, call.q));
      m.y = rows(y, h * sizes.queries);
      m.q_head_stride = call.q.stride(2);
      m.y_head_stride = y.stride(2);
      const auto report = [&]<class Number>(const TensorView& view, Report<Number>& to) {
        if (!view.defined()) return;
        void* const data = rows(view, h * sizes.queries).data;
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
    if (sizes.tokens != 1 || item >= sequences * heads || numbers > simd::kMostFetchedAhead)
      return {};
    const std::int64_t n = item / heads;
    const std::int64_t h = item - n * heads;
    if (call.deferred) return {nullptr, simd::KeptOf(call.factor, n, h), nullptr};
    return {simd::KeptOf(call.a, n, h), simd::KeptOf(call.factor, n, h),
            simd::KeptOf(call.b, n, h)};
  }
};

}  // namespace ttr::least_squares
