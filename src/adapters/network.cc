// Calls of networks that are trained while they read, on their engine.

#include "src/engines/network/network.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/adapters/network_state.h"
#include "src/adapters/network_words.h"
#include "src/adapters/registry.h"
#include "src/core/working_copy.h"
#include "src/engines/network/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

/// The tensors of a state whose names have this prefix, in one dtype.
class ParameterCopies {
 public:
  ParameterCopies(const Recipe& recipe, const State& state, std::string_view prefix, DType dtype) {
    for (std::int64_t l = 1; l <= recipe.function.depth; ++l) {
      const std::string layer = std::to_string(l), name = "state." + std::string(prefix);
      w_.emplace_back(state.Get(name + "w" + layer), dtype);
      if (recipe.function.bias) b_.emplace_back(state.Get(name + "b" + layer), dtype);
    }
  }

  /// The parameters as the engine takes them; empty where the state has none.
  network::Parameters views() const {
    network::Parameters views;
    if (!w_.front().view().defined()) return views;
    for (const WorkingCopy& copy : w_) views.w.push_back(copy.view());
    for (const WorkingCopy& copy : b_) views.b.push_back(copy.view());
    return views;
  }
  void WriteBack() const {
    for (const WorkingCopy& copy : w_) copy.WriteBack();
    for (const WorkingCopy& copy : b_) copy.WriteBack();
  }

 private:
  std::vector<WorkingCopy> w_, b_;
};

/// The parameters of a call, with those that the options have beside the weights.
struct StateCopies {
  ParameterCopies weights, anchors, second, squares;

  StateCopies(const Recipe& recipe, const State& state, DType dtype)
      : weights(recipe, state, "", dtype),
        anchors(recipe, state, "anchor_", dtype),
        second(recipe, state, recipe.optimizer.momentum ? "s_" : "g_", dtype),
        squares(recipe, state, "squares_", dtype) {}

  network::StateGradients gradients() const {
    return {weights.views(), anchors.views(), second.views(), squares.views()};
  }
  void WriteBack() const {
    for (const ParameterCopies* copies : {&weights, &anchors, &second, &squares}) {
      copies->WriteBack();
    }
  }
};

network::Call CallOf(const EngineCall& from, const State& state, const StateCopies& copies) {
  const Inputs& inputs = from.inputs;
  network::Call call;
  if (from.needs != Needs::kWrite) call.q = inputs.q;
  if (from.needs != Needs::kRead) {
    call.k = inputs.k;
    call.v = inputs.v;
    call.step = inputs.step;
    call.momentum = inputs.momentum;
    call.weight_decay = inputs.weight_decay;
  }
  call.ln_weight = inputs.ln_weight;
  call.ln_bias = inputs.ln_bias;
  call.row_bias = inputs.row_bias;
  call.cu_seqlens = CuSeqlens(inputs, from.dims);
  call.slots = from.slots;
  call.weights = copies.weights.views();
  call.anchors = copies.anchors.views();
  call.second = copies.second.views();
  call.squares = copies.squares.views();
  call.position = state.Get("state.position");
  return call;
}

/// Gradients as the engine wants them, a tensor [N, ...] of what sequences share, and their sums
/// into the caller's tensors.
class NetworkGradients {
 public:
  NetworkGradients(const EngineCall& call, const State& initial, const BackwardTensors& tensors,
                   DType dtype)
      : recipe_(call.recipe()), initial_(initial), home_(tensors) {
    const Inputs& d = tensors.dinputs;
    const Dims& dims = call.dims;
    q_ = WorkingCopy::OfHeads(d.q, dims.output_heads(), dtype);
    k_ = WorkingCopy::OfHeads(d.k, dims.heads, dtype);
    v_ = WorkingCopy::OfHeads(d.v, dims.heads, dtype);
    for (const StateSpec& spec : call.requirements.state) {
      if (!spec.counts) state_.Set(spec.name, Tensor(dtype, StateShape(spec, recipe_, dims)));
    }
    const StateCopies copies(recipe_, state_, dtype);
    const auto each = [&](const TensorView& home, Tensor& sums) {
      if (home.defined()) sums = Tensor(dtype, {dims.states(), dims.heads, home.size(1)});
      return sums.view();
    };
    views_ = {.q = q_.view(),
              .k = k_.view(),
              .v = v_.view(),
              .step = d.step,
              .momentum = d.momentum,
              .weight_decay = d.weight_decay,
              .ln_weight = each(d.ln_weight, ln_weight_),
              .ln_bias = each(d.ln_bias, ln_bias_),
              .row_bias = each(d.row_bias, row_bias_),
              .initial = copies.gradients()};
  }

  const network::Gradients& views() const { return views_; }

