/// Identities between layers: two recipes that are one memory, or become one in a limit. Both sides
/// run on the same random sequence by the definition, and the greatest difference of an output,
/// relative to the greatest output of the right side, is held against the bound that is stated for
/// the identity (rounding; for a limit, how far from the limit it is).
#pragma once

#include <string>
#include <vector>

#include "experiments/studies/layers.h"
#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

struct IdentitiesOptions {
  std::int64_t tokens = 48;
  std::int64_t dim = 8;
};

OptionFields Fields(IdentitiesOptions& options);

/// Which part of the outputs is compared.
enum class Compared {
  kAll,
  kLast,        ///< the last token: one side reads the whole sequence
  kDetermined,  ///< tokens after which keys span all channels, one more than Dk of them
};

struct Identity {
  std::string why;
  std::string left, right;
  ConstantGates left_gates{}, right_gates{};
  double bound = 1e-12;
  bool unit_keys = true;  ///< the sequence has keys and queries of unit length
  Compared compared = Compared::kAll;
  double left_values = 1;             ///< factor of the values that the left side reads
  bool right_reads_constant = false;  ///< the right side's keys are all 1 - decay
};

/// "LEFT = RIGHT", by which documents call it.
std::string Name(const Identity& identity);

/// All that can be stated by recipes and constant gates; `tokens` and `dim` enter some recipes.
std::vector<Identity> Identities(const IdentitiesOptions& options);

inline constexpr std::int64_t kIdentitySeeds = 3;

StudyResult RunIdentities(const IdentitiesOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
