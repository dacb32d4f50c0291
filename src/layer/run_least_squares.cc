#include "src/layer/run_least_squares.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/engines/least_squares/least_squares.h"
#include "src/engines/rows/norm.h"
#include "src/layer/decay_factors.h"
#include "src/layer/mapped_keys.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

bool IsWide(const Inputs& inputs) {
  const TensorView& typed = inputs.v.defined() ? inputs.v : inputs.q;
  return typed.dtype() == DType::kFloat64;
}

least_squares::Iteration IterationOf(const Optimizer& optimizer) {
  least_squares::Iteration iteration;
  switch (optimizer.solver) {
    case Solver::kGradient: iteration.solver = least_squares::Solver::kGradient; break;
    case Solver::kConjugateGradient:
      iteration.solver = least_squares::Solver::kConjugateGradient;
      break;
    case Solver::kChebyshev: iteration.solver = least_squares::Solver::kChebyshev; break;
    default: iteration.solver = least_squares::Solver::kExact;
  }
  // Chebyshev's iteration has none; the plan takes no other kinds.
  if (optimizer.solver != Solver::kChebyshev) {
    if (optimizer.preconditioner == Preconditioner::kDiagonal) {
      iteration.preconditioner = least_squares::Preconditioner::kDiagonal;
    } else if (optimizer.preconditioner == Preconditioner::kBlockDiagonal) {
      iteration.preconditioner = least_squares::Preconditioner::kBlockDiagonal;
    }
  }
  iteration.steps = optimizer.steps;
  iteration.eta = optimizer.eta;
  iteration.block = optimizer.block;
  iteration.tolerance = optimizer.tolerance;
  return iteration;
}

least_squares::Options OptionsOf(const Recipe& recipe, const Dims& dims) {
  least_squares::Options options;
  options.iteration = IterationOf(recipe.optimizer);
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

/// [H, Dphi], the ridge of every memory; none on the 1 of an affine memory, nor for plain gradient
/// descent, which follows the gradient of the data alone.
Tensor RidgeOf(const Recipe& recipe, const Dims& dims, const TensorView& given) {
  const std::int64_t phi = PhiDim(recipe, dims);
  const bool affine = recipe.function.kind == FunctionClass::kAffine;
  Tensor ridge(DType::kFloat64, {dims.heads, phi});
  if (!HasRidge(recipe)) return ridge;
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

/// A and B, where the recipe carries them and where it does not: a state without entries begins
/// with no associations, and with the ridge where that is part of A.
class Memories {
 public:
  Memories(const Recipe& recipe, const Dims& dims, const TensorView& ridge, bool wide,
           State& state) {
    const std::int64_t phi = PhiDim(recipe, dims);
    const DType dtype = wide ? DType::kFloat64 : DType::kFloat32;
    if (!state.Get("state").defined()) {
      start_b_ = Tensor(dtype, {dims.states(), dims.heads, phi, dims.value_dim});
    }
    if (!state.Get("state.a").defined()) {
      start_a_ = Tensor(dtype, {dims.states(), dims.heads, phi, phi});
      if (recipe.optimizer.ridge_kind == RidgeKind::kFading) {
        for (std::int64_t n = 0; n < dims.states(); ++n) {
          for (std::int64_t h = 0; h < dims.heads; ++h) {
            for (std::int64_t i = 0; i < phi; ++i) {
              start_a_.view().Set({n, h, i, i}, ridge.At({h, i}));
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
    // Arithmetic is of one type.
    if (home_.dtype() != b.dtype()) start_a_ = Tensor::Copy(home_, b.dtype());
    a = home_.dtype() == b.dtype() ? home_ : start_a_.view();
  }

  /// To be called after the memories are written.
  void Return() const {
    if (a.data() != home_.data()) CopyInto(a, home_);
  }

  TensorView a, b;

 private:
  Tensor start_a_, start_b_;
  TensorView home_;
};

rows::NormKind KindOf(OutputNorm norm) {
  return norm == OutputNorm::kL2 ? rows::NormKind::kL2 : rows::NormKind::kRms;
}

}  // namespace

void RunLeastSquares(const Requirements& requirements, const Dims& dims, const Inputs& inputs,
                     State& state, const Outputs& outputs, Needs needs, Executor& executor,
                     std::span<std::byte> scratch) {
  const Recipe& recipe = requirements.recipe;
  const Tensor ridge = RidgeOf(recipe, dims, inputs.ridge);
  const Memories memories(recipe, dims, ridge, IsWide(inputs), state);
  Inputs used = inputs;
  if (needs == Needs::kWrite) used.q = {};
  if (needs == Needs::kRead) used.k = used.v = {};
  const MappedKeys keys(recipe, dims, used, memories.b.dtype(), executor);
  const std::vector<double> factors = DecayFactors(recipe, dims);

  least_squares::Call call;
  call.q = keys.q();
  call.k = keys.k();
  call.v = used.v;
  if (needs != Needs::kRead) {
    call.log_decay = inputs.log_decay;
    call.importance = inputs.importance;
    call.decay_factors = factors;
  }
  if (inputs.cu_seqlens.defined()) {
    call.cu_seqlens = {inputs.cu_seqlens.as<std::int64_t>(),
                       static_cast<std::size_t>(dims.sequences + 1)};
  }
  call.ridge = ridge.view();
  call.a = memories.a;
  call.b = memories.b;
  const OutputNorm norm = recipe.reading.output_norm;
  Tensor plain;  // answers before their norm
  if (needs != Needs::kWrite) {
    if (norm != OutputNorm::kNone) plain = Tensor(memories.b.dtype(), outputs.y.shape());
    call.y = plain.defined() ? plain.view() : outputs.y;
    if (outputs.status.defined()) {
      CopyInto(Tensor(DType::kInt8, outputs.status.shape()).view(), outputs.status);  // all solved
      call.status = outputs.status;
    }
  }
  least_squares::Forward(OptionsOf(recipe, dims), call, executor, scratch);
  if (plain.defined()) {
    rows::Normalise({KindOf(norm), 0, plain, {}, {}, {}}, outputs.y, executor);
  }
  if (needs != Needs::kRead) memories.Return();
}

std::size_t LeastSquaresScratchBytes(const Recipe& recipe, const Dims& dims, int threads) {
  least_squares::Sizes sizes;
  sizes.tokens = dims.tokens;
  sizes.key_dim = PhiDim(recipe, dims);
  sizes.value_dim = dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  const least_squares::Options options = OptionsOf(recipe, dims);
  std::size_t bytes = 0;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    sizes.state = dtype;
    bytes = std::max(bytes, least_squares::ScratchBytes(options, sizes, threads));
  }
  return bytes;
}

}  // namespace ttr
