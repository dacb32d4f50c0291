// Least squares by rotations beside the definition: decays, weights, ridges, ways to cut a
// sequence, directions that no key has, what is not finite; and the digits that a Gram matrix has
// not.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/agreement.h"
#include "tests/support/calls.h"
#include "ttr/error.h"
#include "ttr/layer.h"
#include "ttr/memory.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class RotatedLeastSquares : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { ASSERT_EQ(layer.plan().engine, "least_squares_qr"); }

  void ExpectAgreement(const Call& call, double rounding, double state) const {
    test::ExpectAgreement(layer, call, {.outputs = rounding, .state = state, .piece = 7});
  }

  Layer layer{ParseRecipe(GetParam())};
};

INSTANTIATE_TEST_SUITE_P(
    All, RotatedLeastSquares,
    testing::Values("rls{factor: qr}", "rls{factor: qr, decay: 0.9}", "rls{factor: qr, ridge: 0}",
                    "rls{factor: qr, ridge_kind: constant}",
                    "rls{factor: qr, decay: 0.9, ridge: 0.1, ridge_kind: constant}",
                    "weighted_rls{factor: qr}", "weighted_rls{factor: qr, read: before}",
                    "affine_rls{factor: qr, importance: input, ridge: 0}",
                    "affine_rls{factor: qr, importance: input, decay: 0.95, scale: 0.5}",
                    "affine_rls{factor: qr, normalise_qk: true, output_norm: rms}",
                    "feature_rls{factor: qr}", "intention{factor: qr}",
                    "mesa{factor: qr, causal: false}"),
    [](const auto& one) { return "case" + std::to_string(one.index); });

TEST_P(RotatedLeastSquares, AgreesWithTheDefinition) {
  const Dims dims = test::TwoMemories(60, 5, 6);
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat64, 1, true), 1e-9, 1e-10);
  // A state in float32 is rounded once a piece.
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat32, 1, true), 2e-3, 1e-3);
}

TEST_P(RotatedLeastSquares, AgreesOnHeadsOfEveryNumber) {
  const Dims dims = test::SmallDims(layer.recipe());
  ExpectAgreement(Call(layer.recipe(), dims, DType::kFloat64, 2, true), 1e-9, 1e-9);
}

TEST_P(RotatedLeastSquares, LeavesOutRowsWithoutWeight) {
  const Call call(layer.recipe(), test::TwoMemories(30, 4, 3), DType::kFloat64, 3, true);
  if (!call.inputs.importance.defined()) GTEST_SKIP() << "has no weights";
  for (const std::int64_t t : {0, 5, 6, 20}) {
    call.inputs.importance.Set({0, t, 0}, 0);
    call.inputs.k.Set({0, t, 0, 1}, t == 5 ? kNan : 1);
  }
  ExpectAgreement(call, 1e-9, 1e-9);
}

// 1 / w is infinite: such a row has faded away.
TEST_P(RotatedLeastSquares, LeavesOutRowsOfTheLeastWeights) {
  const Call call(layer.recipe(), test::TwoMemories(30, 4, 3), DType::kFloat64, 3, true);
  if (!call.inputs.importance.defined()) GTEST_SKIP() << "has no weights";
  for (const std::int64_t t : {0, 5, 6, 20}) call.inputs.importance.Set({0, t, 0}, 1e-310);
  ExpectAgreement(call, 1e-9, 1e-9);
}

TEST_P(RotatedLeastSquares, LeavesWhatIsNotFiniteToLaterTokens) {
  const Call call(layer.recipe(), test::TwoMemories(40, 4, 3), DType::kFloat64, 4, true);
  call.inputs.v.Set({0, 20, 0, 1}, kNan);
  call.inputs.k.Set({0, 30, 1, 2}, kNan);
  call.inputs.q.Set({0, 10, 0, 0}, kNan);
  ExpectAgreement(call, 1e-9, 1e-9);
  const Call begins(layer.recipe(), test::TwoMemories(5, 4, 3), DType::kFloat64, 4, true);
  begins.inputs.k.Set({0, 0, 1, 2}, kInf);
  ExpectAgreement(begins, 1e-9, 1e-9);
}

