#include "experiments/data/mqar.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "experiments/data/streams.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

// One example has 2^40 draws to itself.
constexpr int kDrawsPerExample = 40;
// No sum or product of sizes below overflows.
constexpr std::int64_t kMost = std::int64_t{1} << 28;

void Require(bool holds, std::string_view name, std::string_view required, double given) {
  if (!holds) {
    throw Error(fmt::format("[mqar] {} must be {} but is {}", name, required, given));
  }
}

void Validate(const MqarOptions& o, std::uint64_t index) {
  const auto number = [](auto x) { return static_cast<double>(x); };
  Require(o.pairs >= 1 && o.pairs <= kMost, "pairs", "in 1..2^28", number(o.pairs));
  Require(o.vocabulary % 2 == 0 && o.vocabulary / 2 - 1 >= o.pairs, "vocabulary",
          fmt::format("even and at least 2 * pairs + 2 = {}", 2 * o.pairs + 2),
          number(o.vocabulary));
  Require(index < std::uint64_t{1} << (63 - kDrawsPerExample), "index", "below 2^23",
          number(index));
  if (o.law != MqarLaw::kWithReplacement) {
    Require(o.passes >= 1 && o.passes <= kMost, "passes", "in 1..2^28", number(o.passes));
  }
  if (o.law == MqarLaw::kZoology) {
    const std::int64_t least = 2 * o.pairs * (o.passes + 1);
    Require(o.tokens % 2 == 0 && o.tokens >= least, "tokens",
            fmt::format("even and at least 2 * pairs * (passes + 1) = {}", least),
            number(o.tokens));
    Require(o.slot_exponent > 0 && std::isfinite(o.slot_exponent), "slot_exponent",
            "positive and finite", o.slot_exponent);
  }
  if (o.law == MqarLaw::kWithReplacement) {
    Require(o.tokens % 2 == 0 && o.tokens >= 2, "tokens", "even and at least 2", number(o.tokens));
  }
}

void Write(const MqarPair& pair, MqarExample& example) {
  example.tokens.push_back(pair.cue);
  example.tokens.push_back(pair.response);
  example.memory.push_back(pair);
}

// Slots without replacement, in the order of the draw. Drawing one after the other with weights w_s
// is a race: slot s arrives at E_s / w_s with E_s exponential, and the first P win. Times are
// compared as logarithms.
std::vector<std::int64_t> DrawSlots(std::int64_t slots, std::int64_t count, double exponent,
                                    CounterRandom& random) {
  struct Arrival {
    double log_time;
    std::int64_t slot;
  };
  std::vector<Arrival> arrivals(slots);
  for (std::int64_t s = 0; s < slots; ++s) {
    const double log_weight = (exponent - 1) * PortableLog(static_cast<double>(s + 1));
    arrivals[s] = {PortableLog(random.Exponential()) - log_weight, s};
  }
  std::partial_sort(arrivals.begin(), arrivals.begin() + count, arrivals.end(),
                    [](const Arrival& a, const Arrival& b) {
                      return a.log_time != b.log_time ? a.log_time < b.log_time : a.slot < b.slot;
                    });
  std::vector<std::int64_t> winners;
  for (std::int64_t j = 0; j < count; ++j) {
    winners.push_back(arrivals[j].slot);
  }
  return winners;
}

void FillZoology(const MqarOptions& o, CounterRandom& random, MqarExample& example) {
  for (std::int64_t pass = 0; pass < o.passes; ++pass) {
    for (const MqarPair& pair : example.pairs) {
      Write(pair, example);
    }
  }
  const auto context = static_cast<std::int64_t>(example.tokens.size());
  const std::vector<std::int64_t> slots =
      DrawSlots((o.tokens - context) / 2, o.pairs, o.slot_exponent, random);
  example.tokens.resize(o.tokens, 0);
  if (o.random_filler) {
    for (std::int64_t t = context; t < o.tokens; ++t) {
      example.tokens[t] = random.Below(o.vocabulary);
    }
  }
  example.labels.assign(o.tokens, kNoLabel);
  for (std::int64_t j = 0; j < o.pairs; ++j) {
    const std::int64_t position = context + 2 * slots[j];
    const MqarPair& pair = example.pairs[j];
    example.tokens[position] = pair.cue;
    example.labels[position] = pair.response;
    example.queries.push_back({position, pair.cue, pair.response});
  }
  std::sort(example.queries.begin(), example.queries.end(),
            [](const MqarQuery& a, const MqarQuery& b) { return a.position < b.position; });
}

void FillWithReplacement(const MqarOptions& o, CounterRandom& random, MqarExample& example) {
  for (std::int64_t i = 0; i < o.tokens / 2; ++i) {
    Write(example.pairs[random.Below(o.pairs)], example);
  }
}

void FillBalanced(const MqarOptions& o, CounterRandom& random, MqarExample& example) {
  for (std::int64_t pass = 0; pass < o.passes; ++pass) {
    for (const std::int64_t j : random.Permutation(o.pairs)) {
      Write(example.pairs[j], example);
    }
  }
}

// Closes the sequence with one of the cues seen, and asks for all of them beside it.
void AskSeen(CounterRandom& random, MqarExample& example) {
  const auto position = static_cast<std::int64_t>(example.tokens.size());
  std::unordered_set<std::int64_t> seen;
  for (const MqarPair& pair : example.memory) {
    if (seen.insert(pair.cue).second) {
      example.queries.push_back({position, pair.cue, pair.response});
    }
  }
  const MqarQuery& asked =
      example.queries[random.Below(static_cast<std::int64_t>(example.queries.size()))];
  example.tokens.push_back(asked.cue);
  example.labels.assign(position, kNoLabel);
  example.labels.push_back(asked.response);
}

}  // namespace

MqarExample MakeMqar(const MqarOptions& options, std::uint64_t seed, std::uint64_t index) {
  Validate(options, index);
  CounterRandom random(seed, kMqarStream);
  random.Seek(index << kDrawsPerExample);

  MqarExample example;
  const std::int64_t half = options.vocabulary / 2;
  const std::vector<std::int64_t> cues = random.Choose(half - 1, options.pairs);
  const std::vector<std::int64_t> responses = random.Choose(half, options.pairs);
  for (std::int64_t j = 0; j < options.pairs; ++j) {
    example.pairs.push_back({1 + cues[j], half + responses[j]});
  }
  switch (options.law) {
    case MqarLaw::kZoology: FillZoology(options, random, example); break;
    case MqarLaw::kWithReplacement:
      FillWithReplacement(options, random, example);
      AskSeen(random, example);
      break;
    case MqarLaw::kBalanced:
      FillBalanced(options, random, example);
      AskSeen(random, example);
      break;
  }
  return example;
}

}  // namespace ttr::experiments
