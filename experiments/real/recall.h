/// A text read into memories, one pass, nothing trained: at every token each memory is asked which
/// token follows the one before, then told.
///
/// Tokens are fixed random unit vectors (data/embedding.h); the answer of a memory is the token
/// seen so far whose vector has the largest inner product with what was read. Beside the memories,
/// counts of pairs of tokens: the most frequent successor.
///
/// Memory: the vocabulary, the memories, and one block of tokens, however long the text.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/data/text.h"
#include "experiments/real/bigram_counts.h"
#include "experiments/real/named_recipe.h"
#include "experiments/real/recall_reader.h"
#include "experiments/real/token_code.h"

namespace ttr::experiments {

struct RecallOptions {
  TokenKind kind = TokenKind::kWords;
  std::int64_t dim = 64;
  std::uint64_t seed = 1;
  std::int64_t kept = 4096;  ///< memories that keep all pairs stop reading after this many tokens
  std::vector<NamedRecipe> memories{};
  GateConstants gates{};
};

/// Hits among questions.
struct HitRate {
  std::int64_t hits = 0;
  std::int64_t questions = 0;
  double rate() const { return static_cast<double>(hits) / static_cast<double>(questions); }
};

/// What one method did.
struct RecallResult {
  static constexpr int kBins = 40;

  std::string method;
  std::int64_t tokens = 0;            ///< read; fewer than the text has where a memory stopped
  HitRate all{};                      ///< next tokens that were answered right
  HitRate seen{};                     ///< of those after a token that had a successor before
  HitRate pair{};                     ///< of those where this very successor had followed before
  double bits = 0;                    ///< sum over all tokens
  std::array<HitRate, kBins> bins{};  ///< `seen` at the positions 2^i .. 2^(i+1) - 1
  std::int64_t known = 0;             ///< tokens that were not new
  double known_bits = 0;              ///< of `bits`, what it took to tell these from each other
  double bits_per_known() const { return known_bits / static_cast<double>(known); }
  double bits_per_token() const { return bits / static_cast<double>(tokens); }
};

class RecallRun {
 public:
  static constexpr std::int64_t kBlock = 256;

  /// Throws Error for options and recipes that have no meaning.
  explicit RecallRun(const RecallOptions& options);

  /// Reads one token. Questions are answered a block at a time: Finish() answers the last ones.
  void Read(std::string_view token);
  void Finish();

  std::int64_t tokens() const { return tokens_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// pair_counts first, then the memories.
  const std::vector<RecallResult>& results() const { return results_; }
  /// What the memory with this index answered to the latest question of a block (tests look here).
  std::int64_t latest_answer(std::size_t memory) const { return latest_[memory]; }

 private:
  struct Question {           // about one token
    std::int64_t before;      // the token asked with
    std::int64_t token;       // the right answer
    std::int64_t vocabulary;  // tokens that had been seen
    bool is_new, seen, pair;
    double shared_bits;  // the part of the cost that does not depend on the method
  };

  void AddToVocabulary(std::string_view token, bool is_new);
  void Answer(std::size_t memory);
  void Count(RecallResult& result, const Question& question, std::int64_t position,
             std::int64_t answer, double bits);

  RecallOptions options_;
  Vocabulary vocabulary_;
  std::vector<float> rows_;     // [V, dim]
  std::vector<float> columns_;  // [dim, capacity]: the same, as the state of a memory
  std::int64_t capacity_ = 0;
  Layer scorer_;
  BigramCounts counts_;
  Novelty novelty_;
  std::vector<RecallReader> readers_;
  std::vector<TemperatureMixture> mixtures_;
  std::vector<RecallResult> results_;
  std::vector<std::int64_t> latest_;
  std::vector<Question> block_;
  std::vector<std::int64_t> last_two_;  // before the block
  std::int64_t tokens_ = 0;
};

}  // namespace ttr::experiments
