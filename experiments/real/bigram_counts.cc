#include "experiments/real/bigram_counts.h"

#include <algorithm>
#include <cmath>

namespace ttr::experiments {
namespace {

std::uint64_t PairOf(std::int64_t token, std::int64_t next) {
  return static_cast<std::uint64_t>(token) << 32 | static_cast<std::uint64_t>(next);
}

}  // namespace

std::int64_t BigramCounts::Best(std::int64_t token) const {
  return token < static_cast<std::int64_t>(successors_.size()) ? successors_[token].best : -1;
}

std::int64_t BigramCounts::Count(std::int64_t token, std::int64_t next) const {
  const auto found = pairs_.find(PairOf(token, next));
  return found == pairs_.end() ? 0 : found->second;
}

double BigramCounts::Bits(std::int64_t token, std::int64_t next) const {
  const double share = static_cast<double>(tokens_[next]) / static_cast<double>(total_);
  const double total = token < static_cast<std::int64_t>(successors_.size())
                           ? static_cast<double>(successors_[token].total)
                           : 0;
  return -std::log2((static_cast<double>(Count(token, next)) + share) / (total + 1));
}

void BigramCounts::Add(std::int64_t token, std::int64_t next) {
  const auto size = static_cast<std::size_t>(std::max(token, next)) + 1;
  if (tokens_.size() < size) {
    tokens_.resize(size);
    successors_.resize(size);
  }
  ++tokens_[next];
  ++total_;
  if (token < 0) return;
  Successors& s = successors_[token];
  ++s.total;
  const std::int64_t count = ++pairs_[PairOf(token, next)];
  if (count >= s.best_count) {
    s.best = next;
    s.best_count = count;
  }
}

}  // namespace ttr::experiments
