#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "experiments/data/embedding.h"
#include "experiments/data/mqar.h"
#include "ttr/error.h"

namespace ttr::experiments {
namespace {

MqarOptions Zoology(std::int64_t tokens, std::int64_t pairs) {
  MqarOptions options;
  options.tokens = tokens;
  options.pairs = pairs;
  return options;
}

TEST(Mqar, ZoologyExampleIsWellFormed) {
  for (const std::int64_t passes : {1, 3}) {
    for (const bool random_filler : {false, true}) {
      MqarOptions options = Zoology(256, 16);
      options.passes = passes;
      options.random_filler = random_filler;
      const MqarExample example = MakeMqar(options, 1, 4);
      const std::int64_t context = 32 * passes;
      ASSERT_EQ(example.tokens.size(), 256u);
      ASSERT_EQ(example.labels.size(), 256u);
      std::set<std::int64_t> cues, responses;
      std::map<std::int64_t, std::int64_t> map;
      for (const MqarPair& pair : example.pairs) {
        EXPECT_TRUE(pair.cue >= 1 && pair.cue <= 4095) << pair.cue;
        EXPECT_TRUE(pair.response >= 4096 && pair.response <= 8191) << pair.response;
        cues.insert(pair.cue);
        responses.insert(pair.response);
        map[pair.cue] = pair.response;
      }
      EXPECT_EQ(cues.size(), 16u);
      EXPECT_EQ(responses.size(), 16u);
      ASSERT_EQ(example.memory.size(), 16u * passes);
      for (std::int64_t i = 0; i < context / 2; ++i) {
        EXPECT_EQ(example.memory[i], example.pairs[i % 16]);
        EXPECT_EQ(example.tokens[2 * i], example.pairs[i % 16].cue);
        EXPECT_EQ(example.tokens[2 * i + 1], example.pairs[i % 16].response);
      }
      std::set<std::int64_t> asked;
      int filler = 0;
      std::size_t next_query = 0;
      for (std::int64_t t = 0; t < 256; ++t) {
        if (example.labels[t] != kNoLabel) {
          EXPECT_EQ(t % 2, 0);
          EXPECT_GE(t, context);
          EXPECT_EQ(map.at(example.tokens[t]), example.labels[t]);
          asked.insert(example.tokens[t]);
          ASSERT_LT(next_query, example.queries.size());
          EXPECT_EQ(example.queries[next_query].position, t);
          EXPECT_EQ(example.queries[next_query].cue, example.tokens[t]);
          EXPECT_EQ(example.queries[next_query].response, example.labels[t]);
          ++next_query;
        } else if (t >= context) {
          filler += example.tokens[t] == 0;
        }
      }
      EXPECT_EQ(asked, cues);
      EXPECT_EQ(next_query, 16u);
      if (random_filler) {
        EXPECT_LE(filler, 1);
      } else {
        EXPECT_EQ(filler, 256 - context - 16);
      }
    }
  }
}

struct Signature {
  double first = 0, second = 0;  // how often cue 0 gets slot 0, slot 1
  double occupied = 0;           // how often slot 0 is taken at all
  double mean = 0, median = 0, distance = 0;
};

Signature Measure(const MqarOptions& options, int examples) {
  Signature s;
  std::vector<std::int64_t> slots;
  const std::int64_t context = 2 * options.pairs;
  for (int i = 0; i < examples; ++i) {
    const MqarExample example = MakeMqar(options, 77, i);
    std::map<std::int64_t, std::int64_t> written;
    for (std::size_t j = 0; j < example.pairs.size(); ++j) {
      written[example.pairs[j].cue] = static_cast<std::int64_t>(2 * j);
    }
    for (const MqarQuery& query : example.queries) {
      const std::int64_t slot = (query.position - context) / 2;
      slots.push_back(slot);
      s.mean += static_cast<double>(slot);
      s.distance += static_cast<double>(query.position - written[query.cue]);
      if (query.cue == example.pairs[0].cue) {
        s.first += slot == 0;
        s.second += slot == 1;
      }
    }
    s.occupied += example.queries[0].position == context;
  }
  s.first /= examples;
  s.second /= examples;
  s.occupied /= examples;
  s.mean /= static_cast<double>(slots.size());
  s.distance /= static_cast<double>(slots.size());
  std::nth_element(slots.begin(), slots.begin() + slots.size() / 2, slots.end());
  s.median = static_cast<double>(slots[slots.size() / 2]);
  return s;
}

// The signature of Zoology's generator at two sizes, from the table that the law of
// python/ttr/experiments is held to as well. Errors: four standard errors of the frequency of a
// slot; a slot has a deviation of some 29 (115), an example 16 (64) nearly independent ones.
TEST(Mqar, ZoologySlotsFollowTheirLaw) {
  std::ifstream file(std::string(TTR_SOURCE_DIR) + "/tests/experiments/mqar_law.json");
  const auto sizes = nlohmann::json::parse(file);
  ASSERT_EQ(sizes.size(), 2u);
  const auto law = [&](int size, const char* name) { return sizes[size].at(name).get<double>(); };
  const auto zoology = [&](int size) {
    return Zoology(sizes[size].at("tokens"), sizes[size].at("pairs"));
  };
  constexpr int kExamples = 20000;
  const Signature small = Measure(zoology(0), kExamples);
  const auto error = [&](double share) { return 4 * std::sqrt(share * (1 - share) / kExamples); };
  EXPECT_NEAR(small.first, law(0, "first"), error(law(0, "first")));
  EXPECT_NEAR(small.second, law(0, "second"), error(law(0, "second")));
  EXPECT_NEAR(small.occupied, law(0, "occupied"), error(law(0, "occupied")));
  EXPECT_NEAR(small.mean, law(0, "mean"), 0.25);
  EXPECT_NEAR(small.median, law(0, "median"), 0);
  EXPECT_NEAR(small.distance, law(0, "distance"), 0.5);

  constexpr int kLongExamples = 3000;
  const Signature large = Measure(zoology(1), kLongExamples);
  EXPECT_NEAR(large.mean, law(1, "mean"), 1.2);
  EXPECT_NEAR(large.median, law(1, "median"), 1);
  EXPECT_NEAR(large.distance, law(1, "distance"), 2.4);
}

TEST(Mqar, SmallestZoologyExampleFillsEverySlot) {
  const MqarExample example = MakeMqar(Zoology(64, 16), 1, 0);
  for (std::int64_t j = 0; j < 16; ++j) {
    EXPECT_EQ(example.queries[j].position, 32 + 2 * j);
  }
}

TEST(Mqar, WithReplacementDrawsPairsEvenlyAndAsksASeenOne) {
  MqarOptions options = Zoology(64, 8);
  options.law = MqarLaw::kWithReplacement;
  std::vector<int> drawn(8), asked(8);
  constexpr int kExamples = 2000;
  for (int i = 0; i < kExamples; ++i) {
    const MqarExample example = MakeMqar(options, 2, i);
    ASSERT_EQ(example.tokens.size(), 65u);
    ASSERT_EQ(example.memory.size(), 32u);
    std::set<std::int64_t> seen;
    for (std::size_t j = 0; j < 32; ++j) {
      EXPECT_EQ(example.tokens[2 * j], example.memory[j].cue);
      EXPECT_EQ(example.tokens[2 * j + 1], example.memory[j].response);
      seen.insert(example.memory[j].cue);
      const auto at = std::find(example.pairs.begin(), example.pairs.end(), example.memory[j]);
      ASSERT_NE(at, example.pairs.end());
      ++drawn[at - example.pairs.begin()];
    }
    ASSERT_EQ(example.queries.size(), seen.size());
    const auto at = std::find(example.pairs.begin(), example.pairs.end(),
                              MqarPair{example.tokens[64], example.labels[64]});
    ASSERT_NE(at, example.pairs.end());
    EXPECT_TRUE(seen.count(example.tokens[64]));
    ++asked[at - example.pairs.begin()];
    EXPECT_EQ(std::count(example.labels.begin(), example.labels.end(), kNoLabel), 64);
  }
  for (int j = 0; j < 8; ++j) {
    EXPECT_NEAR(drawn[j], 32 * kExamples / 8, 4 * std::sqrt(32 * kExamples * 7.0 / 64));
    EXPECT_NEAR(asked[j], kExamples / 8, 4 * std::sqrt(kExamples * 7.0 / 64));
  }
}

TEST(Mqar, BalancedWritesEveryPairOnceAPass) {
  MqarOptions options = Zoology(0, 16);
  options.law = MqarLaw::kBalanced;
  options.passes = 3;
  const MqarExample example = MakeMqar(options, 2, 9);
  ASSERT_EQ(example.tokens.size(), 97u);
  std::set<std::vector<std::int64_t>> orders;
  for (int pass = 0; pass < 3; ++pass) {
    std::vector<std::int64_t> cues;
    for (int j = 0; j < 16; ++j) {
      cues.push_back(example.memory[pass * 16 + j].cue);
    }
    orders.insert(cues);
    EXPECT_EQ(std::set<std::int64_t>(cues.begin(), cues.end()).size(), 16u);
  }
  EXPECT_EQ(orders.size(), 3u);
  EXPECT_EQ(example.queries.size(), 16u);
}

TEST(Mqar, ExamplesAreIndependentOfOneAnother) {
  const MqarOptions options = Zoology(256, 16);
  EXPECT_EQ(MakeMqar(options, 1, 5).tokens, MakeMqar(options, 1, 5).tokens);
  EXPECT_NE(MakeMqar(options, 1, 5).tokens, MakeMqar(options, 1, 6).tokens);
  EXPECT_NE(MakeMqar(options, 1, 5).tokens, MakeMqar(options, 2, 5).tokens);
}

TEST(Mqar, RefusesWhatDoesNotFit) {
  const auto refuses = [](auto change, const char* name) {
    MqarOptions options;
    change(options);
    try {
      MakeMqar(options, 0, 0);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
  };
  refuses([](auto& o) { o.tokens = 62; }, "tokens");
  refuses([](auto& o) { o.tokens = 257; }, "tokens");
  refuses([](auto& o) { o.pairs = 0; }, "pairs");
  refuses([](auto& o) { o.pairs = std::int64_t{1} << 62; }, "pairs");
  refuses([](auto& o) { o.vocabulary = 32; }, "vocabulary");
  refuses([](auto& o) { o.passes = 0; }, "passes");
  refuses([](auto& o) { o.slot_exponent = 0; }, "slot_exponent");
}

double Dot(const std::vector<double>& table, int dim, int i, int j) {
  double sum = 0;
  for (int c = 0; c < dim; ++c) {
    sum += table[i * dim + c] * table[j * dim + c];
  }
  return sum;
}

TEST(Embedding, UnitVectorsAreUnitAndSpreadEvenly) {
  constexpr int kDim = 64, kCount = 300;
  const std::vector<double> table = UnitVectors(4, kCount, kDim);
  double mean = 0, square = 0;
  for (int i = 0; i < kCount; ++i) {
    EXPECT_NEAR(Dot(table, kDim, i, i), 1, 1e-15 * 8);
    for (int j = 0; j < i; ++j) {
      const double overlap = Dot(table, kDim, i, j);
      mean += overlap;
      square += overlap * overlap;
    }
  }
  const double couples = kCount * (kCount - 1) / 2.0;
  EXPECT_NEAR(mean / couples, 0, 4 / std::sqrt(couples * kDim));
  EXPECT_NEAR(square / couples * kDim, 1, 4 * std::sqrt(2 / couples));
  // A vector is a function of (seed, id) alone.
  std::vector<double> one(kDim);
  UnitVector(4, 17, one);
  EXPECT_TRUE(std::equal(one.begin(), one.end(), table.begin() + 17 * kDim));
  UnitVector(5, 17, one);
  EXPECT_FALSE(std::equal(one.begin(), one.end(), table.begin() + 17 * kDim));
}

TEST(Embedding, OrthonormalVectorsAreOrthonormalToRounding) {
  for (const int count : {1, 40, 128}) {
    constexpr int kDim = 128;
    const std::vector<double> table = OrthonormalVectors(4, count, kDim);
    for (int i = 0; i < count; ++i) {
      for (int j = 0; j <= i; ++j) {
        EXPECT_NEAR(Dot(table, kDim, i, j), i == j, 2e-15) << i << " " << j;
      }
    }
  }
}

TEST(Embedding, RefusesWhatDoesNotFit) {
  EXPECT_THROW(OrthonormalVectors(0, 5, 4), Error);
  EXPECT_THROW(OrthonormalVectors(0, 0, 0), Error);
  EXPECT_THROW(UnitVectors(0, -1, 4), Error);
  EXPECT_THROW(UnitVectors(0, 1, 0), Error);
  EXPECT_THROW(UnitVector(0, 1, {}), Error);
}

}  // namespace
}  // namespace ttr::experiments
