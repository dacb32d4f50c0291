// Few memories and many threads: sequences are cut into segments, and no bit changes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/calls.h"
#include "tests/support/regressions.h"
#include "ttr/executor.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::Keys;

constexpr double kInf = std::numeric_limits<double>::infinity();

// `run` calls the layer with what it is given.
template <class RunLayer>
void ExpectSameBits(const Layer& layer, const Dims& dims, const std::string& what,
                    const RunLayer& run) {
  const test::Result alone = run(CallOptions{.executor = &SequentialExecutor()});
  for (const int threads : {2, 3, 5, 16}) {
    const std::unique_ptr<Executor> executor = MakeExecutor(threads);
    std::vector<std::byte> scratch(layer.ScratchBytes(dims, threads));
    const test::Result together = run(CallOptions{.executor = executor.get(), .scratch = scratch});
    const std::string name = what + ", " + std::to_string(threads) + " threads";
    EXPECT_EQ(test::LargestDifference(alone.y, together.y), 0) << name;
    EXPECT_EQ(test::LargestDifference(alone.status, together.status), 0) << name;
    for (const State::Entry& entry : alone.state.entries()) {
      EXPECT_EQ(test::LargestDifference(entry.view, together.state.Get(entry.name)), 0)
          << name << ", " << entry.name;
    }
  }
}

void ExpectSameBits(const Layer& layer, const Call& call, const std::string& what) {
  ExpectSameBits(layer, call.dims, what,
                 [&](const CallOptions& run) { return test::RunWhole(layer, call, run); });
}

Dims OneMemory(std::int64_t tokens) {
  Dims dims;
  dims.tokens = tokens;
  dims.key_dim = 19;
  dims.value_dim = 6;
  dims.query_heads = 2;
  return dims;
}

class LeastSquaresThreads : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(
    Recipes, LeastSquaresThreads,
    ::testing::Values("rls", "rls{ridge: 0}", "rls{ridge: 1e-3, decay: 0.9}",
                      "rls{decay: scalar, read: before}", "weighted_rls", "mesa",
                      "mesa{read: before, decay: 0.99}", "mesa{decay: none}", "affine_rls",
                      "intention", "kalmanet", "batch_gd", "quasi_newton{read: before}",
                      "decay(scalar) | linear | conjugate_gradient(steps: 20, ridge: 1e-6, "
                      "ridge_kind: constant, preconditioner: chunk_factor, tolerance: 1e-4)"),
    [](const auto& recipe) { return std::to_string(recipe.index); });

TEST_P(LeastSquaresThreads, LeaveNoTrace) {
  const Layer layer(ParseRecipe(GetParam()));
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    for (const Keys keys : {Keys::kRandom, Keys::kSlow, Keys::kLowRank}) {
      const Call call(layer.recipe(), OneMemory(1400), dtype, 5);
      test::FillKeys(keys, 7, call);
      ExpectSameBits(layer, call, std::string(Name(keys)));
    }
  }
}

TEST_P(LeastSquaresThreads, LeaveNoTraceWhereChunksEndEarly) {
  const Layer layer(ParseRecipe(GetParam()));
  const Call call(layer.recipe(), OneMemory(1400), DType::kFloat32, 5);
  if (!call.inputs.log_decay.defined()) GTEST_SKIP() << "no gates";
  for (std::int64_t t = 0; t < 1400; ++t) {
    call.inputs.log_decay.Set({0, t, 0}, t % 91 == 5 ? -kInf : t % 13 == 0 ? -1.5 : -0.01);
  }
  ExpectSameBits(layer, call, "gates");
  call.inputs.k.Set({0, 700, 0, 2}, std::nan(""));
  call.inputs.log_decay.Set({0, 705, 0}, -kInf);
  ExpectSameBits(layer, call, "NaN");
}

TEST_P(LeastSquaresThreads, LeaveNoTraceOnQueriesAlone) {
  const Layer layer(ParseRecipe(GetParam()));
  if (!layer.recipe().reading.causal) GTEST_SKIP() << "no memory to go on from";
  const Call call(layer.recipe(), OneMemory(1400), DType::kFloat32, 5);
  State memory;
  layer.Memorize(call.inputs, memory);
  ExpectSameBits(layer, call.dims, "queries", [&](const ttr::CallOptions& run) {
    test::Result result;
    result.state = memory;
    result.y = Tensor(DType::kFloat32, {1, 1400, 2, call.dims.value_dim});
    result.status = Tensor(DType::kInt8, {1, 1400, 2});
    layer.Retrieve({.q = call.inputs.q}, memory, {.y = result.y, .status = result.status}, run);
    return result;
  });
}

// Sequences too short to be cut, beside one that is.
TEST_P(LeastSquaresThreads, LeaveNoTraceOnPackedSequences) {
  const Layer layer(ParseRecipe(GetParam()));
  const Call call(layer.recipe(), OneMemory(1200), DType::kFloat32, 5);
  std::vector<std::int64_t> bounds{0, 1, 1, 1000, 1200};
  Inputs inputs = call.inputs;
  inputs.cu_seqlens = TensorView::Of(bounds.data(), {5});
  Dims dims = call.dims;
  dims.sequences = 4;
  ExpectSameBits(layer, dims, "packed", [&](const ttr::CallOptions& run) {
    test::Result result;
    result.y = Tensor(DType::kFloat32, {1, 1200, 2, call.dims.value_dim});
    result.status = Tensor(DType::kInt8, {1, 1200, 2});
    layer.Forward(inputs, result.state, {.y = result.y, .status = result.status}, run);
    return result;
  });
}

}  // namespace
}  // namespace ttr
