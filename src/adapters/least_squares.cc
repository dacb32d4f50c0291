// From a recipe to the options of the least-squares engine.

#include "src/engines/least_squares/least_squares.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "src/adapters/mapped_keys.h"
#include "src/adapters/output_norm.h"
#include "src/adapters/registry.h"
#include "src/core/working_copy.h"
#include "src/engines/least_squares/gradient.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

least_squares::Preconditioner PreconditionerOf(Preconditioner preconditioner) {
  switch (preconditioner) {
    case Preconditioner::kNone: break;
    case Preconditioner::kDiagonal: return least_squares::Preconditioner::kDiagonal;
    case Preconditioner::kBlockDiagonal: return least_squares::Preconditioner::kBlockDiagonal;
    case Preconditioner::kLowRank: return least_squares::Preconditioner::kLowRank;
    case Preconditioner::kChunkFactor: return least_squares::Preconditioner::kChunkFactor;
  }
  return least_squares::Preconditioner::kNone;
}

/// The size of steps in the engine's unit: P of blocks has no eigenvalue above their number.
double StepSizeOf(const Optimizer& optimizer, std::int64_t key_dim) {
  if (optimizer.eta_kind != EtaKind::kRelative) return optimizer.eta;
  switch (optimizer.preconditioner) {
    case Preconditioner::kDiagonal: return optimizer.eta / static_cast<double>(key_dim);
    case Preconditioner::kBlockDiagonal: {
      const std::int64_t blocks = (key_dim + optimizer.block - 1) / optimizer.block;
      return optimizer.eta / static_cast<double>(blocks);
    }
    default: return optimizer.eta;
  }
}

least_squares::Iteration IterationOf(const Optimizer& optimizer, std::int64_t key_dim) {
  least_squares::Iteration iteration;
  switch (optimizer.solver) {
    case Solver::kGradient: iteration.solver = least_squares::Solver::kGradient; break;
    case Solver::kConjugateGradient:
      iteration.solver = least_squares::Solver::kConjugateGradient;
      break;
    case Solver::kChebyshev: iteration.solver = least_squares::Solver::kChebyshev; break;
    default: iteration.solver = least_squares::Solver::kExact;
  }
  if (optimizer.solver == Solver::kGradient || optimizer.solver == Solver::kConjugateGradient) {
    iteration.preconditioner = PreconditionerOf(optimizer.preconditioner);
  }
  iteration.steps = optimizer.steps;
  iteration.eta = StepSizeOf(optimizer, key_dim);
  iteration.given = optimizer.eta_kind == EtaKind::kInput;
  iteration.momentum = optimizer.momentum;
  iteration.relative =
      optimizer.eta_kind == EtaKind::kRelative && optimizer.preconditioner == Preconditioner::kNone;
  iteration.block = optimizer.block;
  iteration.rank = optimizer.rank;
  iteration.tolerance = optimizer.tolerance;
  return iteration;
}

least_squares::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  least_squares::Options options;
  options.iteration = IterationOf(recipe.optimizer, PhiDim(recipe, dims));
  switch (recipe.optimizer.ridge_kind) {
    case RidgeKind::kFading: options.ridge = least_squares::Ridge::kInState; break;
    case RidgeKind::kConstant: options.ridge = least_squares::Ridge::kConstant; break;
    case RidgeKind::kRelative: options.ridge = least_squares::Ridge::kRelative; break;
  }
  options.fades = recipe.weights.decay != Decay::kNone;
  options.read_before = recipe.reading.read == Read::kBefore;
  options.causal = recipe.reading.causal;
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  return options;
}

/// [H, Dphi], the ridge of every memory; none on the 1 of an affine memory.
Tensor RidgeOf(const Recipe& recipe, const Dims& dims, const TensorView& given) {
  const std::int64_t phi = PhiDim(recipe, dims);
  const bool affine = recipe.function.kind == FunctionClass::kAffine;
  Tensor ridge(DType::kFloat64, {dims.heads, phi});
  double* numbers = ridge.as<double>().data();
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    for (std::int64_t i = 0; i < phi - (affine ? 1 : 0); ++i) {
      double& number = numbers[h * phi + i];
      number = recipe.optimizer.ridge;
      if (given.defined()) number = given.rank() == 1 ? given.At({h}) : given.At({h, i});
    }
  }
  return ridge;
}

/// Is a ridge to be asked for? Not where it is part of an A that is given.
bool AsksForRidge(const Recipe& recipe, const State& state) {
  return recipe.optimizer.solver != Solver::kExact ||
         recipe.optimizer.ridge_kind != RidgeKind::kFading || !state.Get("state.a").defined();
}

