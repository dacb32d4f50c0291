/// From scores of tokens to a code length: how many bits the next token costs.
///
///     new token:    -log2 N          + its spelling
///     known token:  -log2 (1 - N)    - log2 sum_b w_b softmax(b scores)[token]
///
/// N = (new so far + 1/2) / (tokens so far + 1) is the share of tokens that were new (Krichevsky
/// and Trofimov's estimate). The softmax runs over the tokens seen so far; its inverse temperature
/// b is no choice: all of 2^-2, ..., 2^7 are mixed with weights that follow how well each has coded
/// so far (fixed share 1/100, Herbster and Warmuth 1998). A decoder could do the same with what it
/// has read, so this is a proper code.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "experiments/data/text.h"

namespace ttr::experiments {

/// The part of the cost that all memories share.
class Novelty {
 public:
  explicit Novelty(TokenKind kind) : kind_(kind) {}

  /// Bits that say whether the token is new, and spell it if it is: a word with 257 symbols (bytes
  /// and an end) all alike, a byte among those not yet seen. Counts the token.
  double Bits(bool is_new, std::string_view token);

 private:
  TokenKind kind_;
  std::int64_t tokens_ = 0;
  std::int64_t new_ = 0;
};

inline constexpr int kTemperatures = 10;

/// What is kept of the scores of one token: which is highest, and the log-probability of the right
/// one under each temperature (in nats).
struct ScoreSummary {
  std::int64_t best = -1;  ///< -1: no score is higher than all others, or one is not finite
  std::array<double, kTemperatures> log_p{};
};

/// `scores` of the tokens seen so far; `token` is among them. Overwrites `scores`.
ScoreSummary Summarise(std::span<float> scores, std::int64_t token);

/// The mixture over temperatures.
class TemperatureMixture {
 public:
  TemperatureMixture() { weight_.fill(1. / kTemperatures); }
  /// Bits of the right token; learns from it.
  double Bits(const ScoreSummary& summary);

 private:
  std::array<double, kTemperatures> weight_{};
};

}  // namespace ttr::experiments
