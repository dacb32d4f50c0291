#include "ttr/short_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/engines/short_conv_case.h"
#include "tests/support/engines.h"
#include "tests/support/targets.h"
#include "ttr/error.h"

namespace ttr::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::vector<double> Values(const TensorView& tensor) {
  const Tensor wide = Tensor::Copy(tensor, DType::kFloat64);
  return {wide.as<double>().begin(), wide.as<double>().end()};
}

std::string Text(const ConvCase& c) { return testing::PrintToString(c); }

class ShortConvOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};
INSTANTIATE_TEST_SUITE_P(Targets, ShortConvOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

TEST_P(ShortConvOnTarget, IsTheConvolution) {
  for (const ConvCase& c : ConvCases()) {
    const ConvProblem problem(c);
    const ConvExpected expected = Convolved(problem);
    ApplyShortConv(problem.conv(), problem.inputs(), problem.state, problem.y);
    ExpectWithin(problem.y, expected.y, expected.bound, Text(c));
    if (c.state) {
      // Inputs that are wider than the state round on their way into it.
      std::vector<double> exact(expected.state.size());
      if (SizeOf(c.states) < SizeOf(c.data)) {
        for (std::size_t i = 0; i < exact.size(); ++i) {
          exact[i] = Epsilon(c.states) * std::abs(expected.state[i]);
        }
      }
      ExpectWithin(problem.state, expected.state, exact, "state of " + Text(c));
    }
    if (HasFatalFailure()) return;
  }
}

TEST_P(ShortConvOnTarget, WholeIsSplitIsTokenByToken) {
  for (const ConvCase& c : ConvCases()) {
    if (!c.state || !c.cu_seqlens.empty()) continue;
    if (SizeOf(c.states) < SizeOf(c.data)) continue;  // rounds
    const ConvProblem whole(c);
    ApplyShortConv(whole.conv(), whole.inputs(), whole.state, whole.y);
    for (const std::int64_t part : {1, 2, 7}) {
      if (c.tokens > 100 && part == 1) continue;
      const ConvProblem split(c);
      for (std::int64_t t = 0; t < c.tokens; t += part) {
        const std::int64_t count = std::min(part, c.tokens - t);
        ApplyShortConv(split.conv(), split.Tokens(t, count), split.state,
                       split.y.view().Slice(1, t, count));
      }
      ASSERT_EQ(Values(split.y), Values(whole.y)) << c << " in parts of " << part;
      ASSERT_EQ(Values(split.state), Values(whole.state)) << c << " in parts of " << part;
    }
  }
}

TEST(ShortConv, TakesAnyStrides) {
  const ConvCase c{.name = "strides",
                   .batch = 2,
                   .tokens = 11,
                   .heads = 3,
                   .dim = 6,
                   .silu = true,
                   .bias = true};
  const ConvProblem plain(c);
  ApplyShortConv(plain.conv(), plain.inputs(), plain.state, plain.y);

  const ConvProblem problem(c);
  // Heads before tokens and room after a row; weights as [H, W, D]; the state padded.
  Tensor x(DType::kFloat32, {2, 3, 11, 8}), y(DType::kFloat32, {2, 3, 11, 8});
  const std::int64_t strides[] = {3 * 11 * 8, 8, 11 * 8, 1};
  const TensorView x_view(x.data(), DType::kFloat32, {2, 11, 3, 6}, strides);
  const TensorView y_view(y.data(), DType::kFloat32, {2, 11, 3, 6}, strides);
  CopyInto(problem.x, x_view);
  Tensor weight(DType::kFloat32, {3, 4, 6});
  const std::int64_t weight_strides[] = {24, 1, 6};
  const TensorView weight_view(weight.data(), DType::kFloat32, {3, 6, 4}, weight_strides);
  CopyInto(problem.weight, weight_view);
  Tensor state(DType::kFloat32, {2, 3, 3, 9});
  const TensorView state_view = state.view().Slice(3, 0, 6);
  CopyInto(problem.state, state_view);

  ShortConv conv = problem.conv();
  conv.weight = weight_view;
  ApplyShortConv(conv, {.x = x_view}, state_view, y_view);
  EXPECT_EQ(Values(Tensor::Copy(y_view)), Values(plain.y));
  EXPECT_EQ(Values(Tensor::Copy(state_view)), Values(plain.state));
  for (std::int64_t i = 0; i < y.elements(); ++i) {
    if (i % 8 >= 6) {
      EXPECT_EQ(y.as<float>()[static_cast<std::size_t>(i)], 0) << "beside y";
    }
  }
}

TEST(ShortConv, KeepsNanWithItsChannelAndTheTokensThatSeeIt) {
  const ConvCase c{.name = "nan", .tokens = 40, .heads = 1, .dim = 19, .width = 3, .silu = true};
  const ConvProblem problem(c);
  problem.x.view().Set({0, 20, 0, 17}, kNaN);
  problem.state.Set({0, 1, 0, 2}, kNaN);
  ApplyShortConv(problem.conv(), problem.inputs(), problem.state, problem.y);
  for (std::int64_t t = 0; t < 40; ++t) {
    for (std::int64_t d = 0; d < 19; ++d) {
      const bool seen = (d == 17 && t >= 20 && t <= 22) || (d == 2 && t <= 1);
      EXPECT_EQ(std::isnan(problem.y.view().At({0, t, 0, d})), seen) << t << " " << d;
    }
  }
}

TEST(ShortConv, SiluOfLargeNumbers) {
  const ConvCase c{.name = "large", .tokens = 2, .heads = 1, .dim = 4, .width = 1, .silu = true};
  const ConvProblem problem(c);
  for (std::int64_t d = 0; d < 4; ++d) problem.weight.view().Set({0, d, 0}, 1);
  const double xs[] = {1000, -1000, 1e38, -1e38};
  for (std::int64_t d = 0; d < 4; ++d) problem.x.view().Set({0, 0, 0, d}, xs[d]);
  ApplyShortConv(problem.conv(), problem.inputs(), problem.state, problem.y);
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 0}), 1000);
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 1}), 0);
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 2}), static_cast<double>(1e38f));
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 3}), 0);
}

