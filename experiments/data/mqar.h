/// Multi-query associative recall: P cues, each with its response, then cues asked again. Three
/// laws carry the name; all three are here. Layers that are trained have draws of their own after
/// the first (python/ttr/experiments/mqar/law.py); tests hold both generators to one table,
/// tests/experiments/mqar_law.json.
///
/// kZoology (Arora et al. 2023, arXiv 2312.04927). Token 0 is the filler, cues are 1 .. V/2 - 1,
///   responses V/2 .. V - 1. P cues and P responses are drawn without replacement and matched. The
///   context k_0 v_0 k_1 v_1 ... is written `passes` times: C = 2 P passes tokens. Then P of
///   the (T - C)/2 slots that remain are drawn one after the other without replacement with
///   p[s] proportional to (s+1)^(slot_exponent - 1); cue j stands once more at C + 2 slot[j], and
///   the label of that position is its response. The answer itself is never written. All other
///   positions hold the filler, or random tokens of the whole vocabulary. T even, T >= C + 2 P.
///
/// kWithReplacement (the paper). T/2 pairs drawn with replacement from the P pairs, then one cue
///   out of those seen, each seen cue equally probable: T + 1 tokens, T even.
///
/// kBalanced. `passes` times over all pairs, each time in a new random order, then one cue:
///   2 P passes + 1 tokens. T is not used.
///
/// The view of the pairs alone (`memory`, `queries`) is what a memory without training reads: the
/// associations in the order of their writing, then all questions. Under the last two laws every
/// cue seen is as probable a last token as any other, so `queries` asks them all: the same mean
/// accuracy with less noise.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttr::experiments {

enum class MqarLaw { kZoology, kWithReplacement, kBalanced };

struct MqarOptions {
  MqarLaw law = MqarLaw::kZoology;
  std::int64_t tokens = 256;       // T; not used by kBalanced
  std::int64_t pairs = 16;         // P, 1 .. 2^28
  std::int64_t vocabulary = 8192;  // V, even, V/2 - 1 >= P
  std::int64_t passes = 1;         // 1 .. 2^28; not used by kWithReplacement
  double slot_exponent = 0.01;     // kZoology: > 0
  bool random_filler = false;      // kZoology
};

struct MqarPair {
  std::int64_t cue = 0;
  std::int64_t response = 0;
  bool operator==(const MqarPair&) const = default;
};

struct MqarQuery {
  std::int64_t position = 0;  // where the cue is asked; of an unwritten question: the last token
  std::int64_t cue = 0;
  std::int64_t response = 0;
};

inline constexpr std::int64_t kNoLabel = -1;

struct MqarExample {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> labels;  // as long as tokens; kNoLabel where nothing is asked
  std::vector<MqarPair> pairs;       // the map, P pairs
  std::vector<MqarPair> memory;      // the pairs in the order of their writing, repeats included
  std::vector<MqarQuery> queries;    // in the order of their positions
};

/// Example number `index` of the endless data set `seed`; any may be made without those before it.
/// Throws Error for options that no example satisfies.
MqarExample MakeMqar(const MqarOptions& options, std::uint64_t seed, std::uint64_t index);

}  // namespace ttr::experiments
