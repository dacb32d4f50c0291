#include "src/engines/scan/scan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/engines/scan_case.h"
#include "tests/support/engines.h"
#include "tests/support/targets.h"
#include "ttr/error.h"

namespace ttr::scan {
namespace {

using test::Bytes;
using test::OnTarget;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class ScanOnTarget : public testing::TestWithParam<std::string> {};

TEST_P(ScanOnTarget, AgreesWithTheDefinition) {
  const OnTarget target(GetParam());
  ASSERT_EQ(KernelTarget(), GetParam());
  for (const Case& c : AllCases()) {
    const Problem problem(c);
    const Expected expected = Define(problem);
    RunForward(problem, problem.call());
    ExpectClose(problem, expected, c.name);
  }
}

TEST_P(ScanOnTarget, SplitsAnywhereAndStepsTokenByToken) {
  const OnTarget target(GetParam());
  for (const Case& c : AllCases()) {
    if (c.tokens < 2 || c.tokens > 50 || !c.cu_seqlens.empty()) continue;
    const Problem problem(c);
    const Expected expected = Define(problem);
    for (const std::int64_t part : {std::int64_t{1}, std::int64_t{7}}) {
      const Problem fresh(c);
      for (std::int64_t t = 0; t < c.tokens; t += part) {
        RunForward(fresh, fresh.Range(t, std::min(part, c.tokens - t)));
      }
      ExpectClose(fresh, expected, c.name + " in parts of " + std::to_string(part));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ScanOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

TEST(Scan, HasTheSameBitsForAnyNumberOfThreads) {
  const std::unique_ptr<Executor> two = MakeExecutor(2);
  const std::unique_ptr<Executor> five = MakeExecutor(5);
  for (const bool matrix : {false, true}) {
    for (const std::int64_t heads : {1, 3}) {
      // Large enough for threads to be used; with one head its columns are divided.
      Case c;
      c.name = "threads";
      c.matrix = matrix;
      c.phase = !matrix;
      c.tokens = matrix ? 60 : 400;
      c.heads = c.query_heads = c.key_heads = c.value_heads = heads;
      c.value_dim = 330;
      const Problem one(c);
      RunForward(one, one.call());
      for (Executor* executor : {two.get(), five.get()}) {
        const Problem many(c);
        RunForward(many, many.call(), *executor);
        EXPECT_EQ(Bytes(one.y.memory), Bytes(many.y.memory)) << heads;
        EXPECT_EQ(Bytes(one.state.memory), Bytes(many.state.memory)) << heads;
      }
    }
  }
}

TEST(Scan, WritesNothingOutsideOfItsViews) {
  for (const bool matrix : {false, true}) {
    Case c;
    c.name = "columns";
    c.matrix = matrix;
    c.heads = c.query_heads = c.key_heads = c.value_heads = 1;
    c.value_dim = 40;
    Case narrow = c;
    narrow.value_dim = 21;
    const Problem all(c), part(c);
    Call call = part.call();
    for (TensorView* view : {&call.v, &call.y, &call.dt, &call.log_decay}) {
      if (view->defined()) *view = view->Slice(3, 0, 21);
    }
    if (matrix) call.a = call.a.Slice(1, 0, 21);
    call.state = call.state.Slice(matrix ? 3 : 2, 0, 21);
    RunForward(all, all.call());
    RunForward(part, call);
    const Problem untouched(c);
    for (std::int64_t d = 0; d < 40; ++d) {
      const double y = part.y.view.At({0, 16, 0, d});
      const Problem& expected = d < 21 ? all : untouched;
      EXPECT_TRUE(d < 21 ? y == all.y.view.At({0, 16, 0, d}) : std::isnan(y)) << d;
      if (matrix) {
        EXPECT_EQ(part.state.view.At({0, 0, 3, d}), expected.state.view.At({0, 0, 3, d}));
      } else {
        EXPECT_EQ(part.state.view.At({0, 0, d}), expected.state.view.At({0, 0, d}));
      }
    }
  }
}

TEST(Scan, ReadingAloneLeavesTheStateAsItIs) {
  for (const bool matrix : {false, true}) {
    Case c;
    c.name = "read";
    c.matrix = matrix;
    c.writes = false;
    const Problem problem(c);
    const std::vector<std::byte> before = Bytes(problem.state.memory);
    RunForward(problem, problem.call());
    EXPECT_EQ(before, Bytes(problem.state.memory));
  }
}

TEST(Scan, WithoutDecayAndValueTheMemoryStaysToTheBit) {
  Case c;
  c.name = "kept";
  c.log_decays = {0};
  c.options.weight = Weight::kComplement;
  for (const bool matrix : {false, true}) {
    c.matrix = matrix;
    const Problem problem(c);
    Call call = problem.call();
    const Tensor zeros(DType::kFloat32, call.v.shape());
    call.v = zeros.view();
    const std::vector<std::byte> before = Bytes(problem.state.memory);
    RunForward(problem, call);
    EXPECT_EQ(before, Bytes(problem.state.memory));
  }
}

// What is not finite reaches what depends on it: the definition says which.
TEST(Scan, ConfinesWhatIsNotFinite) {
  struct Place {
    const char* name;
    Data Problem::* data;
    bool infinite;  // is an infinity data here?
  };
  const Place places[] = {{"v", &Problem::v, true},
                          {"v_im", &Problem::v_im, false},
                          {"importance", &Problem::importance, true},
                          {"log_decay", &Problem::log_decay, false},
                          {"phase", &Problem::phase, false},
                          {"q", &Problem::q, true},
                          {"k", &Problem::k, true},
                          {"dt", &Problem::dt, false},
                          {"a", &Problem::a, false},
                          {"state", &Problem::state, true}};
  for (const std::string& target : test::Targets()) {
    const OnTarget on(target);
    for (const int kind : {0, 1, 2, 3}) {
      for (const bool before : {false, true}) {
        for (const Place& place : places) {
          for (const double value : {kNaN, kInf}) {
            Case c;
            c.name = "confined";
            c.matrix = kind == 0;
            c.phase = c.v_im = kind == 1;
            c.importance = kind == 0 || kind == 2;
            c.options.weight = kind == 3 ? Weight::kComplement : Weight::kOne;
            c.options.read_before = before;
            c.tokens = 37;
            c.key_dim = 5;
            c.value_dim = 21;
            c.log_decays = {-0.1, -0.2, -0.3};
            const Problem problem(c);
            const TensorView& view = (problem.*place.data).view;
            // A complex memory turns one infinity into many, in an order that nothing fixes.
            if (!view.defined() || (std::isinf(value) && (!place.infinite || kind == 1))) continue;
            // Tokens, heads, columns and rows lie before and behind.
            StoreElement(view.data(), view.dtype(), view.shape().elements() / 2, value);
            if (problem.log_decay.view.defined()) {
              for (std::int64_t d = 0; d < 21; ++d)
                problem.log_decay.view.Set({0, 31, 1, d}, -kInf);
            }
            if (kind == 0) problem.a.view.Set({1, 4, 2}, -kInf);
            const Expected expected = Define(problem);
            RunForward(problem, problem.call());
            ExpectClose(problem, expected,
                        std::string(place.name) + (before ? " before" : "") + " of kind " +
                            std::to_string(kind) + " on " + target);
          }
        }
      }
    }
  }
}

TEST(Scan, RefusesTooSmallAScratch) {
  const Problem problem(Case{.name = "scratch"});
  std::vector<std::byte> scratch(100);
  EXPECT_THROW(Forward(problem.options, problem.call(), SequentialExecutor(), scratch), Error);
}

TEST(Scan, AllocatesAScratchWhereNoneIsGiven) {
  const Problem problem(Case{.name = "no scratch"});
  const Expected expected = Define(problem);
  Forward(problem.options, problem.call(), SequentialExecutor());
  ExpectClose(problem, expected, "no scratch");
}

}  // namespace
}  // namespace ttr::scan
