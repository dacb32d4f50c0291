// Kept pairs over time: their order, windows that cut them together with their weights, long
// streams.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

#include "tests/support/calls.h"
#include "ttr/layer.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

constexpr const char* kKernels[] = {
    "softmax",
    "kernel_smoother",
    "nadaraya_watson",
    "nadaraya_watson{kernel: laplace}",
    "nadaraya_watson{kernel: epanechnikov, bandwidth: 3}",
    "nadaraya_watson{kernel: biweight, bandwidth: 3}",
    "nadaraya_watson{kernel: triweight, bandwidth: 3}",
    "softmax{kernel: inverse_distance}",
};

// Tokens 0 .. 88 the other way round.
void Reverse(const TensorView& rows) {
  for (std::int64_t t = 0; t < 44; ++t) {
    const Tensor saved = Tensor::Copy(rows.Slice(1, t, 1));
    CopyInto(rows.Slice(1, 88 - t, 1), rows.Slice(1, t, 1));
    CopyInto(saved, rows.Slice(1, 88 - t, 1));
  }
}

// The past has no order but that of its weights.
TEST(KernelSmootherStreams, DoNotKnowTheOrderOfThePast) {
  const Dims dims = test::TwoMemories(90, 6, 5);
  for (const std::string recipe : kKernels) {
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      for (const char* importance : {"", "importance: input"}) {
        Recipe weighted = ParseRecipe(recipe);
        if (*importance != 0) weighted.weights.importance = Importance::kInput;
        const Call call(weighted, dims, dtype, 8, true);
        const Layer layer(weighted);
        const auto last = [&] {
          const Tensor y = RunWhole(layer, call).y;
          return Tensor::Copy(y.view().Slice(1, 89, 1));
        };
        const Tensor before = last();
        for (const TensorView* rows : {&call.inputs.k, &call.inputs.v, &call.inputs.importance}) {
          if (rows->defined()) Reverse(*rows);
        }
        // Sums of 90 terms in another order; weights of a sum are as large as exp(3).
        EXPECT_LE(LargestDifference(before, last()), dtype == DType::kFloat64 ? 2e-13 : 1e-4)
            << recipe << " " << importance;
      }
    }
  }
}

// A window drops the oldest pairs and moves the others to the front, and their weights with them.
TEST(KernelSmootherStreams, WeightsMoveWithThePairsOfAWindow) {
  const Dims dims = test::TwoMemories(130, 5, 4);
  for (const char* recipe :
       {"window_softmax{window: 11, decay: scalar}", "window_softmax{window: 11, importance: log}",
        "window_softmax{window: 11, decay: scalar, importance: input}",
        "nadaraya_watson{kernel: epanechnikov, bandwidth: 3, window: 11, decay: scalar}",
        "softmax{kernel: inverse_distance, window: 11, decay: scalar}"}) {
    const Call call(ParseRecipe(recipe), dims, DType::kFloat64, 11, true);
    // What is forgotten stays so, also in rows that are still held; what weighs nothing, too.
    if (call.inputs.log_decay.defined()) {
      call.inputs.log_decay.Set({0, 60, 0}, -std::numeric_limits<double>::infinity());
    }
    if (call.inputs.importance.defined()) call.inputs.importance.Set({0, 70, 1}, 0);
    const test::Result defined = RunWhole(Layer(call.recipe, kDefinition), call);
    const Layer layer(call.recipe);
    ASSERT_EQ(layer.plan().engine, "kernel_smoother");
    for (const std::int64_t piece : {130, 47, 23, 22, 12, 11, 10, 3, 2, 1}) {
      const test::Result got = RunInPieces(layer, call, piece);
      EXPECT_LE(LargestDifference(defined.y, got.y), 1e-12) << recipe << " " << piece;
      EXPECT_EQ(LargestDifference(defined.status, got.status), 0) << recipe << " " << piece;
      for (const State::Entry& entry : defined.state.entries()) {
        EXPECT_LE(LargestDifference(entry.view, got.state.Get(entry.name)), 1e-12)
            << recipe << " " << piece << " " << entry.name;
      }
    }
    const test::Result decoded = RunDecoder(layer, call);
    EXPECT_LE(LargestDifference(defined.y, decoded.y), 1e-12) << recipe;
  }
}

// The most that decays add up to in a window, of either memory.
double DeepestWindow(const TensorView& log_decay, std::int64_t window) {
  double deepest = 0;
  for (std::int64_t h = 0; log_decay.defined() && h < log_decay.size(2); ++h) {
    double sum = 0;
    for (std::int64_t t = 0; t < log_decay.size(1); ++t) {
      sum -= log_decay.At({0, t, h});
      if (t >= window) sum += log_decay.At({0, t - window, h});
      deepest = std::max(deepest, sum);
    }
  }
  return deepest;
}

// 10^5 tokens beside the definition; the state stays as small as two windows, and what was added up
// to weigh a pair does not wear out.
TEST(KernelSmootherStreams, LastThroughAWindow) {
  constexpr std::int64_t kTokens = 100000;
  const Dims dims = test::TwoMemories(kTokens, 4, 3);
  for (const char* recipe :
       {"window_softmax{window: 50}", "window_softmax{window: 50, decay: scalar}"}) {
    const Call call(ParseRecipe(recipe), dims, DType::kFloat32, 9);
    const Tensor expected = RunWhole(Layer(call.recipe, kDefinition), call).y;
    // A logarithm of a weight rounds as it is large.
    const double rounding = 1.2e-7 * (30 + DeepestWindow(call.inputs.log_decay, 50));
    const Layer layer(call.recipe);
    Decoder decoder(layer, dims);
    const Tensor y(DType::kFloat32, OutputShape(dims));
    for (std::int64_t t = 0; t < kTokens; ++t) {
      decoder.Step(test::TokensOf(call, t, 1), {.y = y.view().Slice(1, t, 1)});
    }
    EXPECT_LE(LargestDifference(expected, y), rounding) << recipe;
    EXPECT_LE(decoder.state().Get("state.k").size(1), 100);
    EXPECT_LE(LargestDifference(expected, RunWhole(layer, call).y), rounding) << recipe;
  }
}

}  // namespace
}  // namespace ttr
