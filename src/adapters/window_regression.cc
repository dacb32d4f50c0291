// Kernel regression over a window, and with the linear kernel least squares: every window is a
// memory of its own, whose pairs are rows of one tensor.
#include <algorithm>

#include "src/adapters/output_norm.h"
#include "src/adapters/pair_gradients.h"
#include "src/adapters/pair_options.h"
#include "src/adapters/registry.h"
#include "src/adapters/window_gradient.h"
#include "src/adapters/window_timeline.h"
#include "src/engines/kernel_regression/backward.h"
#include "src/engines/kernel_smoother/kernel_smoother.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

constexpr std::string_view kName = "window_regression";

kernel_regression::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  return {QueryOptionsOf(recipe, dims), recipe.optimizer.ridge};
}

/// Pairs into a state: what a kernel smoother does without queries.
void Write(const EngineCall& from, kernel_smoother::Call call, std::int64_t window,
           std::span<std::byte> scratch) {
  kernel_smoother::Options options{QueryOptionsOf(from.recipe(), from.dims)};
  options.window = window;
  call.q = call.y = call.status = {};
  kernel_smoother::Forward(options, call, from.executor, scratch);
}

class WindowRegression final : public Engine {
 public:
  std::string_view name() const override { return kName; }

  bool Covers(const Recipe& recipe) const override {
    return FamilyOf(recipe) == Family::kKernelRegression && recipe.weights.window > 0 &&
           !HasBudget(recipe);
  }
  const char* Obstacle(const Recipe& recipe) const override {
    if (recipe.weights.decay != Decay::kNone) {
      return "under a decay the weights of a window are others for every token";
    }
    if (!recipe.reading.scale_rsqrt && recipe.reading.scale < 0) {
      return "a scale below 0, of which no kernel is positive definite";
    }
    return nullptr;
  }
  std::string_view How(const Recipe&) const override {
    return "one Cholesky factor of the kernel's matrix for every window, in float64, SIMD";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto pairs = static_cast<double>(recipe.weights.window);
    const auto channels = static_cast<double>(dims.key_dim + dims.value_dim);
    return pairs * pairs * (pairs / 3 + channels) +
           QueriesOfMemory(dims) * pairs * (pairs + 2 * channels);
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    if (call.needs == Needs::kRead && !state.Get("state.k").defined()) {
      return RetrieveNothing(outputs, false);
    }
    const Recipe& recipe = call.recipe();
    CallScratch norm(kName, call.scratch,
                     OutputsBeforeNorm::ScratchBytes(recipe, call.dims, call.executor.threads()));
    const OutputsBeforeNorm before(recipe, outputs.y, call.dtype, norm);
    for (std::int64_t n = 0; call.needs != Needs::kWrite && n < call.dims.states(); ++n) {
      CallScratch scratch(kName, norm.rest(), norm.rest().empty() ? 0 : TimelineBytes(call));
      Answer(call, state, n, {.y = before.y(), .status = outputs.status}, scratch);
    }
    before.Normalise(call.executor);
    if (call.needs == Needs::kRead) return;
    Write(call, {QueriedTensorsOf(call, state)}, recipe.weights.window, norm.rest());
  }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const kernel_regression::Options options = OptionsOf(call.recipe(), call.dims);
    const kernel_regression::Call operands{QueriedTensorsOf(call, initial)};
    BackwardThroughPairs(
        call, tensors, operands,
        [&](const auto& reading) {
          for (std::int64_t n = 0; n < call.dims.states(); ++n) {
            CallScratch scratch;
            Answer(call, initial, n, {.y = reading.y}, scratch);
          }
        },
        [&](const auto&... of) { DifferentiateWindows(call, initial, options, of...); });
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return kernel_regression::BackwardScratchBytes(OptionsOf(recipe, dims),
                                                   WindowSizes(recipe, dims), threads);
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    common::QuerySizes rows = QuerySizesOf(recipe, dims, DType::kFloat64);
    rows.weighted = true;
    return OutputsBeforeNorm::ScratchBytes(recipe, dims, threads) + TimelineBytes(recipe, dims) +
           std::max(kernel_smoother::ScratchBytes(rows, threads),
                    kernel_regression::ScratchBytes(WindowSizes(recipe, dims), threads));
  }

 private:
  /// The sizes of one window's regression, which the queries of one token read.
  static kernel_regression::Sizes WindowSizes(const Recipe& recipe, const Dims& dims) {
    kernel_regression::Sizes sizes{QuerySizesOf(recipe, dims, DType::kFloat64)};
    sizes.weighted = true;
    sizes.held = recipe.weights.window;
    sizes.tokens = 0;
    sizes.queried = 1;
    return sizes;
  }
  static std::size_t TimelineBytes(const EngineCall& call) {
    return TimelineBytes(call.recipe(), call.dims);
  }
  static std::size_t TimelineBytes(const Recipe& recipe, const Dims& dims) {
    const std::int64_t tokens = std::max<std::int64_t>(dims.tokens, 1);
    return WindowTimeline::Bytes(recipe, dims) +
           CallScratch::Bytes(DType::kInt64, {tokens, dims.heads});
  }

  /// The queries of sequence n.
  static void Answer(const EngineCall& from, const State& state, std::int64_t n,
                     const Outputs& outputs, CallScratch& scratch) {
    const kernel_regression::Options options = OptionsOf(from.recipe(), from.dims);
    const SequenceRows of(from, n);
    if (of.tokens == 0) return;
    const bool writes = from.needs != Needs::kRead;
    const WindowTimeline timeline(from, state, of, WindowTimeline::RowsBefore(from),
                                  writes ? of.tokens : 0, scratch);
    kernel_regression::Call call{QueriedTensorsOf(from, State())};
    call.ridge = from.inputs.ridge;
    call.cu_seqlens = {};
    for (TensorView* view : {&call.q, &call.k, &call.v, &call.importance, &call.log_importance}) {
      *view = of.Of(*view);
    }
    call.y = of.Of(outputs.y);
    call.status = of.Of(outputs.status);
    if (writes) {
      kernel_smoother::Call appends{call};
      timeline.BindTo(appends);
      Write(from, appends, 0, scratch.rest());
    }
    call.k = call.v = call.importance = call.log_importance = {};
    // Each query is a sequence of one token where each has a window of its own.
    const std::int64_t windows = writes ? of.tokens : 1;
    const TensorView lengths = scratch.Zeros(DType::kInt64, {windows, from.dims.heads});
    for (std::int64_t i = 0; i < windows * from.dims.heads; ++i) {
      lengths.as<std::int64_t>()[i] = from.recipe().weights.window;
    }
    timeline.BindWindows(0, windows, lengths, call);
    if (writes) {
      for (TensorView* view : {&call.q, &call.y, &call.status}) *view = Turned(*view);
    }
    call.arithmetic = kWindowArithmetic;
    kernel_regression::Retrieve(options, call, from.executor, scratch.rest());
  }
};

}  // namespace

const Engine& WindowRegressionEngine() {
  static const WindowRegression engine;
  return engine;
}

}  // namespace ttr