// ---- Digits
// --------------------------------------------------------------------------------------

/// y = x M + 3 and noise, where x lies `offset` from 0 and scatters by 1; one value a row.
struct Rows {
  Rows(std::int64_t count, std::int64_t channels, double offset, DType dtype, std::uint64_t seed)
      : k(dtype, {1, count, 1, channels}), v(dtype, {1, count, 1, 1}) {
    CounterRandom random(seed);
    for (std::int64_t t = 0; t < count; ++t) {
      double y = 3 + .1 * random.Normal();
      for (std::int64_t c = 0; c < channels; ++c) {
        k.view().Set({0, t, 0, c}, offset * static_cast<double>(c % 2 == 0 ? 1 : -2) +
                                       std::round(0x1p10 * random.Normal()) / 0x1p10);
        y += static_cast<double>(c + 1) *
             (k.view().At({0, t, 0, c}) - offset * static_cast<double>(c % 2 == 0 ? 1 : -2));
      }
      v.view().Set({0, t, 0, 0}, y);
    }
  }
  Inputs inputs() const {
    Inputs in;
    in.k = k;
    in.v = v;
    return in;
  }

  Tensor k, v;
};

/// The slopes by an orthogonal decomposition of the rows from their means, in long double; row t
/// weighs g^age.
std::vector<double> SlopesOf(const Rows& rows, double g = 1) {
  using Wide = Eigen::Matrix<long double, Eigen::Dynamic, Eigen::Dynamic>;
  const TensorView k = rows.k, v = rows.v;
  const std::int64_t n = k.size(1), p = k.size(3);
  Wide x(n, p + 1);
  long double weights = 0, fade = 1;
  Wide roots(n, 1), sums = Wide::Zero(1, p + 1);
  for (std::int64_t t = n - 1; t >= 0; --t) {
    for (std::int64_t c = 0; c < p; ++c) x(t, c) = k.At({0, t, 0, c});
    x(t, p) = v.At({0, t, 0, 0});
    weights += fade;
    sums += fade * x.row(t);
    roots(t, 0) = std::sqrt(fade);
    fade *= g;
  }
  const Wide mean = sums / weights;
  for (std::int64_t t = 0; t < n; ++t) x.row(t) = roots(t, 0) * (x.row(t) - mean);
  const Wide slopes = x.leftCols(p).householderQr().solve(x.col(p));
  std::vector<double> found;
  for (std::int64_t c = 0; c < p; ++c) found.push_back(static_cast<double>(slopes(c, 0)));
  return found;
}

/// The slopes of an affine memory: L^-1 W, in long double.
std::vector<double> SlopesOf(const State& state) {
  const TensorView r = state.Get("state.r"), w = state.Get("state");
  std::vector<long double> x;
  for (std::int64_t i = 0; i + 1 < r.size(2); ++i) {
    long double sum = w.At({0, 0, i, 0});
    for (std::int64_t j = 0; j < i; ++j) {
      sum -= static_cast<long double>(r.At({0, 0, i, j})) * x[static_cast<std::size_t>(j)];
    }
    x.push_back(sum);
  }
  return {x.begin(), x.end()};
}

double WorstOf(const std::vector<double>& got, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    worst = std::max(worst, std::abs(got[i] - expected[i]) / std::abs(expected[i]));
  }
  return worst;
}

State Memorized(const Layer& layer, const Rows& rows, std::int64_t piece) {
  State state;
  for (std::int64_t t = 0; t < rows.k.view().size(1); t += piece) {
    Inputs in;
    in.k = rows.k.view().Slice(1, t, std::min(piece, rows.k.view().size(1) - t));
    in.v = rows.v.view().Slice(1, t, std::min(piece, rows.k.view().size(1) - t));
    layer.Memorize(in, state);
  }
  return state;
}

