// Kernel regression over a window, and with the linear kernel least squares: every window is a
// memory of its own, whose pairs are rows of one tensor.
#include <algorithm>
#include <array>
#include <limits>

#include "src/adapters/output_norm.h"
#include "src/adapters/pair_options.h"
#include "src/adapters/registry.h"
#include "src/core/pair_rows.h"
#include "src/engines/kernel_regression/kernel_regression.h"
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

/// The pairs of one sequence as windows see them: `before` rows, the latest that the state has,
/// each memory's behind rows without weight, then those of the call. Token t reads rows t to t +
/// window.
class Timeline {
 public:
  Timeline(const EngineCall& call, const State& state, std::int64_t sequence, std::int64_t tokens,
           CallScratch& scratch)
      : window_(call.recipe().weights.window),
        heads_(call.dims.heads),
        before_(window_ - (Reads(call) ? 0 : 1)) {
    const std::int64_t rows = before_ + tokens;
    const TensorView k = state.Get("state.k"), v = state.Get("state.v");
    const auto make = [&](const TensorView& like, std::int64_t width) {
      return scratch.Zeros(like.defined() ? like.dtype() : call.dtype, {1, rows, heads_, width});
    };
    k_ = make(k, call.dims.key_dim);
    v_ = make(v, call.dims.value_dim);
    log_weight_ = scratch.Zeros(DType::kFloat64, {1, rows, heads_});
    length_ = scratch.Zeros(DType::kInt64, {1, heads_});
    for (std::int64_t h = 0; h < heads_; ++h) {
      length_.as<std::int64_t>()[h] = before_;
      TakeHeld(state, sequence, h);
    }
  }

  /// A state of all rows.
  void BindTo(common::QueriedTensors& call) const {
    call.state_k = k_;
    call.state_v = v_;
    call.state_log_weight = log_weight_;
    call.state_length = length_;
  }

  /// A state of `count` sequences, each of them a window, or only the last where count is 1.
  void BindWindows(std::int64_t count, const TensorView& lengths,
                   common::QueriedTensors& call) const {
    const auto windows = [&](const TensorView& rows) {
      std::array<std::int64_t, kMaxRank> sizes{count, window_, heads_, 1};
      std::array<std::int64_t, kMaxRank> strides{rows.stride(1), rows.stride(1), rows.stride(2), 1};
      if (rows.rank() == 4) sizes[3] = rows.size(3);
      const auto rank = static_cast<std::size_t>(rows.rank());
      return TensorView(rows.data(), rows.dtype(), Shape(std::span(sizes).first(rank)),
                        std::span<const std::int64_t>(strides).first(rank));
    };
    call.state_k = windows(k_);
    call.state_v = windows(v_);
    call.state_log_weight = windows(log_weight_);
    call.state_length = lengths;
  }

  static std::size_t Bytes(const Recipe& recipe, const Dims& dims) {
    const std::int64_t rows = recipe.weights.window + dims.tokens;
    constexpr DType kWide = DType::kFloat64;
    return CallScratch::Bytes(kWide, {1, rows, dims.heads, dims.key_dim}) +
           CallScratch::Bytes(kWide, {1, rows, dims.heads, dims.value_dim}) +
           CallScratch::Bytes(kWide, {1, rows, dims.heads}) +
           CallScratch::Bytes(kWide, {1, dims.heads});
  }

 private:
  /// Does the first query read as many pairs as a window has of those before the call?
  static bool Reads(const EngineCall& call) {
    return call.needs == Needs::kRead || call.recipe().reading.read == Read::kBefore;
  }

  /// The latest pairs that memory h has, behind rows without weight.
  void TakeHeld(const State& state, std::int64_t n, std::int64_t h) const {
    const TensorView k = state.Get("state.k"), v = state.Get("state.v");
    const TensorView log_weight = state.Get("state.log_weight");
    const TensorView length = state.Get("state.length");
    std::int64_t held = k.defined() ? k.size(1) : 0;
    if (length.defined()) held = static_cast<std::int64_t>(length.At({n, h}));
    const std::int64_t taken = std::min(held, before_), first = before_ - taken;
    for (std::int64_t i = 0; i < first; ++i) {
      log_weight_.Set({0, i, h}, -std::numeric_limits<double>::infinity());
    }
    const auto copy = [&](const TensorView& from, const TensorView& to) {
      if (!from.defined() || taken == 0) return;
      CopyInto(from.Slice(0, n, 1).Slice(2, h, 1).Slice(1, held - taken, taken),
               to.Slice(2, h, 1).Slice(1, first, taken));
    };
    copy(k, k_);
    copy(v, v_);
    copy(log_weight, log_weight_);
  }

