#include "src/adapters/window_gradient.h"

#include <algorithm>

#include "src/adapters/pair_options.h"
#include "src/adapters/window_timeline.h"
#include "src/core/fill.h"
#include "src/core/pair_rows.h"
#include "src/engines/kernel_regression/backward.h"
#include "src/engines/kernel_smoother/backward.h"

namespace ttr {
namespace {

/// Windows whose gradients are found together: some for every thread, as many as caches hold.
constexpr std::int64_t kWindows = 64;

/// to += from, float64, both contiguous.
template <class T>
void AddNumbers(const TensorView& from, const TensorView& to) {
  const double* const x = from.as<double>();
  T* const sum = to.as<T>();
  const std::int64_t count = from.shape().elements();
  for (std::int64_t i = 0; i < count; ++i) sum[i] = static_cast<T>(sum[i] + x[i]);
}

void Add(const TensorView& from, const TensorView& to) {
  to.dtype() == DType::kFloat64 ? AddNumbers<double>(from, to) : AddNumbers<float>(from, to);
}

/// to += from, element by element, of any layout.
void AddRow(const TensorView& from, const TensorView& to) {
  for (std::int64_t c = 0; c < from.size(0); ++c) to.Set({c}, to.At({c}) + from.At({c}));
}

/// Gradients by rows of pairs.
struct RowGradients {
  TensorView k, v, log_weight, weight;

  RowGradients(const Dims& dims, DType dtype, std::int64_t count, std::int64_t rows, bool weights,
               CallScratch& scratch)
      : k(scratch.Zeros(dtype, {count, rows, dims.heads, dims.key_dim})),
        v(scratch.Zeros(dtype, {count, rows, dims.heads, dims.value_dim})) {
    if (!weights) return;
    log_weight = scratch.Zeros(DType::kFloat64, {count, rows, dims.heads});
    weight = scratch.Zeros(DType::kFloat64, {count, rows, dims.heads});
  }
};

/// One sequence.
class SequenceGradient {
 public:
  SequenceGradient(const EngineCall& call, const State& initial, const SequenceRows& of,
                   CallScratch& scratch)
      : call_(call),
        of_(of),
        window_(call.recipe().weights.window),
        timeline_(call, initial, of, RowsBefore(call, initial, of.sequence), of.tokens, scratch),
        sums_(call.dims, call.dtype, 1, timeline_.rows(), HasWeights(call.recipe()), scratch),
        scratch_(scratch) {}

  void Run(const State& initial, const kernel_regression::Options& options, const TensorView& dy,
           const common::FinalPairGradients& final, const common::PairGradientTensors& to) {
    kernel_smoother::Call appends{OfSequence()};
    timeline_.BindTo(appends);
    const kernel_smoother::Options keeps{QueryOptionsOf(call_.recipe(), call_.dims)};
    kernel_smoother::Forward(keeps, appends, call_.executor);
    AddWindows(options, dy, to);
    AddFinal(initial, final);
    timeline_.BindTo(appends);  // as it was before them
    GoBackThroughRows(keeps, appends, initial, to);
  }

 private:
  static bool HasWeights(const Recipe& recipe) {
    return recipe.weights.importance != Importance::kNone;
  }

  /// Rows for all pairs of the state: those before the first window may be in the final state.
  static std::int64_t RowsBefore(const EngineCall& call, const State& initial, std::int64_t n) {
    std::int64_t most = WindowTimeline::RowsBefore(call);
    for (std::int64_t h = 0; h < call.dims.heads; ++h) {
      most = std::max(most, WindowTimeline::Held(initial, n, h));
    }
    return most;
  }

  /// The pairs of the sequence, without queries.
  common::QueriedTensors OfSequence() const {
    common::QueriedTensors tensors = QueriedTensorsOf(call_, State());
    tensors.cu_seqlens = {};
    tensors.q = {};
    for (TensorView* view :
         {&tensors.k, &tensors.v, &tensors.importance, &tensors.log_importance}) {
      *view = of_.Of(*view);
    }
    return tensors;
  }

