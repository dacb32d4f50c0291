#include "src/engines/kernel_regression/work.h"

#include <algorithm>
#include <utility>

namespace ttr::kernel_regression {

std::size_t BytesOfFactor(const Sizes& sizes, std::int64_t pairs) {
  return common::ScratchBytesOf<Factor>(sizes.dtype, pairs, sizes.key_dim, sizes.value_dim);
}

std::size_t BytesOfScratch(const Sizes& sizes, std::int64_t pairs) {
  return common::ScratchBytesOf<Scratch>(sizes.dtype, pairs, sizes.key_dim, sizes.value_dim);
}

double FlopsOf(const Work& work) {
  const auto pairs = static_cast<double>(work.sizes.pairs());
  const auto channels = static_cast<double>(work.sizes.key_dim + work.sizes.value_dim);
  return static_cast<double>(work.memories()) * pairs * pairs * (pairs / 3 + channels);
}

Work::Work(const Options& o, const Call& c)
    : options(o),
      call(c),
      sequences(c.sequences()),
      heads(c.memory_heads(c.ridge.defined() ? c.ridge : c.bandwidth), c.q),
      sizes{c.sizes(sequences, heads)} {
  if (!call.k.defined()) sizes.queried = std::exchange(sizes.tokens, 0);
  for (std::int64_t i = 0; call.state_k.defined() && i < memories(); ++i) {
    sizes.held = std::max(sizes.held, MemoryOf(i).visible.held);
  }
}

Memory Work::MemoryOf(std::int64_t item, std::byte* weights) const {
  const std::int64_t n = item / heads.memories, h = item % heads.memories;
  Memory m{common::QueriedPairsOf(options, call, heads, sequences[n], n, h)};
  m.ridge = call.ridge.defined() ? call.ridge.At({h}) : options.ridge;
  common::PointToWeights(sizes, weights, m);
  return m;
}

std::byte* Work::FactorOf(std::int64_t item) const {
  if (!call.factor.defined()) return nullptr;
  return call.factor.as<std::byte>() +
         item * call.factor.size(2) * static_cast<std::int64_t>(SizeOf(call.factor.dtype()));
}

std::int64_t Work::Room() const {
  return call.factor.defined() ? call.state_k.size(1) : sizes.pairs();
}

}  // namespace ttr::kernel_regression
