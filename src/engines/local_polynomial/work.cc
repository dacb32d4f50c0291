#include "src/engines/local_polynomial/work.h"

#include <algorithm>

namespace ttr::local_polynomial {

std::size_t BytesOfWeights(const Sizes& sizes) {
  if (!sizes.weighted) return 0;
  return common::ScratchBytesOf<common::PairWeights>(sizes.tokens);
}

Work::Work(const Options& o, const Call& c)
    : options(o),
      call(c),
      sequences(c.sequences()),
      heads(c.memory_heads(c.ridge.defined() ? c.ridge : c.bandwidth), c.q),
      monomials(c.key_dim(), o.degree) {
  sizes.key_dim = call.key_dim();
  sizes.value_dim = call.value_dim();
  sizes.degree = options.degree;
  sizes.heads = heads.memories;
  sizes.sequences = sequences.count();
  sizes.tokens = sequences.longest();
  sizes.queries = heads.queries;
  sizes.dtype = call.arithmetic;
  sizes.weighted = call.weighted();
  blocks = common::CeilDiv(sequences.longest() * heads.queries, kQueries);
}

double Work::flops() const {
  const std::int64_t held = call.state_k.defined() ? call.state_k.size(1) : 0;
  const auto pairs = static_cast<double>(sizes.tokens + held);
  const auto features = static_cast<double>(monomials.count);
  const auto channels = static_cast<double>(4 * sizes.key_dim + 2 * sizes.value_dim);
  const auto queries = static_cast<double>(memories() * heads.queries * sizes.tokens);
  return queries * pairs * (features * features + 4 * features + channels);
}

Memory Work::MemoryOf(std::int64_t item, std::byte* shared) const {
  const std::int64_t n = item / heads.memories, h = item % heads.memories;
  Memory m{common::QueriedPairsOf(call, heads, sequences[n], n, h)};
  if (!call.bandwidth.defined()) m.bandwidth = options.bandwidth;
  m.ridge = call.ridge.defined() ? call.ridge.At({h}) : options.ridge;
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

}  // namespace ttr::local_polynomial