  void AddWindows(const kernel_regression::Options& options, const TensorView& dy,
                  const common::PairGradientTensors& to) {
    const Dims& dims = call_.dims;
    const std::int64_t most = std::min(kWindows, of_.tokens);
    const RowGradients each(dims, kWindowArithmetic, most, window_, sums_.weight.defined(),
                            scratch_);
    const TensorView by_queries =
        scratch_.Zeros(kWindowArithmetic, {most, 1, dims.output_heads(), dims.key_dim});
    const TensorView lengths = scratch_.Zeros(DType::kInt64, {most, dims.heads});
    std::fill_n(lengths.as<std::int64_t>(), most * dims.heads, window_);
    const TensorView constants = scratch_.Zeros(DType::kFloat64, {2, most, dims.heads});
    const TensorView slopes_q = of_.Of(to.q), slopes_y = of_.Of(dy), q = of_.Of(call_.inputs.q);
    for (std::int64_t first = 0; first < of_.tokens; first += most) {
      const std::int64_t count = std::min(most, of_.tokens - first);
      const auto tokens = [&](const TensorView& view) {
        return view.defined() ? Turned(view.Slice(1, first, count)) : view;
      };
      const auto leading = [&](const TensorView& view) {
        return view.defined() ? view.Slice(0, 0, count) : view;
      };
      kernel_regression::Call windows;
      windows.arithmetic = kWindowArithmetic;
      windows.q = tokens(q);
      windows.bandwidth = call_.inputs.bandwidth;
      windows.ridge = call_.inputs.ridge;
      timeline_.BindWindows(first, count, leading(lengths), windows);
      common::PairGradientTensors gradients;
      if (slopes_q.defined()) gradients.q = leading(by_queries);
      gradients.state_k = leading(each.k);
      gradients.state_v = leading(each.v);
      gradients.state_log_weight = leading(each.log_weight);
      gradients.state_weight = leading(each.weight);
      if (each.weight.defined()) Fill(each.weight, 0);
      if (to.bandwidth.defined()) gradients.bandwidth = Constants(constants, 0, count);
      if (to.ridge.defined()) gradients.ridge = Constants(constants, 1, count);
      kernel_regression::Backward(options, windows, tokens(slopes_y), {}, gradients, call_.executor,
                                  call_.scratch);
      if (slopes_q.defined()) CopyInto(gradients.q, tokens(slopes_q));
      for (std::int64_t i = 0; i < count; ++i) AddWindow(each, i, timeline_.RowOf(first + i));
      AddConstants(gradients.bandwidth, to.bandwidth);
      AddConstants(gradients.ridge, to.ridge);
    }
  }

  static TensorView Constants(const TensorView& all, std::int64_t i, std::int64_t count) {
    const TensorView of = all.Slice(0, i, 1).Slice(1, 0, count);
    return {of.data(), of.dtype(), Shape{count, all.size(2)}};
  }

  void AddConstants(const TensorView& from, const TensorView& to) const {
    if (!to.defined()) return;
    for (std::int64_t i = 0; i < from.size(0); ++i) {
      Add(from.Slice(0, i, 1), to.Slice(0, of_.sequence, 1));
    }
  }

  void AddWindow(const RowGradients& each, std::int64_t i, std::int64_t row) const {
    const auto add = [&](const TensorView& from, const TensorView& to) {
      if (from.defined()) Add(from.Slice(0, i, 1), to.Slice(1, row, window_));
    };
    add(each.k, sums_.k);
    add(each.v, sums_.v);
    add(each.log_weight, sums_.log_weight);
    add(each.weight, sums_.weight);
  }

