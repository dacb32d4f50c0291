/// The baseline of recall: which token followed this one most often?
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace ttr::experiments {

class BigramCounts {
 public:
  /// The most frequent successor so far, the latest of equals; -1 where there is none.
  std::int64_t Best(std::int64_t token) const;
  /// Was the token followed by another before?
  bool Known(std::int64_t token) const { return Best(token) >= 0; }
  /// Was `token` followed by `next` before?
  bool Followed(std::int64_t token, std::int64_t next) const { return Count(token, next) > 0; }
  /// log2 of (count(token, next) + share of next among all tokens) / (count(token) + 1): counts
  /// with one pseudo-count spread as the tokens seen so far. `next` has been seen.
  double Bits(std::int64_t token, std::int64_t next) const;
  /// Counts the pair, and `next` among the tokens. The first token of a text has `token` -1.
  void Add(std::int64_t token, std::int64_t next);

 private:
  std::int64_t Count(std::int64_t token, std::int64_t next) const;

  struct Successors {
    std::int64_t total = 0;
    std::int64_t best = -1;
    std::int64_t best_count = 0;
  };
  std::vector<Successors> successors_;
  std::vector<std::int64_t> tokens_;
  std::int64_t total_ = 0;
  std::unordered_map<std::uint64_t, std::int64_t> pairs_;
};

}  // namespace ttr::experiments