// A channel at `offset` that scatters by 1 has log10(offset) digits less: no more are lost.
TEST(RotatedLeastSquaresDigits, OfRowsFarFromZero) {
  const Layer layer(ParseRecipe("affine_rls{factor: qr, ridge: 0}"));
  for (const double offset : {0., 1e3, 1e5, 1e7, 1e9}) {
    const Rows rows(1000, 3, offset, DType::kFloat64, 5);
    const double lost = 10 * 0x1p-52 * (1 + 2 * offset);
    const std::vector<double> expected = SlopesOf(rows);
    for (const std::int64_t piece : {1000, 7, 1}) {
      EXPECT_LE(WorstOf(SlopesOf(Memorized(layer, rows, piece)), expected), lost)
          << offset << ", " << piece;
    }
  }
  for (const double offset : {0., 1e3, 1e5}) {
    const Rows rows(1000, 3, offset, DType::kFloat32, 5);
    const State state = Memorized(layer, rows, 1000);
    EXPECT_EQ(state.Get("state.r").dtype(), DType::kFloat32);
    EXPECT_LE(WorstOf(SlopesOf(state), SlopesOf(rows)), 10 * 0x1p-23 * (1 + 2 * offset)) << offset;
  }
}

TEST(RotatedLeastSquaresDigits, OfAMillionRows) {
  const Rows rows(1'000'000, 3, 100, DType::kFloat64, 6);
  for (const double g : {1., .99, .9999}) {
    const std::string decay = g == 1 ? "none" : std::to_string(g);
    const Layer layer(ParseRecipe("affine_rls{factor: qr, ridge: 0, decay: " + decay + "}"));
    EXPECT_LE(WorstOf(SlopesOf(Memorized(layer, rows, 1 << 16)), SlopesOf(rows, g)), 1e-12) << g;
  }
}

// Keys of condition 10^7: the Gram matrix has none of the digits that the rows still have.
TEST(RotatedLeastSquaresDigits, OfKeysThatAreNearlyTheSame) {
  Rows rows(200, 3, 0, DType::kFloat64, 7);
  for (std::int64_t t = 0; t < 200; ++t) {
    const TensorView k = rows.k;
    k.Set({0, t, 0, 2}, k.At({0, t, 0, 0}) + 1e-7 * k.At({0, t, 0, 2}));
  }
  const std::vector<double> expected = SlopesOf(rows);
  const Layer layer(ParseRecipe("affine_rls{factor: qr, ridge: 0}"));
  EXPECT_LE(WorstOf(SlopesOf(Memorized(layer, rows, 200)), expected), 1e-8);
}

TEST(RotatedLeastSquaresDigits, AConstantChannelLeavesNoRounding) {
  Rows rows(50, 3, 1e9, DType::kFloat64, 8);
  for (std::int64_t t = 0; t < 50; ++t) rows.k.view().Set({0, t, 0, 1}, 1e9 / 3);
  const Layer layer(ParseRecipe("affine_rls{factor: qr, ridge: 0}"));
  State state = Memorized(layer, rows, 50);
  EXPECT_EQ(state.Get("state.r").At({0, 0, 1, 1}), 0);  // D of what the mean leaves
  Inputs query;
  query.q = rows.k.view().Slice(1, 0, 1);
  const Tensor y(DType::kFloat64, {1, 1, 1, 1}), status(DType::kInt8, {1, 1, 1});
  layer.Retrieve(query, state, {.y = y, .status = status});
  EXPECT_EQ(status.view().At({0, 0, 0}), static_cast<double>(Status::kRegularised));
  EXPECT_NEAR(y.view().At({0, 0, 0, 0}), rows.v.view().At({0, 0, 0, 0}), 1);
}

