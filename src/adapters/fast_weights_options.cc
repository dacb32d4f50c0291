// Recipes and tensors as options and operands of the fast-weights engine.

#include "src/adapters/fast_weights_options.h"

#include <cmath>

#include "src/adapters/engine.h"
#include "src/adapters/feature_parameters.h"
#include "src/adapters/output_norm.h"
#include "src/operators/feature_options.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

fast_weights::Step StepOf(StepRule rule) {
  switch (rule) {
    case StepRule::kInput: return fast_weights::Step::kInput;
    case StepRule::kNlms: return fast_weights::Step::kNlms;
    case StepRule::kLonghorn: return fast_weights::Step::kLonghorn;
    case StepRule::kEfla: return fast_weights::Step::kEfla;
    case StepRule::kOne: return fast_weights::Step::kOne;
  }
  return fast_weights::Step::kOne;
}

fast_weights::Erase EraseOf(Erase erase) {
  switch (erase) {
    case Erase::kKey: return fast_weights::Erase::kKey;
    case Erase::kEraseKey: return fast_weights::Erase::kEraseKey;
    case Erase::kGatedKey: return fast_weights::Erase::kGatedKey;
    case Erase::kUndecayed: return fast_weights::Erase::kSeparateValueKey;
  }
  return fast_weights::Erase::kKey;
}

fast_weights::Decay DecayOf(Decay decay) {
  switch (decay) {
    case Decay::kConstant:
    case Decay::kRetention: return fast_weights::Decay::kConstant;
    case Decay::kScalar: return fast_weights::Decay::kScalar;
    case Decay::kChannel: return fast_weights::Decay::kChannel;
    case Decay::kNone:
    case Decay::kMatrix: break;  // per entry: another engine's
  }
  return fast_weights::Decay::kNone;
}

fast_weights::Denominator DenominatorOf(NormaliseSum normalise) {
  switch (normalise) {
    case NormaliseSum::kNone: return fast_weights::Denominator::kNone;
    case NormaliseSum::kSum: return fast_weights::Denominator::kSum;
    case NormaliseSum::kStabilised: return fast_weights::Denominator::kStabilised;
  }
  return fast_weights::Denominator::kNone;
}

fast_weights::Shrink ShrinkOf(WeightDecay decay) {
  switch (decay) {
    case WeightDecay::kNone: return fast_weights::Shrink::kNone;
    case WeightDecay::kCoupled: return fast_weights::Shrink::kCoupled;
    case WeightDecay::kDecoupled: return fast_weights::Shrink::kDecoupled;
  }
  return fast_weights::Shrink::kNone;
}

/// One gradient step of size eta from 0: the memory is eta times the sum, so the sum is kept and
/// eta multiplies what is read.
void SetHebbian(const Recipe& recipe, const Inputs& inputs, fast_weights::Options& options) {
  options.write = fast_weights::Write::kHebbian;
  options.gain = recipe.optimizer.eta;
  options.step = fast_weights::Step::kOne;
  switch (recipe.weights.importance) {
    case Importance::kNone: break;
    case Importance::kInput:
      if (inputs.importance.defined()) options.step = fast_weights::Step::kInput;
      break;
    case Importance::kLog: options.step = fast_weights::Step::kLogWeight; break;
    case Importance::kComplement: options.key = fast_weights::Key::kComplement; break;
    case Importance::kRootComplement: options.key = fast_weights::Key::kRootComplement; break;
  }
}

void SetSgd(const Optimizer& optimizer, fast_weights::Options& options) {
  options.write = fast_weights::Write::kDelta;
  options.step = StepOf(optimizer.step);
  options.eta = optimizer.eta;
  options.eps = optimizer.eps;
  options.erase = EraseOf(optimizer.erase);
  options.momentum = optimizer.momentum;
  options.shrink = ShrinkOf(optimizer.weight_decay);
  options.preconditioned = optimizer.preconditioner != Preconditioner::kNone;
  options.curvature_decay = optimizer.curvature_decay;
  options.curvature_centre = optimizer.curvature_centre;
  options.steps = static_cast<int>(optimizer.steps);
}

}  // namespace

fast_weights::Options FastWeightsOptions(const Recipe& recipe, const Dims& dims,
                                         const Inputs& inputs) {
  fast_weights::Options options;
  options.decay = DecayOf(recipe.weights.decay);
  options.phase = recipe.weights.phase;
  options.read_before = recipe.reading.read == Read::kBefore;
  options.causal = recipe.reading.causal;
  options.features = FeatureOptionsOf(recipe.function);
  options.intercept = recipe.function.kind == FunctionClass::kAffine;
  options.bonus = recipe.reading.bonus;
  options.correction = recipe.reading.correction;
  options.normalise_qk = recipe.reading.normalise_qk;
  options.denominator = DenominatorOf(recipe.reading.normalise_sum);
  options.output_norm = OutputNormOf(recipe);
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  if (FamilyOf(recipe) == Family::kHebbian) {
    SetHebbian(recipe, inputs, options);
  } else {
    SetSgd(recipe.optimizer, options);
  }
  return options;
}

fast_weights::Operands<TensorView> FastWeightsOperands(const Recipe& recipe, const Inputs& inputs) {
  const bool sgd = FamilyOf(recipe) == Family::kSgd;
  const bool log_weights = recipe.weights.importance == Importance::kLog;
  fast_weights::Operands<TensorView> operands;
  operands.q = inputs.q;
  operands.k = inputs.k;
  operands.v = inputs.v;
  operands.log_decay = inputs.log_decay;
  operands.phase = inputs.phase;
  operands.step = sgd ? inputs.step : log_weights ? inputs.log_importance : inputs.importance;
  if (sgd) operands.importance = inputs.importance;
  operands.erase_key = inputs.erase_key;
  operands.erase_gate = inputs.erase_gate;
  operands.momentum = inputs.momentum;
  operands.weight_decay = inputs.weight_decay;
  operands.bonus = inputs.bonus;
  operands.features_w = inputs.features_w;
  operands.features_b = inputs.features_b;
  return operands;
}

fast_weights::Call FastWeightsCall(const EngineCall& from,
                                   const fast_weights::StateOperands<TensorView>& states,
                                   Needs needs, CallScratch& scratch) {
  const Recipe& recipe = from.recipe();
  const Inputs& inputs = from.inputs;
  fast_weights::Call call;
  static_cast<fast_weights::StateOperands<TensorView>&>(call) = states;
  auto& operands = static_cast<fast_weights::Operands<TensorView>&>(call);
  if (needs != Needs::kRead) operands = FastWeightsOperands(recipe, inputs);
  call.q = needs != Needs::kWrite ? inputs.q : TensorView();
  const DType dtype = WideOf(call.state.dtype());
  const Constants& constants = from.prepared.For(from.dims, dtype);
  call.features_w = inputs.features_w.defined() ? Parameter(inputs.features_w, dtype, scratch)
                                                : constants.directions.view();
  call.features_b = Parameter(inputs.features_b, dtype, scratch);
  call.decay_factors = constants.decay_factors;
  call.cu_seqlens = CuSeqlens(inputs, from.dims);
  call.slots = from.slots;
  return call;
}

}  // namespace ttr
