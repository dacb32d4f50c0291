// Calls of networks that are trained while they read, on their engine.

#include "src/engines/network/network.h"

#include <algorithm>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/adapters/network_options.h"
#include "src/adapters/network_state.h"
#include "src/adapters/registry.h"
#include "src/core/call_scratch.h"
#include "src/core/fill.h"
#include "src/core/working_copy.h"
#include "src/engines/network/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

/// The parameters of a state, or their gradients, as the engine takes them: in one dtype, others in
/// copies. None where the state has none.
class Parameters : public network::StateParameters {
 public:
  Parameters(const Requirements& requirements, const State& state, DType dtype,
             CallScratch& scratch)
      : views_(scratch.resource()) {
    views_.reserve(requirements.state.size());
    const auto layers = [&](std::string_view weight, std::string_view bias) {
      return network::Parameters{EntriesOf(requirements, state, weight, dtype, scratch),
                                 EntriesOf(requirements, state, bias, dtype, scratch)};
    };
    weights = layers("state.w", "state.b");
    anchors = layers("state.anchor_w", "state.anchor_b");
    second = requirements.recipe.optimizer.momentum ? layers("state.s_w", "state.s_b")
                                                    : layers("state.g_w", "state.g_b");
    squares = layers("state.squares_w", "state.squares_b");
  }
  Parameters(const Parameters&) = delete;
  Parameters& operator=(const Parameters&) = delete;

  void WriteBack() const {
    for (const auto& [given, copy] : copies_) CopyInto(copy, given);
  }

  /// Bytes that they take of the scratch.
  static std::size_t ScratchBytes(const Recipe& recipe) {
    constexpr std::size_t kOfLayer = 8;  // weights and biases, of four kinds
    return CallScratch::RoundedUp(static_cast<std::size_t>(recipe.function.depth) * kOfLayer *
                                  sizeof(TensorView));
  }

 private:
  /// The entries whose names begin like this, layer by layer.
  std::span<const TensorView> EntriesOf(const Requirements& requirements, const State& state,
                                        std::string_view prefix, DType dtype,
                                        CallScratch& scratch) {
    const std::size_t first = views_.size();
    for (const StateSpec& spec : requirements.state) {
      if (!spec.name.starts_with(prefix)) continue;
      const TensorView given = state.Get(spec.name);
      if (!given.defined()) continue;
      const bool fits = given.dtype() == dtype;
      views_.push_back(fits ? given : scratch.Copy(given, dtype));
      if (!fits) copies_.emplace_back(given, views_.back());
    }
    return std::span<const TensorView>(views_).subspan(first);
  }

  std::pmr::vector<TensorView> views_;
  std::vector<std::pair<TensorView, TensorView>> copies_;  // the caller's, and what it becomes
};

network::Call CallOf(const EngineCall& from, const State& state, const Parameters& parameters) {
  const Inputs& inputs = from.inputs;
  network::Call call;
  static_cast<network::StateParameters&>(call) = parameters;
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
  call.position = state.Get("state.position");
  return call;
}

/// Gradients as the engine wants them, a tensor [N, ...] of what sequences share, and their sums
/// into the caller's tensors.
class NetworkGradients {
 public:
  NetworkGradients(const EngineCall& call, const State& initial, const BackwardTensors& tensors,
                   DType dtype)
      : initial_(initial), tensors_(tensors) {
    const Inputs& d = tensors.dinputs;
    const Dims& dims = call.dims;
    q_ = WorkingCopy::OfHeads(d.q, dims.output_heads(), dtype);
    k_ = WorkingCopy::OfHeads(d.k, dims.heads, dtype);
    v_ = WorkingCopy::OfHeads(d.v, dims.heads, dtype);
    for (const StateSpec& spec : call.requirements.state) {
      if (!spec.counts())
        state_.Set(spec.name, Tensor(dtype, StateShape(spec, call.recipe(), dims)));
    }
    parameters_.emplace(call.requirements, state_, dtype, scratch_);
    const auto each = [&](const TensorView& wanted, Tensor& sums) {
      if (wanted.defined()) sums = Tensor(dtype, {dims.states(), dims.heads, wanted.size(1)});
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
              .initial = *parameters_};
  }

  const network::Gradients& views() const { return views_; }

  void WriteBack() const {
    for (const WorkingCopy* copy : {&q_, &k_, &v_}) copy->WriteBack();
    AddUp(ln_weight_.view(), tensors_.dinputs.ln_weight);
    AddUp(ln_bias_.view(), tensors_.dinputs.ln_bias);
    AddUp(row_bias_.view(), tensors_.dinputs.row_bias);
    for (const State::Entry& entry : state_.entries()) {
      // An entry that the caller did not give began as another one, whose gradient takes its own.
      const std::string of = initial_.empty() ? "" : NetworkEntryOf(entry.name);
      if (!of.empty() && !initial_.Get(entry.name).defined()) {
        AddTo(state_.Get(of), entry.view);
        Fill(entry.view, 0);
      }
    }
    for (const State::Entry& entry : state_.entries()) {
      const TensorView wanted = tensors_.dinitial.Get(entry.name);
      wanted.rank() < entry.view.rank() ? AddUp(entry.view, wanted) : CopyInto(entry.view, wanted);
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

  /// The sum over the sequences, if it is wanted.
  static void AddUp(const TensorView& each, const TensorView& wanted) {
    if (!wanted.defined()) return;
    const Tensor sum(DType::kFloat64, wanted.shape());
    for (std::int64_t n = 0; n < each.size(0); ++n) {
      const TensorView row = each.Slice(0, n, 1);
      AddTo(sum.view(), TensorView(row.data(), row.dtype(), wanted.shape()));
    }
    CopyInto(sum, wanted);
  }

  const State& initial_;
  const BackwardTensors& tensors_;
  WorkingCopy q_, k_, v_;
  Tensor ln_weight_, ln_bias_, row_bias_;
  State state_;
  CallScratch scratch_;
  std::optional<Parameters> parameters_;  // of state_
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
    CallScratch scratch(name(), call.scratch, Parameters::ScratchBytes(call.recipe()));
    const Parameters parameters(call.requirements, state, state.Get("state.w1").dtype(), scratch);
    network::Call tensors = CallOf(call, state, parameters);
    tensors.saved = call.saved;
    tensors.y = outputs.y;
    tensors.status = outputs.status;
    network::Forward(NetworkOptions(call.recipe(), call.dims), tensors, call.executor,
                     scratch.rest());
    if (call.needs != Needs::kRead) parameters.WriteBack();
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return Parameters::ScratchBytes(recipe) +
           network::ScratchBytes(NetworkSizes(recipe, dims, DType::kFloat64), threads);
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
    CallScratch scratch;
    const Parameters parameters(call.requirements, start, dtype, scratch);
    const Parameters final(call.requirements, dstate, dtype, scratch);
    network::Call forward = CallOf(call, start, parameters);
    forward.y = tensors.dy;
    forward.saved = call.saved;
    const NetworkGradients gradients(call, initial, tensors, dtype);
    network::Backward(NetworkOptions(recipe, call.dims), forward, final, gradients.views(),
                      call.executor, call.scratch);
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