TEST(ShortConv, HasTheSameBitsForAnyNumberOfThreads) {
  const ConvCase c{.name = "threads", .tokens = 3000, .heads = 4, .dim = 32, .silu = true};
  const auto three = MakeExecutor(3);
  const ConvProblem one(c), many(c);
  ApplyShortConv(one.conv(), one.inputs(), one.state, one.y, SequentialExecutor());
  ApplyShortConv(many.conv(), many.inputs(), many.state, many.y, *three);
  EXPECT_EQ(Values(one.y), Values(many.y));
  EXPECT_EQ(Values(one.state), Values(many.state));
}

TEST(ShortConv, SaysWhatIsWrong) {
  const ConvProblem p(ConvCase{.name = "errors"});
  const auto message = [&](const ShortConv& conv, const ShortConvInputs& in,
                           const TensorView& state, const TensorView& y) -> std::string {
    try {
      ApplyShortConv(conv, in, state, y);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(
      message({}, p.inputs(), {}, p.y),
      "[short_conv] weight must be float32, float64 or bfloat16 [H,D,W] = [2, 5] and W from 1 "
      "to 8 but is absent");
  EXPECT_EQ(message(p.conv(), p.inputs(), p.state, {}),
            "[short_conv] y must be float32, float64 or bfloat16 [B,T,H,D] = [1, 9, 2, 5] but is "
            "absent");
  EXPECT_EQ(message(p.conv(), p.inputs(), p.state, p.x),
            "[short_conv] y must be memory of its own but is overlapping x");
  EXPECT_EQ(message(p.conv(), p.inputs(), p.state.Slice(1, 0, 2), p.y),
            "[short_conv] state must be float32, float64 or bfloat16 [B or N,R,H,D] = [1, 3, 2, 5] "
            "with R = W-1 or more but is float32 [1, 2, 2, 5]");
  // Channels in one another's rows.
  const std::int64_t strides[] = {30, 1, 10, 2};
  const TensorView overlapping(p.state_memory.data(), DType::kFloat32, {1, 3, 2, 5}, strides);
  EXPECT_EQ(
      message(p.conv(), p.inputs(), overlapping, p.y),
      "[short_conv] state must be memory in which every element has a place of its own but is "
      "overlapping itself");
  const TensorView in_x(p.x.data(), DType::kFloat32, {1, 3, 2, 5});
  EXPECT_EQ(message(p.conv(), p.inputs(), in_x, p.y),
            "[short_conv] state must be memory of its own but is overlapping x");
  const std::vector<std::int64_t> bounds = {0, 5, 8};
  EXPECT_EQ(message(p.conv(), {p.x.view(), TensorView::Of(bounds.data(), {3})}, {}, p.y),
            "[short_conv] cu_seqlens must be from 0 to T = 9 without falling but is 8 at 2");
}

}  // namespace
}  // namespace ttr::test
