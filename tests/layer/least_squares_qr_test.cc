// Least squares by rotations beside the definition: decays, weights, ridges, ways to cut a
// sequence, directions that no key has, what is not finite; and the digits that a Gram matrix has
// not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/support/agreement.h"
#include "tests/support/calls.h"
#include "tests/support/regressions.h"
#include "ttr/error.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

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
  // Of a state in float32, what pieces round.
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

}  // namespace
}  // namespace ttr