  std::int64_t window_, heads_;
  std::int64_t before_;  // rows before those of the call
  TensorView k_, v_, log_weight_, length_;
};

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
    return "one Cholesky factor of the kernel's matrix for every window, SIMD";
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

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    kernel_regression::Sizes sizes{QuerySizesOf(recipe, dims, DType::kFloat64)};
    sizes.weighted = true;
    const std::size_t writes = kernel_smoother::ScratchBytes(sizes, threads);
    sizes.held = recipe.weights.window;
    sizes.tokens = 0;
    return OutputsBeforeNorm::ScratchBytes(recipe, dims, threads) + TimelineBytes(recipe, dims) +
           std::max(writes, kernel_regression::ScratchBytes(sizes, threads));
  }

 private:
  static std::size_t TimelineBytes(const EngineCall& call) {
    return TimelineBytes(call.recipe(), call.dims);
  }
  static std::size_t TimelineBytes(const Recipe& recipe, const Dims& dims) {
    const std::int64_t tokens = std::max<std::int64_t>(dims.tokens, 1);
    return Timeline::Bytes(recipe, dims) + CallScratch::Bytes(DType::kInt64, {tokens, dims.heads});
  }

  /// The queries of sequence n.
  static void Answer(const EngineCall& from, const State& state, std::int64_t n,
                     const Outputs& outputs, CallScratch& scratch) {
    const kernel_regression::Options options = OptionsOf(from.recipe(), from.dims);
    const auto bounds = CuSeqlens(from.inputs, from.dims);
    const auto at = static_cast<std::size_t>(n);
    const std::int64_t row = bounds.empty() ? n : 0, first = bounds.empty() ? 0 : bounds[at];
    const std::int64_t tokens = bounds.empty() ? from.dims.tokens : bounds[at + 1] - first;
    if (tokens == 0) return;
    const auto of_sequence = [&](const TensorView& view) {
      return view.defined() ? view.Slice(0, row, 1).Slice(1, first, tokens) : view;
    };
    const bool writes = from.needs != Needs::kRead;
    const Timeline timeline(from, state, n, writes ? tokens : 0, scratch);
    kernel_regression::Call call{QueriedTensorsOf(from, State())};
    call.ridge = from.inputs.ridge;
    call.cu_seqlens = {};
    for (TensorView* view : {&call.q, &call.k, &call.v, &call.importance, &call.log_importance}) {
      *view = of_sequence(*view);
    }
    call.y = of_sequence(outputs.y);
    call.status = of_sequence(outputs.status);
    if (writes) {
      kernel_smoother::Call appends{call};
      timeline.BindTo(appends);
      Write(from, appends, 0, scratch.rest());
    }
    call.k = call.v = call.importance = call.log_importance = {};
    // Each query is a sequence of one token where each has a window of its own.
    const std::int64_t windows = writes ? tokens : 1;
    const TensorView lengths = scratch.Zeros(DType::kInt64, {windows, from.dims.heads});
    for (std::int64_t i = 0; i < windows * from.dims.heads; ++i) {
      lengths.as<std::int64_t>()[i] = from.recipe().weights.window;
    }
    timeline.BindWindows(windows, lengths, call);
    if (writes) {
      for (TensorView* view : {&call.q, &call.y, &call.status}) *view = Turned(*view);
    }
    kernel_regression::Retrieve(options, call, from.executor, scratch.rest());
  }

  /// [1, T, ...] as [T, 1, ...].
  static TensorView Turned(const TensorView& view) {
    if (!view.defined()) return view;
    std::array<std::int64_t, kMaxRank> sizes{}, strides{};
    for (int i = 0; i < view.rank(); ++i) {
      sizes[static_cast<std::size_t>(i)] = view.size(i);
      strides[static_cast<std::size_t>(i)] = view.stride(i);
    }
    std::swap(sizes[0], sizes[1]);
    std::swap(strides[0], strides[1]);
    const auto rank = static_cast<std::size_t>(view.rank());
    return TensorView(view.data(), view.dtype(),
                      Shape(std::span<const std::int64_t>(sizes).first(rank)),
                      std::span<const std::int64_t>(strides).first(rank));
  }
};

}  // namespace

const Engine& WindowRegressionEngine() {
  static const WindowRegression engine;
  return engine;
}

}  // namespace ttr
