#include "src/engines/fast_weights/adjoint/gradient.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/gradient_case.h"
#include "tests/support/targets.h"

namespace ttr::fast_weights {
namespace {

std::vector<GradientShape> Shapes() {
  std::vector<GradientShape> shapes;
  GradientShape delta;
  delta.tokens = 33;
  delta.sizes = {.key_dim = 16, .value_dim = 33, .queries = 1, .erase = true};
  for (const bool erase : {true, false}) {
    for (const bool before : {false, true}) {
      GradientShape shape = delta;
      shape.sizes.erase = erase;
      shape.read_before = before;
      shapes.push_back(shape);
      for (const Gates gates : {Gates::kMild, Gates::kMixed, Gates::kStrong, Gates::kNegative}) {
        shape.gates = gates;
        shape.sizes.decay = GradientDecay::kScalar;
        for (const Seen seen : {Seen::kDecayed, Seen::kUndecayed, Seen::kOwn}) {
          if (seen != Seen::kDecayed && !erase) continue;
          shape.seen = seen;
          shapes.push_back(shape);
        }
        shape.seen = Seen::kDecayed;
        shape.reset = true;
        if (gates == Gates::kMixed) shapes.push_back(shape);
        shape.reset = false;
        if (gates == Gates::kNegative) continue;
        shape.sizes.decay = GradientDecay::kChannel;
        for (const Seen seen : {Seen::kDecayed, Seen::kUndecayed}) {
          if (seen != Seen::kDecayed && !erase) continue;
          shape.seen = seen;
          shapes.push_back(shape);
        }
        shape.seen = Seen::kDecayed;
      }
    }
  }
  // RWKV-7: an undecayed erasure of its own, and the values written apart.
  for (const GradientDecay decay :
       {GradientDecay::kNone, GradientDecay::kScalar, GradientDecay::kChannel}) {
    for (const bool value : {false, true}) {
      GradientShape shape = delta;
      shape.sizes.decay = decay;
      shape.sizes.second_write = true;
      shape.seen = Seen::kUndecayed;
      shape.value = value;
      shape.step = value;
      shape.bonus = true;
      shapes.push_back(shape);
      shape.sizes.queries = 3;
      shape.seen = Seen::kDecayed;
      shape.gates = Gates::kMixed;
      shape.read_before = value;
      shapes.push_back(shape);
    }
  }
  GradientShape bonus = delta;  // RWKV-6
  bonus.sizes.erase = false;
  bonus.sizes.decay = GradientDecay::kChannel;
  bonus.read_before = bonus.bonus = true;
  bonus.step = false;
  bonus.sizes.queries = 3;
  shapes.push_back(bonus);
  GradientShape bare = delta;
  bare.states = bare.step = false;
  shapes.push_back(bare);
  bare.sizes.queries = 0;
  bare.states = true;
  shapes.push_back(bare);
  bare.sizes.queries = 9;
  bare.sizes.decay = GradientDecay::kScalar;
  shapes.push_back(bare);
  bare.sizes.decay = GradientDecay::kChannel;
  shapes.push_back(bare);
  return shapes;
}

GradientArrays OutputGradients(const GradientShape& shape, std::uint64_t seed) {
  GradientShape like = shape;
  like.sizes.queries = std::max<std::int64_t>(shape.sizes.queries, 1);
  like.tokens *= like.sizes.queries;
  like.value = true;
  const GradientArrays random = RandomInputs(like, seed);
  GradientArrays d;
  if (shape.sizes.queries > 0) d["output"] = random.at("value");
  if (shape.states) d["final"] = random.at("initial");
  return d;
}

/// A step of the difference quotients moves every input whose gate it does not turn over.
bool Movable(const std::string& name, double x) {
  return name != "log_decay" || x > -std::numeric_limits<double>::infinity();
}

TEST(Gradient, ReverseModeIsTheSlopeOfTheRecurrence) {
  for (GradientShape shape : Shapes()) {
    if (shape.reset) continue;
    SCOPED_TRACE(shape.Name());
    shape.tokens = 5;
    shape.sizes.key_dim = 3;
    shape.sizes.value_dim = 2;
    const GradientArrays in = RandomInputs(shape, 7);
    const GradientArrays d = OutputGradients(shape, 8);
    GradientArrays magnitudes;
    const GradientArrays gradient = ReverseMode(shape, in, d, &magnitudes);
    const auto loss = [&](const GradientArrays& inputs) {
      const GradientArrays out = Recurrence(shape, inputs);
      double sum = 0;
      for (const auto& [name, weights] : d) {
        for (std::size_t i = 0; i < weights.size(); ++i) sum += weights[i] * out.at(name)[i];
      }
      return sum;
    };
    for (const auto& [name, values] : in) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        if (!Movable(name, values[i])) {
          EXPECT_EQ(gradient.at(name)[i], 0);
          continue;
        }
        GradientArrays moved = in;
        moved[name][i] = values[i] + 1e-5;
        const double up = loss(moved);
        moved[name][i] = values[i] - 1e-5;
        const double slope = (up - loss(moved)) / 2e-5;
        ASSERT_NEAR(gradient.at(name)[i], slope, 1e-7 * (1 + std::abs(slope))) << name << " " << i;
      }
    }
  }
}

