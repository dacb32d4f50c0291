#include "src/engines/kernel_smoother/work.h"

namespace ttr::kernel_smoother {

std::size_t BytesOfWeights(const Sizes& sizes) {
  if (!sizes.weighted) return 0;
  return common::ScratchBytesOf<common::PairWeights>(sizes.tokens);
}

Work::Work(const Options& o, const Call& c)
    : options(o),
      call(c),
      sequences(c.sequences(c.q, c.cu_seqlens)),
      heads(c.heads(c.q, c.bandwidth), c.q) {
  sizes.key_dim = call.q.defined() ? call.q.size(3) : call.k.size(3);
  sizes.value_dim = call.v.defined()         ? call.v.size(3)
                    : call.state_v.defined() ? call.state_v.size(3)
                                             : call.y.size(3);
  sizes.heads = heads.memories;
  sizes.sequences = sequences.count();
  sizes.tokens = sequences.longest();
  sizes.queries = heads.queries;
  sizes.dtype = call.dtype(call.q);
  sizes.weighted = call.weighted();
  blocks = common::CeilDiv(sequences.longest() * heads.queries, kQueries);
}

Memory Work::MemoryOf(std::int64_t item, std::byte* shared) const {
  const std::int64_t n = item / heads.memories, h = item % heads.memories;
  const common::Sequence sequence = sequences[n];
  Memory m{common::KeptPairsOf(call, heads, sequence, n, h)};
  if (call.q.defined()) {
    m.q = common::HeadRowsOf(call.q, sequence, heads.QueryOf(h, call.q));
    m.y = common::HeadRowsOf(call.y, sequence, heads.OutputOf(h));
    m.status = common::HeadRowsOf(call.status, sequence, heads.OutputOf(h));
    m.rows = sequence.tokens * heads.queries;
  }
  m.bandwidth = call.bandwidth.defined() ? call.bandwidth.At({h}) : options.bandwidth;
  m.place.window = options.window;
  m.sight.window = options.window;
  m.sight.causal = options.causal;
  m.sight.before = options.read_before;
  m.normalises = options.normalise_qk;
  m.key_dim = sizes.key_dim;
  m.value_dim = sizes.value_dim;
  m.queries = heads.queries;
  if (sizes.weighted && shared != nullptr) {
    ScratchLayout layout(shared + static_cast<std::size_t>(item) * BytesOfWeights(sizes));
    m.weights = {sizes.tokens, layout};
  }
  return m;
}

}  // namespace ttr::kernel_smoother