/// A and B, where the recipe carries them and where it does not: a state without entries begins
/// with no associations, and with the ridge where that is part of A.
class Memories {
 public:
  Memories(const Recipe& recipe, const Dims& dims, const Tensor& ridge, DType dtype, State& state) {
    const std::int64_t phi = PhiDim(recipe, dims);
    if (!state.Get("state").defined()) {
      start_b_ = Tensor(dtype, {dims.states(), dims.heads, phi, dims.value_dim});
    }
    if (!state.Get("state.a").defined()) {
      start_a_ = Tensor(dtype, {dims.states(), dims.heads, phi, phi});
      if (recipe.optimizer.ridge_kind == RidgeKind::kFading) {
        for (std::int64_t n = 0; n < dims.states(); ++n) {
          for (std::int64_t h = 0; h < dims.heads; ++h) {
            for (std::int64_t i = 0; i < phi; ++i) {
              start_a_.view().Set({n, h, i, i}, ridge.view().At({h, i}));
            }
          }
        }
      }
    }
    if (recipe.reading.causal) {
      if (start_b_.defined()) state.Set("state", std::move(start_b_));
      if (start_a_.defined()) state.Set("state.a", std::move(start_a_));
      b = state.Get("state");
      home_ = state.Get("state.a");
    } else {
      b = start_b_.view();
      home_ = start_a_.view();
    }
    // Arithmetic is in one type: A gets that of B.
    if (home_.dtype() != b.dtype()) start_a_ = Tensor::Copy(home_, b.dtype());
    a = home_.dtype() == b.dtype() ? home_ : start_a_.view();
  }

  /// Copies A back into the caller's tensor; called after the memories are written.
  void Return() const {
    if (a.data() != home_.data()) CopyInto(a, home_);
  }

  TensorView a, b;

 private:
  Tensor start_a_, start_b_;
  TensorView home_;
};

least_squares::Sizes SizesOf(const Recipe& recipe, const Dims& dims, DType state) {
  least_squares::Sizes sizes;
  sizes.tokens = dims.tokens;
  sizes.key_dim = PhiDim(recipe, dims);
  sizes.value_dim = dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.state = state;
  return sizes;
}

/// Operands of the engine, from a call that has been checked.
struct Words {
  Words(const EngineCall& from, State& state, Needs needs)
      : ridge(AsksForRidge(from.recipe(), state)
                  ? RidgeOf(from.recipe(), from.dims, from.inputs.ridge)
                  : Tensor()),
        memories(from.recipe(), from.dims, ridge, from.dtype, state),
        constants(from.prepared.For(from.dims, memories.b.dtype())),
        keys(from.recipe(), from.dims, Used(from.inputs, needs), constants.directions.view(),
             memories.b.dtype(), from.executor) {
    const Inputs& inputs = from.inputs;
    call.q = keys.q();
    call.k = keys.k();
    if (needs != Needs::kRead) {
      call.v = inputs.v;
      call.log_decay = inputs.log_decay;
      call.importance = inputs.importance;
      call.decay_factors = constants.decay_factors;
    }
    if (needs != Needs::kWrite) {
      call.step = inputs.step;
      call.momentum = inputs.momentum;
    }
    call.cu_seqlens = CuSeqlens(inputs, from.dims);
    call.slots = from.slots;
    if (ridge.defined()) call.ridge = ridge.view();
    call.a = memories.a;
    call.b = memories.b;
  }
  Words(const Words&) = delete;
  Words& operator=(const Words&) = delete;

  Tensor ridge;
  Memories memories;
  const Constants& constants;
  MappedKeys keys;
  least_squares::Call call;

 private:
  static Inputs Used(const Inputs& inputs, Needs needs) {
    Inputs used = inputs;
    if (needs == Needs::kWrite) used.q = {};
    if (needs == Needs::kRead) used.k = {};
    return used;
  }
};

/// The gradient of the input `ridge`, [H] or [H, Dk], from those of every sequence's diagonal.
void ReturnRidge(const Dims& dims, const Tensor& diagonal, const TensorView& dridge) {
  const bool one = dridge.rank() == 1;
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    double all = 0;
    for (std::int64_t i = 0; i < (one ? diagonal.shape()[2] : dims.key_dim); ++i) {
      double sum = 0;
      for (std::int64_t n = 0; n < dims.states(); ++n) sum += diagonal.view().At({n, h, i});
      all += sum;
      if (!one) dridge.Set({h, i}, sum);
    }
    if (one) dridge.Set({h}, all);
  }
}

template <class BytesOf>
std::size_t MostBytes(const Recipe& recipe, const Dims& dims, const BytesOf& bytes_of) {
  return std::max(bytes_of(SizesOf(recipe, dims, DType::kFloat32)),
                  bytes_of(SizesOf(recipe, dims, DType::kFloat64)));
}

