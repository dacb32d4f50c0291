#include "src/definition/differentiate.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "src/core/fill.h"
#include "src/definition/sequence.h"
#include "src/recipe/family.h"

namespace ttr::definition {
namespace {

bool IsCount(const std::string& name) {
  return name == "state.position" || name == "state.length" || name == "state.count";
}

/// A call whose numbers may be changed: double-precision copies of everything that was given.
class Probe {
 public:
  Probe(const Recipe& recipe, const Dims& dims, const Inputs& inputs, const State& initial,
        const TensorView& dy, const State& dstate)
      : recipe_(recipe), dims_(dims), dy_(dy), dstate_(dstate) {
    for (const InputField& field : InputFields()) {
      const TensorView& view = inputs.*field.view;
      if (!view.defined()) continue;
      if (!IsFloating(view.dtype())) {
        inputs_.*field.view = view;
        continue;
      }
      copies_.push_back(Tensor::Copy(view, DType::kFloat64));
      inputs_.*field.view = copies_.back().view();
    }
    for (const State::Entry& entry : initial.entries()) {
      initial_.Set(entry.name, Tensor::Copy(entry.view, DType::kFloat64));
    }
    y_ = Tensor(DType::kFloat64, dy.shape());
    Final();  // notes the choices that are made at the numbers as they are
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  const Inputs& inputs() const { return inputs_; }
  const State& initial() const { return initial_; }

  /// The state after the last token; leaves the outputs in y.
  State Final() {
    State state = Start();
    RunSequences(Mode::kForward, {recipe_, dims_, inputs_}, state, {.y = y_.view()},
                 SequentialExecutor(), &choices_);
    if (KeepsPairs(recipe_)) ClearPadding(state);
    return state;
  }

  /// L at the numbers as they are.
  double Loss() {
    const State state = Final();
    double loss = Dot(dy_, y_.view());
    for (const State::Entry& entry : dstate_.entries()) {
      if (!IsCount(entry.name)) loss += Dot(entry.view, state.Get(entry.name));
    }
    return loss;
  }

 private:
  /// Clears the rows behind the pairs that are held, which are no part of a state.
  static void ClearPadding(State& state) {
    const TensorView length = state.Get("state.length");
    if (!length.defined()) return;
    for (const State::Entry& entry : state.entries()) {
      if (IsCount(entry.name)) continue;
      for (std::int64_t n = 0; n < length.size(0); ++n) {
        for (std::int64_t h = 0; h < length.size(1); ++h) {
          const auto held = static_cast<std::int64_t>(length.At({n, h}));
          const TensorView rows =
              entry.view.Slice(0, n, 1).Slice(2, h, 1).Slice(1, held, entry.view.size(1) - held);
          Fill(rows, 0);
        }
      }
    }
  }

  /// A copy of the initial state. Where a gradient of the final one is given, pairs have the rows
  /// that it has.
  State Start() const {
    State state;
    const TensorView given = initial_.Get("state.k");
    std::int64_t rows = -1;
    for (const State::Entry& entry : dstate_.entries()) {
      if (KeepsPairs(recipe_) && !IsCount(entry.name)) rows = entry.view.size(1);
    }
    for (const StateSpec& spec : StateSpecs(recipe_)) {
      const TensorView from = initial_.Get(spec.name);
      if (rows < 0) {
        if (from.defined()) state.Set(spec.name, Tensor::Copy(from));
        continue;
      }
      Tensor tensor(DType::kFloat64, StateShape(spec, recipe_, dims_, rows));
      if (spec.counts() && !from.defined() && given.defined()) {
        for (double& count : tensor.as<double>()) count = static_cast<double>(given.size(1));
      } else if (spec.counts() && from.defined()) {
        CopyInto(from, tensor);
      } else if (from.defined()) {
        const std::int64_t held = std::min(rows, from.size(1));
        CopyInto(from.Slice(1, 0, held), tensor.view().Slice(1, 0, held));
      }
      state.Set(spec.name, std::move(tensor));
    }
    return state;
  }

  /// Terms whose weight is zero do not count, whatever their value.
  static double Dot(const TensorView& weights, const TensorView& values) {
    const Tensor w = Tensor::Copy(weights, DType::kFloat64);
    const Tensor x = Tensor::Copy(values, DType::kFloat64);
    double sum = 0;
    for (std::size_t i = 0; i < w.as<double>().size(); ++i) {
      if (w.as<double>()[i] != 0) sum += w.as<double>()[i] * x.as<double>()[i];
    }
    return sum;
  }

  const Recipe& recipe_;
  const Dims& dims_;
  const TensorView& dy_;
  const State& dstate_;
  std::vector<Tensor> copies_;
  Inputs inputs_;
  State initial_;
  Tensor y_;
  std::vector<Choices> choices_;
};

/// The derivative of the loss by one of its numbers.
double Derivative(double& x, Range range, const std::function<double()>& loss) {
  const double at = x;
  if (!std::isfinite(at)) return 0;
  const double h = std::cbrt(std::numeric_limits<double>::epsilon()) * std::max(1.0, std::abs(at));
  const auto value = [&](double moved) {
    x = moved;
    const double result = loss();
    x = at;
    return result;
  };
  const bool at_lower_edge = range == Range::kNonNegative && at - h < 0;
  const bool at_upper_edge = range == Range::kNonPositive && at + h > 0;
  if (at_lower_edge || at_upper_edge) {
    const double d = at_lower_edge ? h : -h;
    return (4 * value(at + d) - value(at + 2 * d) - 3 * value(at)) / (2 * d);
  }
  return (value(at + h) - value(at - h)) / (2 * h);
}

Range RangeOf(const Recipe& recipe, TensorView Inputs::* view) {
  for (const InputSpec& spec : InputSpecs(recipe)) {
    if (spec.view == view) return spec.range;
  }
  return Range::kAny;
}

}  // namespace

void Differentiate(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                   const State& initial, const Gradients& gradients, Executor& executor) {
  // Without a given state the gradient of the state is taken at the recipe's own start, which
  // inputs (the ridge) may be part of.
  State start;
  if (initial.empty()) {
    RunSequences(Mode::kStart, {recipe, dims, inputs}, start, {}, SequentialExecutor());
  }
  const State& from = initial.empty() ? start : initial;

  /// Fills `gradient` with the derivatives by the numbers of the tensor that `find` picks.
  const auto differentiate = [&](const State& at, const auto& find, Range range,
                                 const TensorView& gradient) {
    const Tensor result(DType::kFloat64, gradient.shape());
    const std::int64_t count = result.elements();
    const std::int64_t tasks = std::min<std::int64_t>(count, executor.threads());
    executor.Run(tasks, [&](std::int64_t task) {
      Probe probe(recipe, dims, inputs, at, gradients.dy, gradients.dstate);
      const TensorView tensor = find(probe);
      for (std::int64_t i = task; i < count; i += tasks) {
        result.as<double>()[static_cast<std::size_t>(i)] =
            Derivative(tensor.as<double>()[i], range, [&] { return probe.Loss(); });
      }
    });
    CopyInto(result.view(), gradient);
  };

  for (const InputField& field : InputFields()) {
    const TensorView& gradient = gradients.dinputs.*field.view;
    if (!gradient.defined()) continue;
    differentiate(
        initial, [&](const Probe& probe) { return probe.inputs().*field.view; },
        RangeOf(recipe, field.view), gradient);
  }
  for (const State::Entry& entry : from.entries()) {
    if (IsCount(entry.name)) continue;
    if (!gradients.dinitial.Get(entry.name).defined()) {
      const bool wide = entry.view.dtype() == DType::kFloat64;
      gradients.dinitial.Set(entry.name,
                             Tensor(wide ? DType::kFloat64 : DType::kFloat32, entry.view.shape()));
    }
    differentiate(
        from, [&](const Probe& probe) { return probe.initial().Get(entry.name); }, Range::kAny,
        gradients.dinitial.Get(entry.name));
  }
}

}  // namespace ttr::definition
