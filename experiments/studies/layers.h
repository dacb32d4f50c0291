/// Layers as studies use them: a recipe as text, constant gates, one sequence and one memory, in
/// double precision, by the definition unless a study asks for an engine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ttr/layer.h"

namespace ttr::experiments {

/// What a layer's gates are where nothing is learned: the same for all tokens.
struct ConstantGates {
  double decay = 1;         ///< exp(log_decay); Mamba: dt = 1, a = log(decay)
  double step = 1;          ///< step size
  double momentum = 0.5;    ///< share of the last update that is kept
  double weight_decay = 0;  ///< shrinking of the memory
  double ln_weight = 0;     ///< of a network's norm; 0: absent, which is 1
  double bonus = 0;         ///< weight of the current token in what is read before it
};
// Others have no choice: erase_key = k, and the neutral value of the input (InputSpec::neutral).

/// Row-major rows of double: keys and values of `tokens` pairs, and as many queries as asked.
struct PairRows {
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
  std::span<const double> k, v;
  std::span<const double> q{};
};

/// Why a layer cannot run without something learned, or "" where it can: it takes weights of a
/// feature map, or several pairs a token.
std::string NeedsLearning(const Recipe& recipe);

/// What a study's layers run on.
enum class Runs {
  kDefinition,          ///< for the same numbers on every machine
  kLeastSquaresEngine,  ///< that engine for the recipes it takes: the same but for rounding
  kEngines,             ///< those of least squares and of kept pairs: long sequences in seconds
  kPlanned,             ///< what the plan says
};

class StudyLayer {
 public:
  /// Error: a recipe that does not parse, or that NeedsLearning().
  StudyLayer(const std::string& recipe, const ConstantGates& gates = {},
             Runs runs = Runs::kDefinition);
  StudyLayer(const Recipe& recipe, const ConstantGates& gates = {}, Runs runs = Runs::kDefinition);

  const Recipe& recipe() const { return layer_.recipe(); }
  std::string_view engine() const { return layer_.plan().engine; }

  /// y_t = m_t(q_t): [tokens, value_dim]. `status`, if given: what became of each token's
  /// regression.
  std::vector<double> Forward(const PairRows& rows, std::vector<Status>* status = nullptr) const;

  /// Writes the pairs; `state` carries on.
  void Memorize(const PairRows& rows, State& state) const;

  /// m(q) for every query: [queries, value_dim].
  std::vector<double> Retrieve(std::span<const double> q, std::int64_t key_dim,
                               std::int64_t value_dim, const State& state) const;

  /// Memorize into an empty state, then Retrieve.
  std::vector<double> Recall(const PairRows& rows) const;

 private:
  Layer layer_;
  ConstantGates gates_;
};

}  // namespace ttr::experiments