  void WriteBack() const {
    for (const WorkingCopy* copy : {&q_, &k_, &v_}) copy->WriteBack();
    AddUp(ln_weight_.view(), home_.dinputs.ln_weight);
    AddUp(ln_bias_.view(), home_.dinputs.ln_bias);
    AddUp(row_bias_.view(), home_.dinputs.row_bias);
    for (const State::Entry& entry : state_.entries()) {
      // An entry that the caller did not give began as another one, whose gradient takes its own.
      const std::string of = initial_.empty() ? "" : NetworkEntryOf(entry.name);
      if (!of.empty() && !initial_.Get(entry.name).defined()) {
        AddTo(state_.Get(of), entry.view);
        CopyInto(Tensor(entry.view.dtype(), entry.view.shape()), entry.view);
      }
    }
    for (const State::Entry& entry : state_.entries()) {
      const TensorView home = home_.dinitial.Get(entry.name);
      home.rank() < entry.view.rank() ? AddUp(entry.view, home) : CopyInto(entry.view, home);
    }
  }

 private:
  static void AddTo(const TensorView& sum, const TensorView& more) {
    for (std::int64_t i = 0; i < sum.shape().elements(); ++i) {
      StoreElement(
          sum.data(), sum.dtype(), i,
          LoadElement(sum.data(), sum.dtype(), i) + LoadElement(more.data(), more.dtype(), i));
    }
  }

  /// `home`, the caller's tensor, = the sum over the sequences, if it is wanted.
  static void AddUp(const TensorView& each, const TensorView& home) {
    if (!home.defined()) return;
    const Tensor sum(DType::kFloat64, home.shape());
    for (std::int64_t n = 0; n < each.size(0); ++n) {
      const TensorView row = each.Slice(0, n, 1);
      AddTo(sum.view(), TensorView(row.data(), row.dtype(), home.shape()));
    }
    CopyInto(sum, home);
  }

  const Recipe& recipe_;
  const State& initial_;
  const BackwardTensors& home_;
  WorkingCopy q_, k_, v_;
  Tensor ln_weight_, ln_bias_, row_bias_;
  State state_;
  network::Gradients views_;
};

class Network final : public Engine {
 public:
  std::string_view name() const override { return "network"; }

  bool Covers(const Recipe& recipe) const override { return FamilyOf(recipe) == Family::kNetwork; }
  std::string_view How(const Recipe& recipe) const override {
    return recipe.optimizer.mini_batch > 1
               ? "a small network trained while it reads, tokens of a mini-batch together"
               : "a small network trained while it reads, token by token in its weights";
  }

  /// The network at the key, its gradient, the network at the query: 2 flops a weight each but for
  /// the first layer's gradient by its input, and the update. A mini-batch adds 3 a weight where
  /// there is momentum or decay, an adapted step 8.
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const network::Shape shape = NetworkSizes(recipe, dims, DType::kFloat32).shape;
    const network::Options options = NetworkOptions(recipe, dims);
    const auto weights_of = [&](std::int64_t l) {
      return static_cast<double>(shape.In(l)) * static_cast<double>(shape.Out(l));
    };
    double weights = 0;
    for (std::int64_t l = 0; l < shape.depth; ++l) weights += weights_of(l);
    double flops = 6 * weights + 2 * (weights - weights_of(0));
    if (!options.plain()) flops += 3 * weights / static_cast<double>(options.mini_batch);
    if (options.adapts()) flops += 8 * weights;
    return flops;
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    CompleteNetwork(call.requirements, call.dims, call.dtype, state);
    const StateCopies copies(call.recipe(), state, state.Get("state.w1").dtype());
    network::Call words = CallOf(call, state, copies);
    words.saved = call.saved;
    if (call.needs != Needs::kWrite) {
      words.y = outputs.y;
      words.status = outputs.status;
    }
    network::Forward(NetworkOptions(call.recipe(), call.dims), words, call.executor, call.scratch);
    if (call.needs != Needs::kRead) copies.WriteBack();
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return network::ScratchBytes(NetworkSizes(recipe, dims, DType::kFloat64), threads);
  }

  std::size_t SavedBytes(const Recipe& recipe, const Dims& dims, DType state) const override {
    return network::SavedBytes(NetworkOptions(recipe, dims), NetworkSizes(recipe, dims, state),
                               dims.batch * dims.tokens, dims.states());
  }

  bool TakesSlots(const Recipe&) const override { return true; }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const DType dtype = call.dtype;
    State start = initial.Shared();
    CompleteNetwork(call.requirements, call.dims, dtype, start);
    State dstate = tensors.dstate.Shared();
    AddMissing(recipe, call.requirements.state, call.dims, dtype, dstate);
    const StateCopies copies(recipe, start, dtype), final(recipe, dstate, dtype);
    network::Call words = CallOf(call, start, copies);
    words.y = tensors.dy;
    words.saved = call.saved;
    const NetworkGradients gradients(call, initial, tensors, dtype);
    network::Backward(NetworkOptions(recipe, call.dims), words, final.gradients(),
                      gradients.views(), call.executor, call.scratch);
    gradients.WriteBack();
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    // How many checkpoints are kept depends on the dtype, too.
    const auto bytes = [&](DType dtype) {
      return network::BackwardScratchBytes(NetworkOptions(recipe, dims),
                                           NetworkSizes(recipe, dims, dtype), threads);
    };
    return std::max(bytes(DType::kFloat32), bytes(DType::kFloat64));
  }
};

}  // namespace

const Engine& NetworkEngine() {
  static const Network engine;
  return engine;
}

}  // namespace ttr
