/// Multi-query associative recall without training: random embeddings, a memory of the pairs, every
/// cue asked once. Accuracy over the number of pairs P and the length T: capacity, not length.
/// Laws of the data: data/mqar.h. How answers are judged: recall_task.h.
///
/// Source: Wang, Shi, Fox, "Test-time regression" (2025), section "Constructing effective key-value
/// pairs", figure 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

struct MqarStudyOptions {
  std::int64_t dim = 64;
  std::vector<std::int64_t> pairs{64, 128};
  std::vector<std::int64_t> tokens{256, 512, 1024, 2048, 4096};
  double ridge = 1e-3;                 ///< of RLS
  double step = 0.5;                   ///< of DeltaNet (with 1 it is NLMS, on unit keys)
  double scale = 8;                    ///< of softmax
  std::vector<std::string> recipes{};  ///< more layers
  bool decode_cues = false;            ///< an answer is looked for among the cues too, 2 P tokens
  bool orthonormal = true;  ///< also orthonormal embeddings, in the 2 P dimensions that they take
  bool replacement = true;  ///< also pairs drawn with replacement (the paper's law)
  bool all_bigrams = true;  ///< also the paper's memory of all bigrams x_{t-1} -> x_t
  bool zoology = true;      ///< also Zoology's law, all bigrams, asked at the labelled positions
};

OptionFields Fields(MqarStudyOptions& options);

inline constexpr std::int64_t kMqarSeeds = 10;

/// kMqarSeeds seeds unless `run` says otherwise; a seed is one example for every P and T.
StudyResult RunMqar(const MqarStudyOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
