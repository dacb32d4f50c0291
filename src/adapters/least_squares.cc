// The row of the least-squares engine: what it covers and costs, and how a call runs on it.

#include "src/engines/least_squares/least_squares.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/adapters/least_squares_memories.h"
#include "src/adapters/least_squares_options.h"
#include "src/adapters/mapped_keys.h"
#include "src/adapters/output_norm.h"
#include "src/adapters/registry.h"
#include "src/adapters/ridge_gradient.h"
#include "src/core/working_copy.h"
#include "src/engines/least_squares/gradient.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

/// Operands of the engine, from a call that has been checked.
struct Operands {
  Operands(const EngineCall& from, State& state, Needs needs, CallScratch& scratch)
      : ridge(AsksForRidge(from.recipe(), state)
                  ? RidgeOfMemories(from.recipe(), from.dims, from.inputs.ridge, scratch)
                  : TensorView()),
        memories(from.recipe(), from.dims, ridge, from.dtype, state, scratch),
        constants(from.prepared.For(from.dims, memories.b.dtype())),
        keys(from.recipe(), from.dims, Used(from.inputs, needs), constants.directions.view(),
             memories.b.dtype(), from.executor, scratch) {
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
    call.ridge = ridge;
    call.a = memories.a;
    call.b = memories.b;
    call.rss = memories.rss;
  }
  Operands(const Operands&) = delete;
  Operands& operator=(const Operands&) = delete;

  /// Bytes that they take of the scratch.
  static std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
    return CallScratch::Bytes(DType::kFloat64, {dims.heads, PhiDim(recipe, dims)}) +
           LeastSquaresMemories::ScratchBytes(recipe, dims) +
           MappedKeys::ScratchBytes(recipe, dims, threads);
  }

  TensorView ridge;
  LeastSquaresMemories memories;
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