/// Numbers of one token (of one head) of an input; all of them where it is a memory.
std::int64_t TokenWidth(const GradientShape& shape, const std::string& name, std::size_t count) {
  if (name == "initial") return static_cast<std::int64_t>(count);
  const std::int64_t heads = name == "query" || name == "bonus" ? shape.sizes.queries : 1;
  return static_cast<std::int64_t>(count) / (heads * shape.tokens);
}

template <class T>
void Compare(const GradientShape& shape, std::uint64_t seed) {
  SCOPED_TRACE(shape.Name());
  const GradientArrays in = RandomInputs(shape, seed);
  const GradientArrays d = OutputGradients(shape, seed + 1);
  GradientArrays magnitudes;
  const GradientArrays expected = ReverseMode(shape, in, d, &magnitudes);
  const GradientArrays found = EngineGradients<T>(shape, in, d);
  // Unit keys and contracting updates: an error is a few roundings of what a token sums, or of what
  // an ordinary token sums, whose errors reach it through the memory.
  const double unit = 16 * static_cast<double>(std::numeric_limits<T>::epsilon());
  for (const auto& [name, values] : expected) {
    if (values.empty()) continue;
    const std::vector<double>& sizes = magnitudes.at(name);
    double squares = 0;
    for (const double x : sizes) squares += x * x;
    const double ordinary = std::sqrt(squares / static_cast<double>(sizes.size()));
    const std::int64_t width = TokenWidth(shape, name, values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::size_t first = i / width * width;
      const double largest =
          *std::max_element(sizes.begin() + first, sizes.begin() + first + width);
      ASSERT_NEAR(found.at(name)[i], values[i], unit * (largest + ordinary))
          << name << " token " << i / width << " element " << i - first;
    }
  }
}

class GradientOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};

TEST_P(GradientOnTarget, EveryModeAgreesWithTheRecurrence) {
  std::uint64_t seed = 1;
  for (const GradientShape& shape : Shapes()) {
    Compare<float>(shape, ++seed);
    Compare<double>(shape, seed);
    if (HasFatalFailure()) return;
  }
}

