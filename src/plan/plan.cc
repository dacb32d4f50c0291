#include "ttr/plan.h"

#include "src/plan/scan_obstacle.h"
#include "src/recipe/family.h"

namespace ttr {
namespace {

/// Why the fast-weights engine cannot run a recipe; null where it can.
const char* FastWeightsObstacle(const Recipe& recipe) {
  const Optimizer& optimizer = recipe.optimizer;
  const Family family = FamilyOf(recipe);
  struct Obstacle {
    bool present;
    const char* what;
  };
  const bool by_channel = recipe.weights.decay == Decay::kChannel;
  const bool divides = recipe.reading.normalise_sum != NormaliseSum::kNone;
  const Obstacle obstacles[] = {
      {family != Family::kHebbian && family != Family::kSgd, "its memory is not a linear map"},
      {recipe.weights.decay == Decay::kMatrix, "a decay for every entry of the memory"},
      {by_channel && recipe.weights.importance == Importance::kLog,
       "logarithmic weights beside a decay for each channel"},
      {by_channel && optimizer.momentum, "momentum beside a decay for each channel"},
      {by_channel && optimizer.weight_decay != WeightDecay::kNone,
       "weight decay beside a decay for each channel"},
      {recipe.reading.bonus && family == Family::kSgd, "a bonus of what a memory already erases"},
      {recipe.reading.bonus && recipe.weights.importance != Importance::kNone,
       "a bonus beside importance weights"},
      {recipe.reading.bonus && divides && optimizer.eta != 1,
       "a bonus under a denominator and a step size"},
  };
  for (const Obstacle& obstacle : obstacles) {
    if (obstacle.present) return obstacle.what;
  }
  return nullptr;
}

/// The same of the least-squares engine.
const char* LeastSquaresObstacle(const Recipe& recipe) {
  if (recipe.reading.normalise_sum != NormaliseSum::kNone) return "a denominator";
  if (recipe.reading.bonus) return "a bonus";
  if (recipe.function.features == FeatureMap::kCosformer) return "features of the position";
  return nullptr;
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

/// Multiply-adds count two. The leading terms only.
double Flops(const Recipe& recipe, const Dims& dims) {
  const double phi = static_cast<double>(PhiDim(recipe, dims));
  const double dv = static_cast<double>(dims.value_dim);
  const double pairs = static_cast<double>(dims.tokens) / 2;  // causal average
  const Optimizer& optimizer = recipe.optimizer;
  const double steps = static_cast<double>(optimizer.steps);
  const double memory = phi * dv;
  switch (FamilyOf(recipe)) {
    case Family::kHebbian: return 4 * memory;
    case Family::kGatedVector: return 4 * dv;
    case Family::kSgd: return 2 * memory + 4 * memory * steps;
    case Family::kLeastSquares: {
      if (optimizer.solver != Solver::kExact) {
        const double spectra = NeedsSpectra(recipe) ? 2 * phi * phi * phi : 0;
        return 4 * memory + 2 * phi * phi * (1 + steps) + spectra;
      }
      if (HasOwnSystems(recipe)) return phi * phi * phi / 3 + 5 * phi * phi + 6 * memory;
      // A factor of A and one of the tokens' system, both shared by a chunk.
      constexpr double kChunk = 64;
      return 4 * phi * phi + 6 * memory + kChunk * 3 * (phi + dv) +
             (phi * phi * phi + kChunk * kChunk * kChunk) / (3 * kChunk);
    }
    case Family::kKernelSmoother: return pairs * 2 * (phi + dv);
    case Family::kKernelRegression: return pairs * pairs * pairs / 3 + pairs * 2 * (phi + dv);
    case Family::kLocalPolynomial: {
      double monomials = 1;  // binomial(Dk + p, p)
      for (std::int64_t d = 1; d <= recipe.function.degree; ++d) {
        monomials *= (phi + static_cast<double>(d)) / static_cast<double>(d);
      }
      return pairs * (2 * (phi + dv) + monomials * monomials) +
             monomials * monomials * monomials / 3;
    }
    case Family::kNetwork: {
      double weights = 0;
      double width = phi;
      for (std::int64_t l = 1; l <= recipe.function.depth; ++l) {
        const double next = l == recipe.function.depth ? dv : static_cast<double>(dims.hidden);
        weights += width * next;
        width = next;
      }
      return 10 * weights;  // read 2, forward 2, backward 4, update 2
    }
  }
  return 0;
}

double StateNumbers(const Recipe& recipe, const Dims& dims) {
  double sum = 0;
  for (const StateSpec& spec : StateSpecs(recipe)) {
    double size = 1;
    for (const Axis axis : spec.shape) {
      switch (axis) {
        case Axis::kPhiDim: size *= static_cast<double>(PhiDim(recipe, dims)); break;
        case Axis::kKeyDim: size *= static_cast<double>(dims.key_dim); break;
        case Axis::kValueDim: size *= static_cast<double>(dims.value_dim); break;
        case Axis::kHidden: size *= static_cast<double>(dims.hidden); break;
        case Axis::kPairs: {
          const std::int64_t window = recipe.weights.window;
          const bool bounded = window > 0 && window < dims.tokens;
          size *= static_cast<double>(bounded ? window : dims.tokens);
          break;
        }
        default: break;  // sequences and heads: the size is that of one memory
      }
    }
    sum += size;
  }
  return sum;
}

}  // namespace

std::string_view Name(Engine engine) {
  switch (engine) {
    case Engine::kDefinition: return "definition";
    case Engine::kFastWeights: return "fast_weights";
    case Engine::kScan: return "scan";
    case Engine::kLeastSquares: return "least_squares";
  }
  return "";
}

Plan MakePlan(const Recipe& recipe) {
  Plan plan;
  plan.exact = recipe.optimizer.solver == Solver::kExact;
  struct Way {
    Engine engine;
    const char* obstacle;
    const char* why;
  };
  Way way;
  if (DecaysByEntry(recipe)) {
    way = {Engine::kScan, ScanObstacle(recipe),
           "a memory that decays entry by entry: a recurrence over tokens, SIMD over entries"};
  } else if (FamilyOf(recipe) == Family::kLeastSquares) {
    const char* why = "normal equations: one Cholesky factor a chunk, every prefix exactly, SIMD";
    if (NeedsSpectra(recipe)) {
      why = "normal equations: the eigenvalues of every token's system, then all steps together";
    } else if (recipe.optimizer.solver != Solver::kExact) {
      why = "normal equations: every step of the iteration for all tokens of a chunk, SIMD";
    } else if (HasOwnSystems(recipe)) {
      why = "normal equations, their ridge apart from what fades: a Cholesky factor in every lane";
    }
    way = {Engine::kLeastSquares, LeastSquaresObstacle(recipe), why};
  } else {
    way = {Engine::kFastWeights, FastWeightsObstacle(recipe),
           "a linear memory written by rank-one steps: in chunks, SIMD"};
  }
  if (way.obstacle == nullptr) {
    plan.engine = way.engine;
    plan.why = way.why;
  } else {
    plan.engine = Engine::kDefinition;
    plan.why = "no fast engine takes it yet (" + std::string(way.obstacle) +
               "): the definition runs it in double precision, right but slow";
  }
  return plan;
}

Cost EstimateCost(const Recipe& recipe, const Plan& plan, const Dims& dims) {
  // The definition computes and keeps doubles; engines float32 unless the inputs are wider.
  const double bytes = plan.engine == Engine::kDefinition ? 8 : 4;
  Cost cost;
  cost.flops_per_token = Flops(recipe, dims);
  cost.state_bytes = bytes * StateNumbers(recipe, dims);
  const double streamed = 2 * static_cast<double>(dims.key_dim + dims.value_dim);  // q, k, v, y
  const bool keeps_pairs = KeepsPairs(recipe);
  // A memory of fixed size is read and written once a token when decoding; kept pairs are read.
  cost.bytes_per_token = bytes * streamed + (keeps_pairs ? 1 : 2) * cost.state_bytes;
  return cost;
}

}  // namespace ttr
