#include <Random123/philox.h>

#include <numeric>
#include <string>
#include <unordered_map>

#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

constexpr int kRounds = 10;

std::array<std::uint64_t, 2> Block(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  using Philox = r123::Philox4x32_R<kRounds>;
  const auto low = [](std::uint64_t x) { return static_cast<std::uint32_t>(x); };
  const auto high = [](std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); };
  const Philox::ctr_type counter = {{low(index), high(index), low(stream), high(stream)}};
  const Philox::key_type key = {{low(seed), high(seed)}};
  const Philox::ctr_type word = Philox()(counter, key);
  const auto join = [](std::uint32_t lo, std::uint32_t hi) {
    return (static_cast<std::uint64_t>(hi) << 32) | lo;
  };
  return {join(word[0], word[1]), join(word[2], word[3])};
}

// The middle of one of 2^52 equal cells of (0, 1): 53 bits, hence exact, and never 0 or 1.
double ToUniform(std::uint64_t bits) { return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52; }

}  // namespace

std::uint64_t CounterRandom::BitsAt(std::uint64_t index) const {
  return Block(seed_, stream_, index / 2)[index % 2];
}

double CounterRandom::UniformAt(std::uint64_t index) const { return ToUniform(BitsAt(index)); }

double CounterRandom::NormalAt(std::uint64_t index) const {
  return NormalQuantile(UniformAt(index));
}

std::uint64_t CounterRandom::Bits() {
  const std::uint64_t block = position_ / 2;  // at most 2^63 - 1: never the mark of an empty cache
  if (block != cached_block_) {
    cached_ = Block(seed_, stream_, block);
    cached_block_ = block;
  }
  return cached_[position_++ % 2];
}

double CounterRandom::Uniform() { return ToUniform(Bits()); }

double CounterRandom::Normal() { return NormalQuantile(Uniform()); }

double CounterRandom::Exponential() { return -PortableLog(Uniform()); }

std::int64_t CounterRandom::Below(std::int64_t n) {
  if (n < 1) {
    throw Error("[random] n must be at least 1 but is " + std::to_string(n));
  }
  // Draws beyond the last whole multiple of n would favour the small numbers: draw again.
  const auto range = static_cast<std::uint64_t>(n);
  const std::uint64_t excess = (0 - range) % range;  // 2^64 mod n
  std::uint64_t bits = Bits();
  while (bits > ~std::uint64_t{0} - excess) {
    bits = Bits();
  }
  return static_cast<std::int64_t>(bits % range);
}

std::vector<std::int64_t> CounterRandom::Permutation(std::int64_t n) {
  if (n < 0) {
    throw Error("[random] n must be at least 0 but is " + std::to_string(n));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  Shuffle(std::span(order));
  return order;
}

std::vector<std::int64_t> CounterRandom::Choose(std::int64_t n, std::int64_t count) {
  if (n < 0) {
    throw Error("[random] n must be at least 0 but is " + std::to_string(n));
  }
  if (count < 0 || count > n) {
    throw Error("[random] count must be in 0.." + std::to_string(n) + " but is " +
                std::to_string(count));
  }
  // The first `count` steps of a shuffle of 0 .. n - 1 of which only the moved cells are stored.
  std::unordered_map<std::int64_t, std::int64_t> moved;
  const auto cell = [&moved](std::int64_t i) {
    const auto found = moved.find(i);
    return found == moved.end() ? i : found->second;
  };
  std::vector<std::int64_t> chosen;
  chosen.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t other = i + Below(n - i);
    chosen.push_back(cell(other));
    moved[other] = cell(i);
  }
  return chosen;
}

}  // namespace ttr