/// Has every token a system of its own, which no chunk shares?
bool HasOwnSystems(const Recipe& recipe) {
  const RidgeKind kind = recipe.optimizer.ridge_kind;
  return kind == RidgeKind::kRelative ||
         (kind == RidgeKind::kConstant && recipe.weights.decay != Decay::kNone);
}

/// Does an iteration take the eigenvalues of every token's system?
bool NeedsSpectra(const Recipe& recipe) {
  const Optimizer& optimizer = recipe.optimizer;
  switch (optimizer.solver) {
    case Solver::kChebyshev:
      return optimizer.ridge_kind == RidgeKind::kFading && recipe.weights.decay != Decay::kNone;
    case Solver::kGradient:
    case Solver::kConjugateGradient: return optimizer.preconditioner == Preconditioner::kLowRank;
    default: return false;
  }
}

class LeastSquares final : public Engine {
 public:
  std::string_view name() const override { return "least_squares"; }

  bool Covers(const Recipe& recipe) const override {
    return FamilyOf(recipe) == Family::kLeastSquares;
  }
  const char* Obstacle(const Recipe& recipe) const override {
    if (recipe.reading.normalise_sum != NormaliseSum::kNone) return "a denominator";
    if (recipe.reading.bonus) return "a bonus";
    if (recipe.function.features == FeatureMap::kCosformer) return "features of the position";
    return nullptr;
  }
  std::string_view How(const Recipe& recipe) const override {
    if (NeedsSpectra(recipe)) {
      return "normal equations: the eigenvalues of every token's system, then all steps together";
    }
    if (recipe.optimizer.solver != Solver::kExact) {
      return "normal equations: every step of the iteration for all tokens of a chunk, SIMD";
    }
    if (HasOwnSystems(recipe)) {
      return "normal equations, their ridge apart from what fades: a Cholesky factor in every lane";
    }
    return "normal equations: one Cholesky factor a chunk, every prefix exactly, SIMD";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override;

  void Forward(const EngineCall& call, State& state, const Outputs& outputs) const override;

  std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) const override {
    return MostBytes(recipe, dims, [&](const least_squares::Sizes& sizes) {
      return least_squares::ScratchBytes(OptionsOf(recipe, dims), sizes, threads);
    });
  }

  bool HasGradients() const override { return true; }
  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override;

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return MostBytes(recipe, dims, [&](const least_squares::Sizes& sizes) {
      return least_squares::BackwardScratchBytes(OptionsOf(recipe, dims), sizes, threads);
    });
  }

  std::int64_t AuxiliaryNumbers(const Recipe& recipe, const Dims& dims, DType state,
                                const Pendency* pendency) const override {
    if (!OptionsOf(recipe, dims).has_step_factor()) return 0;
    return least_squares::FactorNumbers(SizesOf(recipe, dims, state), pendency != nullptr);
  }

  bool TakesSlots(const Recipe&) const override { return true; }
  bool Defers(const Recipe& recipe, const Dims& dims, DType) const override {
    return OptionsOf(recipe, dims).can_defer();
  }

  void Flush(const Recipe&, State& state, const TensorView& auxiliary, const Pendency&,
             Executor& executor) const override {
    least_squares::Call call;
    call.a = state.Get("state.a");
    call.b = state.Get("state");
    call.factor = auxiliary;
    call.deferred = true;
    least_squares::Flush(call, executor);
  }
};

double LeastSquares::FlopsPerToken(const Recipe& recipe, const Dims& dims) const {
  const auto phi = static_cast<double>(PhiDim(recipe, dims));
  const auto dv = static_cast<double>(dims.value_dim);
  const double memory = phi * dv;
  if (recipe.optimizer.solver != Solver::kExact) {
    const double spectra = NeedsSpectra(recipe) ? 2 * phi * phi * phi : 0;
    const auto steps = static_cast<double>(recipe.optimizer.steps);
    return 4 * memory + 2 * phi * phi * (1 + steps) + spectra;
  }
  if (HasOwnSystems(recipe)) return phi * phi * phi / 3 + 5 * phi * phi + 6 * memory;
  // A factor of A and one of the tokens' system, both shared by a chunk.
  constexpr double kChunk = 64;
  return 4 * phi * phi + 6 * memory + kChunk * 3 * (phi + dv) +
         (phi * phi * phi + kChunk * kChunk * kChunk) / (3 * kChunk);
}

