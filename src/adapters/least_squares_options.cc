#include "src/adapters/least_squares_options.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

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

}  // namespace

least_squares::Options LeastSquaresOptions(const Recipe& recipe, const Dims& dims) {
  least_squares::Options options;
  options.iteration = IterationOf(recipe.optimizer, PhiDim(recipe, dims));
  switch (recipe.optimizer.ridge_kind) {
    case RidgeKind::kFading: options.ridge = least_squares::Ridge::kInState; break;
    case RidgeKind::kConstant: options.ridge = least_squares::Ridge::kConstant; break;
    case RidgeKind::kRelative: options.ridge = least_squares::Ridge::kRelative; break;
  }
  options.rotates = IsRotated(recipe);
  options.fades = recipe.weights.decay != Decay::kNone;
  options.read_before = recipe.reading.read == Read::kBefore;
  options.causal = recipe.reading.causal;
  options.scale = recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(dims.key_dim))
                                             : recipe.reading.scale;
  return options;
}

least_squares::Sizes LeastSquaresSizes(const Recipe& recipe, const Dims& dims, DType state) {
  least_squares::Sizes sizes;
  sizes.tokens = dims.tokens;
  sizes.key_dim = PhiDim(recipe, dims);
  sizes.value_dim = dims.value_dim;
  sizes.queries = std::max<std::int64_t>(1, dims.query_heads / dims.heads);
  sizes.state = state;
  return sizes;
}

}  // namespace ttr