// A level of 10^12 that weighs 10^-30 of what comes behind it: corrections by what a row is more
// than that level would leave its rounding, 10^-4.
TEST(RotatedLeastSquaresDigits, AFadedLevelLeavesNoRounding) {
  Rows rows(30, 2, 0, DType::kFloat64, 10);
  const Tensor importance(DType::kFloat64, {1, 30, 1});
  Rows behind(29, 2, 0, DType::kFloat64, 10);
  for (std::int64_t t = 0; t < 30; ++t) {
    importance.view().Set({0, t, 0}, t == 0 ? 1e-30 : 1);
    const double level = t == 0 ? 1e12 / 3 : 0;
    for (std::int64_t c = 0; c < 2; ++c) {
      rows.k.view().Set({0, t, 0, c}, rows.k.view().At({0, t, 0, c}) + level);
      if (t > 0) behind.k.view().Set({0, t - 1, 0, c}, rows.k.view().At({0, t, 0, c}));
    }
    rows.v.view().Set({0, t, 0, 0}, rows.v.view().At({0, t, 0, 0}) - level);
    if (t > 0) behind.v.view().Set({0, t - 1, 0, 0}, rows.v.view().At({0, t, 0, 0}));
  }
  const Layer layer(ParseRecipe("affine_rls{factor: qr, ridge: 0, importance: input}"));
  State state;
  Inputs in = rows.inputs();
  in.importance = importance;
  layer.Memorize(in, state);
  EXPECT_LE(WorstOf(SlopesOf(state), SlopesOf(behind)), 1e-5);  // they hold 10^-6 of that row
  double mean = 0;
  for (std::int64_t t = 0; t < 29; ++t) mean += behind.v.view().At({0, t, 0, 0}) / 29;
  EXPECT_NEAR(state.Get("state").At({0, 0, 2, 0}), mean, 1e-14);
}

TEST(RotatedLeastSquaresDigits, TheConditionIsThatOfTheGramMatrix) {
  for (const std::string options : {"ridge: 0.1", "ridge: 0.1, ridge_kind: constant, decay: 0.9"}) {
    AssociativeMemory rotated(ParseRecipe("affine_rls{factor: qr, " + options + "}"),
                              {.key_dim = 3});
    AssociativeMemory gram(ParseRecipe("affine_rls{" + options + "}"), {.key_dim = 3});
    CounterRandom random(9);
    for (int t = 0; t < 20; ++t) {
      const double key[] = {random.Normal(), random.Normal() + 5, 1e3 * random.Normal()};
      const double value[] = {random.Normal()};
      rotated.Memorize(key, value);
      gram.Memorize(key, value);
      EXPECT_NEAR(rotated.Condition() / gram.Condition(), 1, 1e-9) << options << t;
    }
  }
}

// What an answer of the Gram form is off by, its condition foretells; where that leaves nothing the
// condition is infinite, or the status says so. That of a triangle stays right.
TEST(RotatedLeastSquaresDigits, TheGramFormSaysHowManyItHas) {
  for (const double offset : {0., 1e2, 1e4, 1e6, 1e8}) {
    AssociativeMemory gram(ParseRecipe("affine_rls{ridge: 0}"), {.key_dim = 2});
    AssociativeMemory rotated(ParseRecipe("affine_rls{factor: qr, ridge: 0}"), {.key_dim = 2});
    CounterRandom random(11);
    for (int t = 0; t < 200; ++t) {
      const double x[] = {random.Normal(), random.Normal()};
      const double key[] = {x[0] + offset, x[1] - offset}, value[] = {3 * x[0] - 2 * x[1]};
      gram.Memorize(key, value);
      rotated.Memorize(key, value);
    }
    const double query[] = {1 + offset, 2 - offset};
    double answer = 0, exact = 0;
    const Status status = gram.Retrieve(query, {&answer, 1});
    EXPECT_EQ(rotated.Retrieve(query, {&exact, 1}), Status::kSolved);
    EXPECT_NEAR(exact, -1, 1e-14 * (1 + offset)) << offset;
    const double condition = gram.Condition();
    if (status == Status::kSolved && std::isfinite(condition)) {
      EXPECT_LE(std::abs(answer + 1), 64 * 0x1p-52 * condition) << offset;
      EXPECT_LT(offset, 1e7);
    } else {
      EXPECT_GT(offset, 1e5);
    }
    if (offset >= 1e4) {
      EXPECT_GT(condition, .1 * offset * offset) << offset;
    }
  }
}

TEST(RotatedLeastSquaresDigits, ARelativeRidgeIsRefused) {
  try {
    ParseRecipe("rls{factor: qr, ridge_kind: relative}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("factor: qr never forms"), std::string::npos);
  }
}

}  // namespace
}  // namespace ttr