void LeastSquares::Forward(const EngineCall& call, State& state, const Outputs& outputs) const {
  const Recipe& recipe = call.recipe();
  Words words(call, state, call.needs);
  std::optional<OutputsBeforeNorm> before;
  if (call.needs != Needs::kWrite) {
    words.call.y = before.emplace(recipe, outputs, words.call.b.dtype()).y();
    words.call.status = outputs.status;
    words.call.iterations = outputs.iterations;
    words.call.residual = outputs.residual;
  }
  words.call.factor = call.auxiliary;
  words.call.deferred = call.pendency != nullptr;
  least_squares::Forward(OptionsOf(recipe, call.dims), words.call, call.executor, call.scratch);
  if (before) before->Normalise(call.executor);
  if (call.needs != Needs::kRead) words.memories.Return();
}

void LeastSquares::Backward(const EngineCall& call, const State& initial,
                            const BackwardTensors& tensors) const {
  const Recipe& recipe = call.recipe();
  const Dims& dims = call.dims;
  State start = initial.Shared();
  Words words(call, start, Needs::kBoth);
  const DType dtype = words.call.b.dtype();

  least_squares::BackwardCall engine;
  const Tensor dz = GradientBeforeNorm(call, dtype, tensors.dy, [&](const TensorView& z) {
    const Tensor a = Tensor::Copy(words.call.a), b = Tensor::Copy(words.call.b);
    least_squares::Call forward = words.call;
    forward.a = a;
    forward.b = b;
    forward.y = z;
    least_squares::Forward(OptionsOf(recipe, dims), forward, call.executor);
  });
  engine.dy = dz.defined() ? dz.view() : tensors.dy;
  engine.forward = words.call;
  engine.da = tensors.dstate.Get("state.a");
  engine.db = tensors.dstate.Get("state");

  const bool direct = words.keys.plain();
  Tensor dk, dq;
  if (!direct) {
    dk = Tensor(dtype, words.call.k.shape());
    dq = Tensor(dtype, words.call.q.shape());
  }
  const std::int64_t answers = std::max(dims.heads, dims.query_heads);
  const WorkingCopy keys =
      WorkingCopy::OfHeads(direct ? tensors.dinputs.k : dk.view(), dims.heads, dtype);
  const WorkingCopy queries =
      WorkingCopy::OfHeads(direct ? tensors.dinputs.q : dq.view(), answers, dtype);
  const WorkingCopy values = WorkingCopy::OfHeads(tensors.dinputs.v, dims.heads, dtype);
  engine.gradients.q = queries.view();
  engine.gradients.k = keys.view();
  engine.gradients.v = values.view();
  engine.gradients.log_decay = tensors.dinputs.log_decay;
  engine.gradients.importance = tensors.dinputs.importance;
  engine.gradients.step = tensors.dinputs.step;
  engine.gradients.momentum = tensors.dinputs.momentum;
  engine.gradients.a = tensors.dinitial.Get("state.a");
  engine.gradients.b = tensors.dinitial.Get("state");
  const std::int64_t phi = PhiDim(recipe, dims);
  Tensor diagonal, start_gradient;
  const bool starts_with_ridge =
      recipe.optimizer.ridge_kind == RidgeKind::kFading && !initial.Get("state.a").defined();
  if (tensors.dinputs.ridge.defined()) {
    diagonal = Tensor(DType::kFloat64, {dims.states(), dims.heads, phi});
    if (recipe.optimizer.ridge_kind != RidgeKind::kFading) engine.gradients.ridge = diagonal;
    if (starts_with_ridge && !engine.gradients.a.defined()) {  // not causal: no state, yet a start
      start_gradient = Tensor(dtype, words.call.a.shape());
      engine.gradients.a = start_gradient;
    }
  }
  least_squares::Backward(OptionsOf(recipe, dims), engine, call.executor, call.scratch);
  keys.WriteBack();
  queries.WriteBack();
  values.WriteBack();
  if (!direct) words.keys.Backward(dk, dq, tensors.dinputs);
  if (!tensors.dinputs.ridge.defined()) return;
  const std::int64_t ridged = phi - (recipe.function.kind == FunctionClass::kAffine ? 1 : 0);
  for (std::int64_t n = 0; n < dims.states(); ++n) {
    for (std::int64_t h = 0; h < dims.heads; ++h) {
      for (std::int64_t i = 0; i < phi; ++i) {
        if (starts_with_ridge) diagonal.view().Set({n, h, i}, engine.gradients.a.At({n, h, i, i}));
        if (i >= ridged) diagonal.view().Set({n, h, i}, 0);
      }
    }
  }
  ReturnRidge(dims, diagonal, tensors.dinputs.ridge);
}

}  // namespace

const Engine& LeastSquaresEngine() {
  static const LeastSquares engine;
  return engine;
}

}  // namespace ttr
