#include "src/engines/kernel_smoother/work.h"

#include <algorithm>
#include <cmath>

namespace ttr::kernel_smoother {
namespace {

common::Sequences SequencesOf(const Call& call) {
  const TensorView& timed = call.v.defined() ? call.v : call.q;
  const std::int64_t batch = call.cu_seqlens.empty() ? timed.size(0) : 1;
  return {call.cu_seqlens, batch, timed.size(1)};
}

std::int64_t HeadsOf(const Call& call) {
  if (call.state_k.defined()) return call.state_k.size(2);
  for (const TensorView* gate : {&call.log_decay, &call.importance, &call.log_importance}) {
    if (gate->defined()) return gate->size(2);
  }
  if (call.bandwidth.defined()) return call.bandwidth.size(0);
  return call.k.defined() ? std::max(call.k.size(2), call.v.size(2)) : call.q.size(2);
}

DType TypeOf(const Call& call) {
  const bool wide = call.state_k.defined() ? call.state_k.dtype() == DType::kFloat64 ||
                                                 call.state_v.dtype() == DType::kFloat64
                    : call.v.defined() ? call.v.dtype() == DType::kFloat64
                                       : call.q.dtype() == DType::kFloat64;
  return wide ? DType::kFloat64 : DType::kFloat32;
}

bool IsWeighted(const Call& call) {
  return call.log_decay.defined() || call.importance.defined() || call.log_importance.defined() ||
         call.state_log_weight.defined() || !call.decay_factors.empty();
}

PairWeights WeightsAt(std::byte* memory, const Sizes& sizes) {
  ScratchLayout layout(memory);
  PairWeights weights;
  if (sizes.tokens == 0) return weights;
  weights.offsets = layout.Take<double>(sizes.tokens);
  weights.totals = layout.Take<double>(sizes.tokens);
  weights.forgotten = layout.Take<std::int64_t>(sizes.tokens);
  return weights;
}

}  // namespace

Rows PairsOf(const TensorView& view, std::int64_t n, std::int64_t head) {
  if (!view.defined()) return {};
  return {common::ElementOf(view, n * view.stride(0) + head * view.stride(2)), view.dtype(),
          view.stride(1)};
}

std::size_t BytesOfWeights(const Sizes& sizes) {
  if (!sizes.weighted) return 0;
  const auto bytes =
      static_cast<std::size_t>(common::RoundUp(8 * sizes.tokens, common::kLineBytes));
  return 3 * bytes;
}

Work::Work(const Options& o, const Call& c)
    : options(o), call(c), sequences(SequencesOf(c)), heads(HeadsOf(c), c.q) {
  sizes.key_dim = call.q.defined() ? call.q.size(3) : call.k.size(3);
  sizes.value_dim = call.v.defined()         ? call.v.size(3)
                    : call.state_v.defined() ? call.state_v.size(3)
                                             : call.y.size(3);
  sizes.heads = heads.memories;
  sizes.sequences = sequences.count();
  sizes.tokens = sequences.longest();
  sizes.queries = heads.queries;
  sizes.dtype = TypeOf(call);
  sizes.weighted = IsWeighted(call);
  blocks = common::CeilDiv(sequences.longest() * heads.queries, kQueries);
}

Memory Work::MemoryOf(std::int64_t item, std::byte* shared) const {
  const std::int64_t n = item / heads.memories, h = item % heads.memories;
  const common::Sequence sequence = sequences[n];
  Memory m;
  if (call.q.defined()) {
    m.q = common::HeadRowsOf(call.q, sequence, heads.QueryOf(h, call.q));
    m.y = common::HeadRowsOf(call.y, sequence, heads.OutputOf(h));
    m.status = common::HeadRowsOf(call.status, sequence, heads.OutputOf(h));
    m.rows = sequence.tokens * heads.queries;
  }
  if (call.k.defined()) {
    m.k = common::RowsOf(call.k, sequence, heads.Of(h, call.k));
    m.v = common::RowsOf(call.v, sequence, heads.Of(h, call.v));
    m.log_decay = common::RowsOf(call.log_decay, sequence, h);
    m.importance = common::RowsOf(call.importance, sequence, h);
    m.log_importance = common::RowsOf(call.log_importance, sequence, h);
    if (!call.decay_factors.empty()) {
      m.log_factor = std::log(call.decay_factors[static_cast<std::size_t>(h)]);
    }
    m.sight.tokens = sequence.tokens;
  }
  m.bandwidth = call.bandwidth.defined() ? call.bandwidth.At({h}) : options.bandwidth;
  if (call.state_k.defined()) {
    m.state_k = PairsOf(call.state_k, n, h);
    m.state_v = PairsOf(call.state_v, n, h);
    m.state_log_weight = PairsOf(call.state_log_weight, n, h);
    m.place = {call.state_k.size(1), options.window};
    m.sight.held = m.place.capacity;
    if (call.state_length.defined()) {
      m.length = call.state_length.as<std::int64_t>() + n * call.state_length.stride(0) +
                 h * call.state_length.stride(1);
      m.sight.held = *m.length;
    }
  }
  m.sight.window = options.window;
  m.sight.causal = options.causal;
  m.sight.before = options.read_before;
  m.key_dim = sizes.key_dim;
  m.value_dim = sizes.value_dim;
  m.queries = heads.queries;
  m.weighted = sizes.weighted;
  if (sizes.weighted && shared != nullptr) {
    m.weights = WeightsAt(shared + static_cast<std::size_t>(item) * BytesOfWeights(sizes), sizes);
  }
  return m;
}

}  // namespace ttr::kernel_smoother
