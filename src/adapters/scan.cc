// From a recipe to the options of the scan engine.

#include "src/engines/scan/scan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/adapters/output_norm.h"
#include "src/adapters/registry.h"
#include "src/core/working_copy.h"
#include "src/engines/scan/backward.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

bool IsVector(const Recipe& recipe) { return FamilyOf(recipe) == Family::kGatedVector; }

scan::Weight WeightOf(Importance importance) {
  switch (importance) {
    case Importance::kComplement: return scan::Weight::kComplement;
    case Importance::kRootComplement: return scan::Weight::kRootComplement;
    default: return scan::Weight::kOne;  // beside the input, where there is one
  }
}

scan::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  scan::Options options;
  options.weight = WeightOf(recipe.weights.importance);
  options.read_before = recipe.reading.read == Read::kBefore;
  options.normalise_qk = recipe.reading.normalise_qk;
  options.output_norm = OutputNormOf(recipe);
  // A vector is read without a query, and so without its scale. One gradient step of size eta from
  // 0: the memory is eta times the sum, so the sum is kept and eta multiplies what is read.
  options.scale = recipe.optimizer.eta;
  if (!IsVector(recipe)) {
    options.scale *= recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                                : recipe.reading.scale;
  }
  return options;
}

/// The inputs and the constants of a call, which `factors` outlives.
scan::Call CallOf(const Dims& dims, const Inputs& inputs, Needs needs,
                  const std::vector<double>& factors) {
  scan::Call call;
  if (needs != Needs::kWrite) call.q = inputs.q;
  if (needs != Needs::kRead) {
    call.k = inputs.k;
    call.v = inputs.v;
    call.v_im = inputs.v_im;
    call.importance = inputs.importance;
    call.log_decay = inputs.log_decay;
    call.phase = inputs.phase;
    call.dt = inputs.dt;
    call.a = inputs.a;
  }
  call.decay_factors = factors;
  call.cu_seqlens = CuSeqlens(inputs, dims);
  return call;
}

scan::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType state) {
  scan::Sizes sizes;
  sizes.key_dim = IsVector(recipe) ? 0 : dims.key_dim;
  sizes.value_dim = dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.state = state;
  return sizes;
}

/// A copy of an entry, or zeros.
Tensor CopyOf(const State& state, std::string_view name, DType dtype, const Shape& shape) {
  const TensorView view = state.Get(name);
  return view.defined() ? Tensor::Copy(view, dtype) : Tensor(dtype, shape);
}

class Scan final : public Engine {
 public:
  std::string_view name() const override { return "scan"; }

  bool Covers(const Recipe& recipe) const override {
    return IsVector(recipe) ||
           (FamilyOf(recipe) == Family::kHebbian && recipe.weights.decay == Decay::kMatrix);
  }
  const char* Obstacle(const Recipe& recipe) const override {
    if (!recipe.reading.causal) return "reading the whole sequence at once";
    if (recipe.function.features != FeatureMap::kNone) return "a feature map";
    if (recipe.weights.importance == Importance::kLog) return "unbounded importance weights";
    if (recipe.reading.bonus) return "a bonus of the current token";
    return nullptr;
  }
  std::string_view How(const Recipe&) const override {
    return "a memory that decays entry by entry: a recurrence over tokens, SIMD over entries";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto dv = static_cast<double>(dims.value_dim);
    return IsVector(recipe) ? 4 * dv : 4 * dv * static_cast<double>(PhiDim(recipe, dims));
  }

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override {
    const Recipe& recipe = call.recipe();
    AddMissing(recipe, call.requirements.state, call.dims, call.dtype, state);
    const WorkingCopy im(state.Get("state.im"), state.Get("state").dtype());
    const std::vector<double>& factors = call.prepared.For(call.dims, call.dtype).decay_factors;
    scan::Call operands = CallOf(call.dims, call.inputs, call.needs, factors);
    operands.state = state.Get("state");
    operands.state_im = im.view();
    operands.saved = call.saved;
    operands.slots = call.slots;
    if (call.needs != Needs::kWrite) operands.y = outputs.y;
    scan::Forward(OptionsOf(recipe, call.dims), operands, call.executor, call.scratch);
    im.WriteBack();
  }

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    scan::Sizes sizes = SizesOf(recipe, dims, DType::kFloat64);  // the wider one, of any state
    if (IsVector(recipe)) sizes.value_dim *= dims.heads;
    sizes.whole_rows = recipe.reading.output_norm != OutputNorm::kNone;
    return scan::ScratchBytes(sizes, threads);
  }

  std::size_t SavedBytes(const Recipe& recipe, const Dims& dims, DType state) const override {
    return scan::SavedBytes(SizesOf(recipe, dims, state), dims.heads, dims.batch * dims.tokens,
                            recipe.weights.phase);
  }

  bool TakesSlots(const Recipe&) const override { return true; }

  bool HasGradients() const override { return true; }

  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override {
    const Recipe& recipe = call.recipe();
    const Inputs& d = tensors.dinputs;
    const TensorView dstate = tensors.dinitial.Get("state");
    const DType dtype = dstate.dtype();
    const bool complex = recipe.weights.phase;
    // The gradient of the final state goes backwards in place.
    const Tensor re = CopyOf(initial, "state", dtype, dstate.shape());
    const Tensor dre = CopyOf(tensors.dstate, "state", dtype, dstate.shape());
    Tensor im, dim;
    if (complex) {
      im = CopyOf(initial, "state.im", dtype, dstate.shape());
      dim = CopyOf(tensors.dstate, "state.im", dtype, dstate.shape());
    }
    const std::vector<double>& factors = call.prepared.For(call.dims, call.dtype).decay_factors;
    scan::Call operands = CallOf(call.dims, call.inputs, Needs::kBoth, factors);
    operands.state = re.view();
    if (complex) operands.state_im = im.view();
    scan::Options options = OptionsOf(recipe, call.dims);
    options.output_norm = scan::OutputNorm::kNone;
    const Tensor dz = GradientBeforeNorm(call, dtype, tensors.dy, [&](const TensorView& z) {
      Retrieve(options, operands, z, call.executor);
    });
    operands.saved = call.saved;
    const scan::Gradients gradients{d.v, d.v_im, d.importance, d.log_decay, d.phase,
                                    d.q, d.k,    d.dt,         d.a};
    const TensorView& dy = dz.defined() ? dz.view() : tensors.dy;
    scan::Backward(options, operands, {dy, dre.view(), dim.view()}, gradients, call.executor,
                   call.scratch);
    CopyInto(dre.view(), dstate);
    if (complex) CopyInto(dim.view(), tensors.dinitial.Get("state.im"));
  }

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return scan::BackwardScratchBytes({.sizes = SizesOf(recipe, dims, DType::kFloat64),
                                       .heads = dims.heads,
                                       .value_heads = dims.value_heads,
                                       .sequences = dims.states(),
                                       .tokens = dims.batch * dims.tokens,
                                       .length = dims.tokens,
                                       .complex = recipe.weights.phase},
                                      threads);
  }

 private:
  /// Computes the outputs once more; the state of `operands` stays as it is.
  static void Retrieve(const scan::Options& options, scan::Call operands, const TensorView& y,
                       Executor& executor) {
    const Tensor end = Tensor::Copy(operands.state);
    const Tensor end_im = Tensor::Copy(operands.state_im);
    operands.state = end.view();
    operands.state_im = end_im.view();
    operands.y = y;
    scan::Forward(options, operands, executor);
  }
};

}  // namespace

const Engine& ScanEngine() {
  static const Scan engine;
  return engine;
}

}  // namespace ttr