  /// Gradients by the rows that are in the final state.
  void AddFinal(const State& initial, const common::FinalPairGradients& final) const {
    for (std::int64_t h = 0; h < call_.dims.heads; ++h) {
      const std::int64_t held = WindowTimeline::Held(initial, of_.sequence, h);
      const auto add = [&](const TensorView& from, const TensorView& to) {
        if (!from.defined() || !to.defined()) return;
        const PairRows place{from.size(1), window_};
        const std::int64_t kept = place.After(held, of_.tokens);
        const TensorView rows = from.Slice(0, of_.sequence, 1).Slice(2, h, 1).Slice(1, 0, kept);
        const TensorView sums = to.Slice(2, h, 1).Slice(1, timeline_.rows() - kept, kept);
        for (std::int64_t i = 0; i < kept; ++i) AddRow(RowAt(rows, i), RowAt(sums, i));
      };
      add(final.k, sums_.k);
      add(final.v, sums_.v);
      add(final.log_weight, sums_.log_weight);
    }
  }

  /// Row i of [1, S, 1, D] or [1, S, 1], as [D] or [1].
  static TensorView RowAt(const TensorView& rows, std::int64_t i) {
    const TensorView row = rows.Slice(1, i, 1);
    return {row.data(), row.dtype(), Shape{row.shape().elements()}};
  }

  void GoBackThroughRows(const kernel_smoother::Options& keeps,
                         const kernel_smoother::Call& appends, const State& initial,
                         const common::PairGradientTensors& to) {
    const RowGradients start(call_.dims, call_.dtype, 1, timeline_.before(), sums_.weight.defined(),
                             scratch_);
    common::PairGradientTensors gradients;
    gradients.k = of_.Of(to.k);
    gradients.v = of_.Of(to.v);
    gradients.importance = of_.Of(to.importance);
    gradients.log_importance = of_.Of(to.log_importance);
    gradients.state_k = start.k;
    gradients.state_v = start.v;
    gradients.state_log_weight = start.log_weight;
    kernel_smoother::Backward(keeps, appends, {}, {sums_.k, sums_.v, sums_.log_weight}, gradients,
                              call_.executor);
    for (std::int64_t h = 0; h < call_.dims.heads; ++h) StoreStart(start, initial, h, to);
    if (gradients.importance.defined()) StoreSlopesAtZero(appends.importance, gradients.importance);
  }

  void StoreStart(const RowGradients& start, const State& initial, std::int64_t h,
                  const common::PairGradientTensors& to) const {
    const std::int64_t held = WindowTimeline::Held(initial, of_.sequence, h);
    const auto store = [&](const TensorView& from, const TensorView& all) {
      if (!all.defined() || !from.defined() || held == 0) return;
      CopyInto(from.Slice(2, h, 1).Slice(1, timeline_.before() - held, held),
               all.Slice(0, of_.sequence, 1).Slice(2, h, 1).Slice(1, 0, held));
    };
    store(start.k, to.state_k);
    store(start.v, to.state_v);
    store(start.log_weight, to.state_log_weight);
  }

  /// A pair without weight has the slopes that its windows have found.
  void StoreSlopesAtZero(const TensorView& importance, const TensorView& to) const {
    for (std::int64_t t = 0; t < of_.tokens; ++t) {
      for (std::int64_t h = 0; h < call_.dims.heads; ++h) {
        if (importance.At({0, t, h}) != 0) continue;
        to.Set({0, t, h}, sums_.weight.At({0, timeline_.before() + t, h}));
      }
    }
  }

  const EngineCall& call_;
  const SequenceRows& of_;
  std::int64_t window_;
  const WindowTimeline timeline_;
  const RowGradients sums_;  // by the rows of the timeline
  CallScratch& scratch_;
};

}  // namespace

void DifferentiateWindows(const EngineCall& call, const State& initial,
                          const kernel_regression::Options& options, const TensorView& dy,
                          const common::FinalPairGradients& final,
                          const common::PairGradientTensors& gradients) {
  for (const TensorView* sums : {&gradients.bandwidth, &gradients.ridge}) {
    if (sums->defined()) Fill(*sums, 0);
  }
  for (std::int64_t n = 0; n < call.dims.states(); ++n) {
    const SequenceRows of(call, n);
    CallScratch scratch;
    SequenceGradient(call, initial, of, scratch).Run(initial, options, dy, final, gradients);
  }
}

}  // namespace ttr