template <class BytesOf>
std::size_t MostBytes(const Recipe& recipe, const Dims& dims, const BytesOf& bytes_of) {
  return std::max(bytes_of(LeastSquaresSizes(recipe, dims, DType::kFloat32)),
                  bytes_of(LeastSquaresSizes(recipe, dims, DType::kFloat64)));
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

class LeastSquares : public Engine {
 public:
  std::string_view name() const override { return "least_squares"; }

  bool Covers(const Recipe& recipe) const override {
    return FamilyOf(recipe) == Family::kLeastSquares && !IsRotated(recipe);
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
    return OwnBytes(recipe, dims, threads) +
           MostBytes(recipe, dims, [&](const least_squares::Sizes& sizes) {
             return least_squares::ScratchBytes(LeastSquaresOptions(recipe, dims), sizes, threads);
           });
  }

  bool HasGradients() const override { return true; }
  void Backward(const EngineCall& call, const State& initial,
                const BackwardTensors& tensors) const override;

  std::size_t BackwardScratchBytes(const Recipe& recipe, const Dims& dims,
                                   int threads) const override {
    return MostBytes(recipe, dims, [&](const least_squares::Sizes& sizes) {
      return least_squares::BackwardScratchBytes(LeastSquaresOptions(recipe, dims), sizes, threads);
    });
  }

  std::int64_t AuxiliaryNumbers(const Recipe& recipe, const Dims& dims, DType state,
                                const Pendency* pendency) const override {
    if (!LeastSquaresOptions(recipe, dims).has_step_factor()) return 0;
    return least_squares::FactorNumbers(LeastSquaresSizes(recipe, dims, state),
                                        pendency != nullptr);
  }

  bool TakesSlots(const Recipe&) const override { return true; }
  bool Defers(const Recipe& recipe, const Dims& dims, DType) const override {
    return LeastSquaresOptions(recipe, dims).can_defer();
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

 private:
  /// Bytes of scratch beside the engine's.
  static std::size_t OwnBytes(const Recipe& recipe, const Dims& dims, int threads) {
    return Operands::ScratchBytes(recipe, dims, threads) +
           OutputsBeforeNorm::ScratchBytes(recipe, dims, threads);
  }
};

/// Least squares whose rows are rotated into a triangle: other kernels for the same calls.
class RotatedLeastSquares final : public LeastSquares {
 public:
  std::string_view name() const override { return "least_squares_qr"; }
  bool Covers(const Recipe& recipe) const override { return IsRotated(recipe); }
  std::string_view How(const Recipe&) const override {
    return "every row rotated into a triangle whose square is the Gram matrix, in double, SIMD";
  }
  double FlopsPerToken(const Recipe& recipe, const Dims& dims) const override {
    const auto phi = static_cast<double>(PhiDim(recipe, dims));
    const auto dv = static_cast<double>(dims.value_dim);
    const bool apart = recipe.optimizer.ridge_kind != RidgeKind::kFading;
    return 3 * phi * phi + 6 * phi * dv + (apart ? phi * phi * (2 * phi / 3 + 2 * dv) : 0);
  }
  bool Defers(const Recipe&, const Dims&, DType) const override { return false; }
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
  CallScratch scratch(name(), call.scratch, OwnBytes(recipe, call.dims, call.executor.threads()));
  Operands operands(call, state, call.needs, scratch);
  const OutputsBeforeNorm before(recipe, outputs.y, operands.call.b.dtype(), scratch);
  operands.call.y = before.y();
  operands.call.status = outputs.status;
  operands.call.iterations = outputs.iterations;
  operands.call.residual = outputs.residual;
  operands.call.factor = call.auxiliary;
  operands.call.deferred = call.pendency != nullptr;
  least_squares::Forward(LeastSquaresOptions(recipe, call.dims), operands.call, call.executor,
                         scratch.rest());
  before.Normalise(call.executor);
  if (call.needs != Needs::kRead) operands.memories.Return();
}

void LeastSquares::Backward(const EngineCall& call, const State& initial,
                            const BackwardTensors& tensors) const {
  const Recipe& recipe = call.recipe();
  const Dims& dims = call.dims;
  State start = initial.Shared();
  CallScratch scratch;
  const Operands operands(call, start, Needs::kBoth, scratch);
  const DType dtype = operands.call.b.dtype();

  least_squares::BackwardCall engine;
  const Tensor dz = GradientBeforeNorm(call, dtype, tensors.dy, [&](const TensorView& z) {
    const Tensor a = Tensor::Copy(operands.call.a), b = Tensor::Copy(operands.call.b);
    const Tensor rss = operands.call.rss.defined() ? Tensor::Copy(operands.call.rss) : Tensor();
    least_squares::Call forward = operands.call;
    forward.a = a;
    forward.b = b;
    if (rss.defined()) forward.rss = rss;
    forward.y = z;
    least_squares::Forward(LeastSquaresOptions(recipe, dims), forward, call.executor);
  });
  engine.dy = dz.defined() ? dz.view() : tensors.dy;
  engine.forward = operands.call;
  engine.da = tensors.dstate.Get(GramEntry(recipe));
  engine.db = tensors.dstate.Get("state");
  if (IsRotated(recipe)) engine.drss = tensors.dstate.Get("state.rss");

  const bool direct = operands.keys.plain();
  Tensor dk, dq;
  if (!direct) {
    dk = Tensor(dtype, operands.call.k.shape());
    dq = Tensor(dtype, operands.call.q.shape());
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
  engine.gradients.a = tensors.dinitial.Get(GramEntry(recipe));
  engine.gradients.b = tensors.dinitial.Get("state");
  if (IsRotated(recipe)) engine.gradients.rss = tensors.dinitial.Get("state.rss");
  RidgeGradient ridge(call, initial, tensors.dinputs.ridge);
  ridge.AskFor(operands.call, engine.gradients);
  least_squares::Backward(LeastSquaresOptions(recipe, dims), engine, call.executor, call.scratch);
  keys.WriteBack();
  queries.WriteBack();
  values.WriteBack();
  if (!direct) operands.keys.Backward(dk, dq, tensors.dinputs);
  ridge.Write(engine.gradients);
}

}  // namespace

const Engine& LeastSquaresEngine() {
  static const LeastSquares engine;
  return engine;
}

const Engine& RotatedLeastSquaresEngine() {
  static const RotatedLeastSquares engine;
  return engine;
}

}  // namespace ttr
