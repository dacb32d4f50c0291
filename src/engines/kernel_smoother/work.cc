#include "src/engines/kernel_smoother/work.h"

namespace ttr::kernel_smoother {

std::size_t BytesOfWeights(const Sizes& sizes) {
  if (!sizes.weighted) return 0;
  return common::ScratchBytesOf<common::PairWeights>(sizes.tokens);
}

Work::Work(const Options& o, const Call& c)
    : options(o), call(c), sequences(c.sequences()), heads(c.memory_heads(c.bandwidth), c.q) {
  sizes.key_dim = call.key_dim();
  sizes.value_dim = call.value_dim();
  sizes.heads = heads.memories;
  sizes.sequences = sequences.count();
  sizes.tokens = sequences.longest();
  sizes.queries = heads.queries;
  sizes.dtype = call.arithmetic;
  sizes.weighted = call.weighted();
  blocks = common::CeilDiv(sequences.longest() * heads.queries, kQueries);
}

Memory Work::MemoryOf(std::int64_t item, std::byte* shared) const {
  const std::int64_t n = item / heads.memories, h = item % heads.memories;
  Memory m = common::QueriedPairsOf(call, heads, sequences[n], n, h);
  if (!call.bandwidth.defined()) m.bandwidth = options.bandwidth;
  m.place.window = options.window;
  m.visible.window = options.window;
  m.visible.causal = options.causal;
  m.visible.before = options.read_before;
  m.normalises = options.normalise_qk;
  if (sizes.weighted && shared != nullptr) {
    ScratchLayout layout(shared + static_cast<std::size_t>(item) * BytesOfWeights(sizes));
    m.weights = {sizes.tokens, layout};
  }
  return m;
}

}  // namespace ttr::kernel_smoother
