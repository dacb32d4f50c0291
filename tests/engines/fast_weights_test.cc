#include "src/engines/fast_weights/fast_weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/engines/fast_weights_case.h"
#include "tests/support/engines.h"
#include "tests/support/targets.h"
#include "ttr/error.h"

namespace ttr::fast_weights {
namespace {

using test::Bytes;
using test::OnTarget;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class FastWeightsOnTarget : public testing::TestWithParam<std::string> {};

TEST_P(FastWeightsOnTarget, AgreesWithTheDefinition) {
  const OnTarget target(GetParam());
  ASSERT_EQ(KernelTarget(), GetParam());
  for (const Case& c : AllCases()) {
    const Problem problem(c);
    const Expected expected = Define(problem);
    RunForward(problem, problem.call());
    ExpectClose(problem, expected, c.name);
  }
}

TEST_P(FastWeightsOnTarget, SplitsAnywhereAndStepsTokenByToken) {
  const OnTarget target(GetParam());
  for (const Case& c : AllCases()) {
    if (c.tokens < 2 || c.tokens > 50 || !c.cu_seqlens.empty()) continue;
    const Problem problem(c);
    const Expected expected = Define(problem);
    for (const std::int64_t part : {std::int64_t{1}, std::int64_t{7}, std::int64_t{17}}) {
      const Problem fresh(c);
      for (std::int64_t t = 0; t < c.tokens; t += part) {
        RunForward(fresh, fresh.Range(t, std::min(part, c.tokens - t)));
      }
      ExpectClose(fresh, expected, c.name + " in parts of " + std::to_string(part));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, FastWeightsOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

TEST(FastWeights, HasTheSameBitsForAnyNumberOfThreads) {
  const std::unique_ptr<Executor> two = MakeExecutor(2);
  const std::unique_ptr<Executor> five = MakeExecutor(5);
  for (const std::int64_t heads : {1, 3}) {
    for (const DType state : {DType::kFloat32, DType::kFloat64}) {
      // Large enough for threads to be used; with one head its value columns are divided.
      Case c{.name = "threads", .batch = 1, .tokens = 150, .heads = heads, .query_heads = heads};
      c.key_heads = c.value_heads = heads;
      c.key_dim = 64;
      c.value_dim = 150;
      c.data = c.state = state;
      c.log_decays = {-0.1, -0.01, -1};
      const Problem one(c);
      RunForward(one, one.call());
      for (Executor* executor : {two.get(), five.get()}) {
        const Problem many(c);
        RunForward(many, many.call(), *executor);
        EXPECT_EQ(Bytes(one.y.memory), Bytes(many.y.memory)) << heads;
        EXPECT_EQ(Bytes(one.state.memory), Bytes(many.state.memory)) << heads;
      }
      ExpectClose(one, Define(Problem(c)), "threads");
    }
  }
}

TEST(FastWeights, ColumnsOfTheMemoryDoNotDependOnEachOther) {
  Case wide{.name = "columns", .tokens = 40, .key_dim = 24, .value_dim = 96};
  const Problem all(wide);
  Case narrow = wide;
  narrow.value_dim = 32;
  const Problem some(narrow);
  // The problem, seen through the first columns of the wide tensors.
  Problem part(wide);
  Call call = part.call();
  for (TensorView* view : {&call.v, &call.y, &call.state}) *view = view->Slice(3, 0, 32);
  RunForward(all, all.call());
  RunForward(part, call);
  for (std::int64_t t = 0; t < wide.tokens; ++t) {
    for (std::int64_t d = 0; d < wide.value_dim; ++d) {
      const double y = part.y.view.At({0, t, 0, d});
      if (d < 32) {
        EXPECT_EQ(y, all.y.view.At({0, t, 0, d}));
      } else {
        EXPECT_TRUE(std::isnan(y)) << "written outside of the view";
      }
    }
  }
}

TEST(FastWeights, UpdatesAStateWithPaddedRowsInPlace) {
  for (const std::int64_t tokens : {1, 20}) {
    Case c{.name = "padded state", .tokens = tokens, .heads = 2, .key_dim = 6, .value_dim = 10};
    const Problem problem(c);
    const Expected expected = Define(problem);
    Tensor padded(DType::kFloat32, {1, 2, 6, 16});
    for (float& x : padded.as<float>()) x = -7;
    Call call = problem.call();
    call.state = padded.view().Slice(3, 0, 10);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t k = 0; k < 6; ++k) {
        for (std::int64_t d = 0; d < 10; ++d) {
          call.state.Set({0, h, k, d}, problem.state.view.At({0, h, k, d}));
        }
      }
    }
    RunForward(problem, call);
    for (std::int64_t h = 0; h < 2; ++h) {
      for (std::int64_t k = 0; k < 6; ++k) {
        for (std::int64_t d = 0; d < 10; ++d) {
          problem.state.view.Set({0, h, k, d}, call.state.At({0, h, k, d}));
        }
        for (std::int64_t d = 10; d < 16; ++d) EXPECT_EQ(padded.view().At({0, h, k, d}), -7);
      }
    }
    ExpectClose(problem, expected, "padded state");
  }
}

TEST(FastWeights, ReadingAloneLeavesTheStateAsItIs) {
  for (const std::int64_t tokens : {2, 30}) {
    Case c{.name = "read", .tokens = tokens};
    c.writes = false;
    const Problem problem(c);
    const std::vector<std::byte> before = Bytes(problem.state.memory);
    RunForward(problem, problem.call());
    EXPECT_EQ(before, Bytes(problem.state.memory));
  }
}

TEST(FastWeights, AStepOfZeroKeepsTheMemory) {
  for (const std::int64_t tokens : {1, 30}) {
    Case c{.name = "step 0", .tokens = tokens};
    const Problem problem(c);
    for (std::int64_t t = 0; t < tokens; ++t) problem.step.view.Set({0, t, 0}, 0);
    const std::vector<std::byte> before = Bytes(problem.state.memory);
    RunForward(problem, problem.call());
    EXPECT_EQ(before, Bytes(problem.state.memory));
  }
}

// What is not finite reaches the tokens that depend on it: the definition says which.
TEST(FastWeights, ConfinesWhatIsNotFinite) {
  struct Place {
    const char* name;
    Data Problem::* data;
    std::vector<std::int64_t> index;
  };
  const Place places[] = {
      {"q", &Problem::q, {0, 20, 1, 3}},         {"k", &Problem::k, {0, 20, 1, 3}},
      {"v", &Problem::v, {0, 20, 1, 3}},         {"v first", &Problem::v, {0, 0, 0, 39}},
      {"step", &Problem::step, {0, 20, 1}},      {"log_decay", &Problem::log_decay, {0, 20, 1}},
      {"state", &Problem::state, {0, 1, 2, 33}}, {"v last", &Problem::v, {0, 36, 1, 0}},
  };
  for (const std::string& target : test::Targets()) {
    const OnTarget on(target);
    for (const Write write : {Write::kDelta, Write::kHebbian}) {
      for (const bool before : {false, true}) {
        for (const bool forgetful : {false, true}) {
          for (const Place& place : places) {
            for (const double value : {kNaN, kInf}) {
              if (std::isinf(value) && std::strcmp(place.name, "log_decay") == 0) continue;
              for (const std::int64_t part : {37, 2}) {
                Case c{.name = "confined", .tokens = 37, .heads = 2, .query_heads = 2};
                c.options.write = write;
                c.options.read_before = before;
                c.key_heads = c.value_heads = 2;
                c.key_dim = 6;
                c.value_dim = 40;
                c.log_decays = {-0.1, -0.2, -0.3};
                const Problem problem(c);
                const TensorView& view = (problem.*place.data).view;
                if (view.rank() == 3) {
                  view.Set({place.index[0], place.index[1], place.index[2]}, value);
                } else {
                  view.Set({place.index[0], place.index[1], place.index[2], place.index[3]}, value);
                }
                if (forgetful) {
                  problem.log_decay.view.Set({0, 25, 1}, -kInf);
                  problem.log_decay.view.Set({0, 32, 0}, -kInf);
                }
                const Expected expected = Define(problem);
                for (std::int64_t t = 0; t < c.tokens; t += part) {
                  RunForward(problem, problem.Range(t, std::min(part, c.tokens - t)));
                }
                ExpectClose(problem, expected,
                            std::string(place.name) + (before ? " before" : "") +
                                (forgetful ? " forgotten" : "") + " on " + target);
              }
            }
          }
        }
      }
    }
  }
}

TEST(FastWeights, RefusesTooSmallAScratch) {
  const Problem problem(Case{.name = "scratch"});
  std::vector<std::byte> scratch(100);
  EXPECT_THROW(Forward(problem.options, problem.call(), SequentialExecutor(), scratch), Error);
}

TEST(FastWeights, AllocatesAScratchWhereNoneIsGiven) {
  const Problem problem(Case{.name = "no scratch"});
  const Expected expected = Define(problem);
  Forward(problem.options, problem.call(), SequentialExecutor());
  ExpectClose(problem, expected, "no scratch");
}

}  // namespace
}  // namespace ttr::fast_weights
