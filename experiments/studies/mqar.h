/// Multi-query associative recall without training: random embeddings, a memory of the pairs, every
/// cue asked once. Accuracy over the number of pairs P and the length T: capacity, not length.
/// Laws of the data: data/mqar.h.
///
/// A memory answers with a vector; the answer counts as right when, of the P responses of the
/// example, the right one has the embedding of greatest inner product with it (ties: wrong).
///
/// Source: the paper's section "Constructing effective key-value pairs", figure 3.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "experiments/data/mqar.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

enum class MqarKeys {
  kPairs,     ///< the memory holds cue -> response, written once a pair
  kAllBigrams  ///< k_t = x_{t-1}, v_t = x_t: also response -> next cue (the paper's construction)
};

struct MqarStudyOptions {
  std::int64_t dim = 64;
  std::vector<std::int64_t> pairs{64, 128};
  std::vector<std::int64_t> tokens{256, 512, 1024, 2048, 4096};
  std::vector<std::string> recipes{"linear_attention", "rls", "nlms", "deltanet", "softmax"};
  double ridge = 1e-3;  ///< of rls and whichever named recipe has one
  double step = 1;      ///< of deltanet and whichever recipe takes a step size
  double scale = 8;     ///< of the softmax family
  bool orthonormal = true;    ///< also with orthonormal embeddings, of dimension 2 max(P)
  bool all_bigrams = true;    ///< also the paper's memory of all bigrams
  bool replacement = true;    ///< also pairs drawn with replacement (the paper's law)
  bool zoology = true;        ///< also Zoology's law: asked at the labelled positions of the text
};

/// 8 seeds unless `run` says otherwise; a seed is one example for every P and T.
StudyResult RunMqar(const MqarStudyOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
