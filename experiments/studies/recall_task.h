/// An example of associative recall as vectors: what a memory reads, what it is asked, and how its
/// answers are judged.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/data/mqar.h"
#include "experiments/studies/layers.h"

namespace ttr::experiments {

enum class Embedding {
  kUnit,         ///< random unit vectors, one a token
  kOrthonormal,  ///< orthonormal cues and responses; takes dim >= 2 P
};

enum class Memorized {
  kPairs,       ///< cue -> response alone, in the order of writing
  kAllBigrams,  ///< x_{t-1} -> x_t for the whole text but its last token: also response -> next cue
};

struct RecallTask {
  std::int64_t dim = 0;
  std::vector<double> k, v;          // [pairs memorized, dim]
  std::vector<double> q;             // [queries, dim]
  std::vector<double> candidates;    // [P or 2 P, dim]: among these an answer is looked for
  std::vector<std::int64_t> answer;  // of each query: its row of `candidates`
  std::vector<std::int64_t> after;   // of each query: how many pairs are memorized when it is asked

  PairRows rows() const { return {.key_dim = dim, .value_dim = dim, .k = k, .v = v, .q = q}; }
};

/// Embeds an example. Candidates are its P responses, and its cues behind them if `decode_cues`.
/// Under Zoology's law with kAllBigrams, every query is asked where it stands.
RecallTask MakeRecallTask(const MqarExample& example, std::int64_t dim, std::uint64_t seed,
                          Embedding embedding, Memorized memorized, bool decode_cues = false);

/// The share of queries whose right response has the greatest inner product with the answer, of all
/// candidates. A tie, or an answer that is not finite, is wrong.
double Accuracy(const RecallTask& task, const std::vector<double>& y);

/// Memorizes up to every query in turn and asks it there.
std::vector<double> AskInPlace(const StudyLayer& layer, const RecallTask& task);

}  // namespace ttr::experiments