TEST_P(GradientOnTarget, EveryShapeAgreesWithTheRecurrence) {
  std::uint64_t seed = 100;
  for (const GradientDecay decay : {GradientDecay::kScalar, GradientDecay::kChannel}) {
    for (const bool erase : {true, false}) {
      for (const std::int64_t tokens : {0, 1, 7, 16, 33, 130}) {
        for (const std::int64_t dim : {1, 3, 16, 33, 64}) {
          GradientShape shape;
          shape.tokens = tokens;
          shape.sizes = {.key_dim = dim,
                         .value_dim = 67 - dim,
                         .queries = dim == 16 ? 3 : 1,
                         .erase = erase,
                         .decay = decay};
          shape.gates = tokens % 2 == 0 ? Gates::kMixed : Gates::kMild;
          Compare<float>(shape, ++seed);
          Compare<double>(shape, seed);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Long enough for blocks of several chunks, whose memories are computed again.
TEST_P(GradientOnTarget, LongSequencesAgreeWithTheRecurrence) {
  GradientShape shape;
  shape.tokens = 8330;
  shape.sizes = {.key_dim = 17, .value_dim = 3, .queries = 1, .erase = true};
  shape.gates = Gates::kMixed;
  for (const GradientDecay decay :
       {GradientDecay::kNone, GradientDecay::kScalar, GradientDecay::kChannel}) {
    shape.sizes.decay = decay;
    shape.reset = decay == GradientDecay::kScalar;
    Compare<double>(shape, 300);
  }
  shape.sizes.value_dim = 17;
  Compare<float>(shape, 301);
}

// A forgotten memory is no number, and no token behind the border has a gradient that is none.
TEST_P(GradientOnTarget, WhatIsForgottenReachesNothingBehindIt) {
  for (const GradientDecay decay : {GradientDecay::kScalar, GradientDecay::kChannel}) {
    GradientShape shape;
    shape.tokens = 40;
    shape.sizes = {.key_dim = 20, .value_dim = 20, .queries = 2, .erase = true};
    shape.sizes.decay = decay;
    shape.reset = true;
    constexpr std::int64_t kBorder = 21;
    const double infinity = std::numeric_limits<double>::infinity();
    GradientArrays in = RandomInputs(shape, 5);
    if (decay == GradientDecay::kScalar) {
      in["decay"][kBorder] = 0;
    } else {
      std::fill_n(in["log_decay"].begin() + kBorder * shape.sizes.key_dim, shape.sizes.key_dim,
                  -infinity);
    }
    GradientArrays d = OutputGradients(shape, 6);
    const GradientArrays clean = EngineGradients<float>(shape, in, d);
    in["value"][kBorder * shape.sizes.value_dim - 1] = std::nan("");
    in["initial"][3] = infinity;
    const GradientArrays found = EngineGradients<float>(shape, in, d);
    for (const auto& [name, values] : clean) {
      if (name == "initial") continue;
      const std::int64_t heads = name == "query" ? shape.sizes.queries : 1;
      const std::int64_t width = TokenWidth(shape, name, values.size());
      for (std::int64_t row = 0; row < heads * shape.tokens; ++row) {
        if (row % shape.tokens < kBorder) continue;
        for (std::int64_t i = row * width; i < (row + 1) * width; ++i) {
          ASSERT_EQ(found.at(name)[i], values[i]) << name << " row " << row;
        }
      }
    }
    // Nor does a gradient from behind the border pass it.
    d["final"][0] = std::nan("");
    d["output"][(kBorder + 1) * shape.sizes.value_dim] = std::nan("");
    in = RandomInputs(shape, 5);
    if (decay == GradientDecay::kScalar) {
      in["decay"][kBorder] = 0;
    } else {
      std::fill_n(in["log_decay"].begin() + kBorder * shape.sizes.key_dim, shape.sizes.key_dim,
                  -infinity);
    }
    const GradientArrays back = EngineGradients<float>(shape, in, d);
    for (const auto& [name, values] : clean) {
      const std::int64_t width = TokenWidth(shape, name, values.size());
      const std::int64_t count = name == "initial" ? width : kBorder * width;
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(back.at(name)[i], values[i]) << name;
    }
  }
}

std::string TargetName(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Targets, GradientOnTarget, testing::ValuesIn(test::Targets()), TargetName);

}  // namespace
}  // namespace ttr::fast_weights
