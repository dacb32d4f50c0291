#include "src/adapters/window_timeline.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace ttr {

SequenceRows::SequenceRows(const EngineCall& call, std::int64_t n) : sequence(n), row(n) {
  const auto bounds = CuSeqlens(call.inputs, call.dims);
  tokens = call.dims.tokens;
  if (bounds.empty()) return;
  const auto at = static_cast<std::size_t>(n);
  row = 0;
  first = bounds[at];
  tokens = bounds[at + 1] - first;
}

TensorView SequenceRows::Of(const TensorView& view) const {
  return view.defined() ? view.Slice(0, row, 1).Slice(1, first, tokens) : view;
}

TensorView Turned(const TensorView& view) {
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

std::int64_t WindowTimeline::RowsBefore(const EngineCall& call) {
  // Does the first query read as many pairs as a window has of those before the call?
  const bool reads = call.needs == Needs::kRead || call.recipe().reading.read == Read::kBefore;
  return call.recipe().weights.window - (reads ? 0 : 1);
}

std::int64_t WindowTimeline::Held(const State& state, std::int64_t n, std::int64_t h) {
  const TensorView length = state.Get("state.length"), k = state.Get("state.k");
  if (length.defined()) return static_cast<std::int64_t>(length.At({n, h}));
  return k.defined() ? k.size(1) : 0;
}

WindowTimeline::WindowTimeline(const EngineCall& call, const State& state, const SequenceRows& of,
                               std::int64_t before, std::int64_t tokens, CallScratch& scratch)
    : window_(call.recipe().weights.window),
      heads_(call.dims.heads),
      before_(before),
      tokens_(tokens),
      first_(before - RowsBefore(call)) {
  const TensorView k = state.Get("state.k"), v = state.Get("state.v");
  const auto make = [&](const TensorView& like, std::int64_t width) {
    return scratch.Zeros(like.defined() ? like.dtype() : call.dtype, {1, rows(), heads_, width});
  };
  k_ = make(k, call.dims.key_dim);
  v_ = make(v, call.dims.value_dim);
  log_weight_ = scratch.Zeros(DType::kFloat64, {1, rows(), heads_});
  length_ = scratch.Zeros(DType::kInt64, {1, heads_});
  for (std::int64_t h = 0; h < heads_; ++h) TakeHeld(state, of.sequence, h);
}

void WindowTimeline::BindTo(common::QueriedTensors& call) const {
  for (std::int64_t h = 0; h < heads_; ++h) length_.as<std::int64_t>()[h] = before_;
  call.state_k = k_;
  call.state_v = v_;
  call.state_log_weight = log_weight_;
  call.state_length = length_;
}

void WindowTimeline::BindWindows(std::int64_t first, std::int64_t count, const TensorView& lengths,
                                 common::QueriedTensors& call) const {
  const auto windows = [&](const TensorView& all) {
    const TensorView rows = all.Slice(1, first_ + first, count + window_ - 1);
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

std::size_t WindowTimeline::Bytes(const Recipe& recipe, const Dims& dims) {
  const std::int64_t rows = recipe.weights.window + dims.tokens;
  constexpr DType kWide = DType::kFloat64;
  return CallScratch::Bytes(kWide, {1, rows, dims.heads, dims.key_dim}) +
         CallScratch::Bytes(kWide, {1, rows, dims.heads, dims.value_dim}) +
         CallScratch::Bytes(kWide, {1, rows, dims.heads}) +
         CallScratch::Bytes(kWide, {1, dims.heads});
}

void WindowTimeline::TakeHeld(const State& state, std::int64_t n, std::int64_t h) const {
  const TensorView k = state.Get("state.k"), v = state.Get("state.v");
  const TensorView log_weight = state.Get("state.log_weight");
  const std::int64_t held = Held(state, n, h);
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

}  // namespace ttr
