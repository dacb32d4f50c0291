#include "tools/doctor_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/data/random_inputs.h"
#include "tools/tensor_io.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr::tools {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Eigenvalues of a symmetric matrix [n, n] by Jacobi's rotations.
std::vector<double> Eigenvalues(std::vector<double> a, std::size_t n) {
  constexpr int kSweeps = 12;  // convergence is quadratic: eight are enough for n = 25
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    for (std::size_t p = 0; p < n; ++p) {
      for (std::size_t q = p + 1; q < n; ++q) {
        const double beside = a[p * n + q];
        if (beside == 0) continue;
        const double theta = (a[q * n + q] - a[p * n + p]) / (2 * beside);
        const double t = std::copysign(1 / (std::abs(theta) + std::hypot(theta, 1)), theta);
        const double c = 1 / std::hypot(t, 1);
        const double s = t * c;
        for (std::size_t i = 0; i < n; ++i) {
          const double x = a[i * n + p];
          const double y = a[i * n + q];
          a[i * n + p] = c * x - s * y;
          a[i * n + q] = s * x + c * y;
        }
        for (std::size_t i = 0; i < n; ++i) {
          const double x = a[p * n + i];
          const double y = a[q * n + i];
          a[p * n + i] = c * x - s * y;
          a[q * n + i] = s * x + c * y;
        }
      }
    }
  }
  std::vector<double> eigenvalues(n);
  for (std::size_t i = 0; i < n; ++i) eigenvalues[i] = a[i * n + i];
  return eigenvalues;
}

// Condition of one system, scaled to a diagonal of ones.
double Condition(std::vector<double> a, std::size_t n) {
  std::vector<double> scale(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!(a[i * n + i] > 0)) return kInfinity;
    scale[i] = 1 / std::sqrt(a[i * n + i]);
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) a[i * n + j] *= scale[i] * scale[j];
  }
  const std::vector<double> eigenvalues = Eigenvalues(std::move(a), n);
  const auto [low, high] = std::minmax_element(eigenvalues.begin(), eigenvalues.end());
  return *low > 0 ? *high / *low : kInfinity;
}

// Condition of A + R of one memory; `states` is [B, H, D, D]. A fading ridge is part of A, and the
// 1 of an affine key has none.
double SystemCondition(const Recipe& recipe, const TensorView& states, std::int64_t b,
                       std::int64_t h) {
  const Optimizer& optimizer = recipe.optimizer;
  const auto n = static_cast<std::size_t>(states.size(2));
  std::vector<double> system(n * n);
  double squares = 0;
  for (std::size_t i = 0; i < n * n; ++i) {
    system[i] =
        states.At({b, h, static_cast<std::int64_t>(i / n), static_cast<std::int64_t>(i % n)});
    squares += system[i] * system[i];
  }
  if (optimizer.ridge_kind != RidgeKind::kFading) {
    const bool relative = optimizer.ridge_kind == RidgeKind::kRelative;
    const bool affine = recipe.function.kind == FunctionClass::kAffine;
    const double ridge = optimizer.ridge * (relative ? std::sqrt(squares) : 1);
    for (std::size_t i = 0; i + (affine ? 1 : 0) < n; ++i) system[i * n + i] += ridge;
  }
  return Condition(std::move(system), n);
}

// Is the regression in a kernel's space?
bool SolvesForKernel(const Recipe& recipe) {
  return recipe.function.kind == FunctionClass::kKernel &&
         recipe.optimizer.solver == Solver::kExact;
}

// k(a, b), of kernels that a regression has.
double KernelOf(const Recipe& recipe, std::span<const double> a, std::span<const double> b) {
  double dot = 0, squares = 0;
  for (std::size_t c = 0; c < a.size(); ++c) {
    dot += a[c] * b[c];
    squares += (a[c] - b[c]) * (a[c] - b[c]);
  }
  dot *= recipe.reading.scale_rsqrt ? 1 / std::sqrt(static_cast<double>(a.size()))
                                    : recipe.reading.scale;
  switch (recipe.similarity.kernel) {
    case Kernel::kGaussian: return std::exp(-squares / recipe.similarity.bandwidth);
    case Kernel::kLaplace: return std::exp(-std::sqrt(squares) / recipe.similarity.bandwidth);
    case Kernel::kLinear: return dot;
    default: return std::exp(dot);
  }
}

// Condition of k(K, K) + ridge I of one memory: keys of its pairs, the last ones that a window has,
// or of its dictionary.
double KernelCondition(const Recipe& recipe, const State& state, std::int64_t pairs, std::int64_t b,
                       std::int64_t h) {
  const TensorView dictionary = state.Get("state.keys");
  const TensorView keys = dictionary.defined() ? dictionary : state.Get("state.k");
  std::int64_t first = 0;
  if (dictionary.defined()) {
    pairs = static_cast<std::int64_t>(state.Get("state.count").At({b, h}));
  } else if (recipe.weights.window > 0) {
    const auto held = static_cast<std::int64_t>(state.Get("state.length").At({b, h}));
    pairs = std::min(pairs, recipe.weights.window);
    first = held - pairs;
  }
  const auto n = static_cast<std::size_t>(pairs), width = static_cast<std::size_t>(keys.size(3));
  std::vector<double> rows(n * width), system(n * n);
  for (std::size_t i = 0; i < n * width; ++i) {
    const auto key = first + static_cast<std::int64_t>(i / width);
    const auto channel = static_cast<std::int64_t>(i % width);
    rows[i] = dictionary.defined() ? keys.At({b, h, key, channel}) : keys.At({b, key, h, channel});
  }
  const auto row = [&](std::size_t i) {
    return std::span<const double>(rows).subspan(i * width, width);
  };
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) system[i * n + j] = KernelOf(recipe, row(i), row(j));
    system[i * n + i] += recipe.optimizer.ridge;
  }
  return Condition(std::move(system), n);
}

// Plain gradient steps multiply by A and solve nothing.
bool Solves(const Recipe& recipe) {
  if (SolvesForKernel(recipe)) return true;
  const auto specs = StateSpecs(recipe);
  const bool plain_steps = recipe.optimizer.solver == Solver::kGradient &&
                           recipe.optimizer.preconditioner == Preconditioner::kNone;
  return !plain_steps && std::any_of(specs.begin(), specs.end(),
                                     [](const StateSpec& spec) { return spec.name == "state.a"; });
}

void Scale(experiments::RandomInputs& random, std::string_view name, double factor) {
  const auto found = random.tensors.find(std::string(name));
  if (found == random.tensors.end()) return;
  const Tensor& tensor = found->second;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = LoadElement(tensor.data(), tensor.dtype(), i);
    StoreElement(tensor.data(), tensor.dtype(), i, factor * x);
  }
}

Tensor Outputs(const Layer& layer, const Inputs& inputs, const Dims& dims) {
  Tensor y(DType::kFloat64, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim});
  State state;
  layer.Forward(inputs, state, {.y = y.view(), .status = {}});
  return y;
}

// [B, T, H], from the definition's state after every token.
std::vector<double> Conditions(Recipe recipe, const Inputs& inputs, const Dims& dims) {
  std::vector<double> conditions(static_cast<std::size_t>(dims.batch * dims.tokens * dims.heads),
                                 1);
  // A recipe that reads the whole sequence at once has one system for all of it: the last one of
  // its causal twin.
  const bool causal = recipe.reading.causal;
  recipe.reading.causal = true;
  if (!Solves(recipe)) return conditions;
  const Layer definition(recipe, kDefinition);
  State state;
  Tensor y(DType::kFloat64, {dims.batch, 1, dims.output_heads(), dims.value_dim});
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t h) -> double& {
    return conditions[static_cast<std::size_t>((b * dims.tokens + t) * dims.heads + h)];
  };
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    Tensor bounds;
    const Inputs token = SliceTokens(recipe, inputs, t, 1, bounds);
    definition.Step(token, state, {.y = y.view(), .status = {}});
    if (!causal && t + 1 < dims.tokens) continue;
    const TensorView a = state.Get("state.a");
    for (std::int64_t b = 0; b < dims.batch; ++b) {
      for (std::int64_t h = 0; h < dims.heads; ++h) {
        at(b, t, h) = SolvesForKernel(recipe) ? KernelCondition(recipe, state, t + 1, b, h)
                                              : SystemCondition(recipe, a, b, h);
      }
    }
  }
  for (std::int64_t b = 0; !causal && b < dims.batch; ++b) {
    for (std::int64_t t = 0; t + 1 < dims.tokens; ++t) {
      for (std::int64_t h = 0; h < dims.heads; ++h) at(b, t, h) = at(b, dims.tokens - 1, h);
    }
  }
  return conditions;
}

bool IsPolynomial(const Recipe& recipe) {
  return recipe.function.kind == FunctionClass::kPolynomial;
}

// Does what roundings do depend on the data, with no system whose condition would say how? So it is
// of fits around queries, of networks, whose training goes on from its own roundings, and of a
// curvature that drops directions nearly as long as those it keeps.
bool IsSensitive(const Recipe& recipe) {
  const bool drops_directions = recipe.optimizer.solver == Solver::kSgd &&
                                recipe.optimizer.preconditioner == Preconditioner::kLowRank;
  return drops_directions || IsPolynomial(recipe) ||
         recipe.function.kind == FunctionClass::kNetwork;
}

// [B, T, H]: how many times as much as its inputs an output moves. Moves in drawn directions add up
// like their squares, roundings of sums of products are many more; kRoom is for both.
std::vector<double> Sensitivities(const Recipe& recipe, const Inputs& inputs, const Dims& dims) {
  constexpr double kMove = 1e-9, kRoom = 8;
  const Layer definition(recipe, kDefinition);
  const Tensor y = Outputs(definition, inputs, dims);
  std::vector<double> conditions(static_cast<std::size_t>(dims.batch * dims.tokens * dims.heads),
                                 1);
  const auto width = static_cast<std::size_t>(dims.value_dim);
  for (const std::uint64_t seed : {1, 2, 3}) {
    CounterRandom random(seed, 0);
    std::vector<Tensor> copies;
    Inputs moved = inputs;
    for (TensorView* view : {&moved.q, &moved.k, &moved.v}) {
      copies.push_back(Tensor::Copy(*view, DType::kFloat64));
      for (double& x : copies.back().as<double>()) x *= 1 + kMove * (2 * random.Uniform() - 1);
      *view = copies.back().view();
    }
    const Tensor other = Outputs(definition, moved, dims);
    for (std::size_t i = 0; i < conditions.size(); ++i) {
      double size = 0, distance = 0;
      for (std::size_t j = i * width; j < (i + 1) * width; ++j) {
        size = std::max(size, std::abs(y.as<double>()[j]));
        distance = std::max(distance, std::abs(other.as<double>()[j] - y.as<double>()[j]));
      }
      conditions[i] = std::max(conditions[i], kRoom * distance / (kMove * size));
    }
  }
  return conditions;
}

}  // namespace

Comparison Compare(Recipe recipe, DType dtype) {
  Dims dims;
  dims.batch = 2;
  dims.tokens = 67;  // fills no chunk
  // Some mini-batches end, also of those that are longer than the sequence.
  recipe.optimizer.mini_batch = std::min<std::int64_t>(recipe.optimizer.mini_batch, 16);
  // Windows move on, and the system of a window's pairs has fewer of them than keys have channels.
  recipe.weights.window = std::min<std::int64_t>(recipe.weights.window, 16);
  dims.heads = dims.query_heads = dims.key_heads = dims.value_heads = 2;
  dims.key_dim = 24;
  dims.value_dim = 40;
  // The definition's systems are as large as the monomials are many.
  if (IsPolynomial(recipe) && recipe.function.degree > 1) dims.key_dim = 4;
  if (recipe.function.residual) dims.value_dim = dims.key_dim;
  if (recipe.function.kind == FunctionClass::kNetwork) {
    dims.hidden = recipe.function.expansion * dims.key_dim;
  }
  experiments::RandomInputs random = experiments::MakeRandomInputs(recipe, dims, dtype, /*seed=*/1);
  if (Solves(recipe)) {
    Scale(random, "log_decay", 1. / 16);  // a pair counts half as much some 30 tokens later
    if (recipe.function.features != FeatureMap::kNone || SolvesForKernel(recipe)) {
      // Features of short keys are nearly all alike, and so are kernels.
      const double factor = SolvesForKernel(recipe) ? 3 : 10;
      Scale(random, "k", factor);
      Scale(random, "q", factor);
    }
  }
  return {.computed = Outputs(Layer(recipe), random.inputs, dims),
          .defined = Outputs(Layer(recipe, kDefinition), random.inputs, dims),
          .conditions = IsSensitive(recipe) ? Sensitivities(recipe, random.inputs, dims)
                                            : Conditions(recipe, random.inputs, dims),
          .eps = dtype == DType::kFloat64
                     ? std::numeric_limits<double>::epsilon()
                     : static_cast<double>(std::numeric_limits<float>::epsilon())};
}

bool Judgement::right() const { return error <= bound && 4 * judged >= outputs; }

Judgement Judge(const Comparison& comparison) {
  const std::span<const double> computed = comparison.computed.as<double>();
  const std::span<const double> defined = comparison.defined.as<double>();
  Judgement judgement{.outputs = static_cast<std::int64_t>(comparison.conditions.size())};
  const std::size_t width = defined.size() / comparison.conditions.size();
  double nearest = -1;
  for (std::size_t i = 0; i < comparison.conditions.size(); ++i) {
    const double condition = comparison.conditions[i];
    const double bound = kRoundings * comparison.eps * condition;
    if (!(bound <= kLeastDigits)) continue;
    double size = 0;
    double error = 0;
    for (std::size_t j = i * width; j < (i + 1) * width; ++j) {
      const double difference = std::abs(computed[j] - defined[j]);
      error = difference <= error ? error : difference;  // a NaN stays
      size = std::max(size, std::abs(defined[j]));
    }
    error = error == 0 ? 0 : error / size;
    ++judgement.judged;
    judgement.condition = std::max(judgement.condition, condition);
    if (std::isnan(judgement.error) || error / bound <= nearest) continue;
    nearest = error / bound;
    judgement.error = error;
    judgement.bound = bound;
  }
  return judgement;
}

bool BFloat16ProductsAreExact() {
  const Layer layer(ParseRecipe("deltanet"));
  Dims dims;
  dims.tokens = 67;  // fills no chunk, dims no block
  dims.heads = dims.query_heads = dims.key_heads = dims.value_heads = 2;
  dims.key_dim = 72;
  dims.value_dim = 40;
  CounterRandom random(/*seed=*/1, 0);
  const auto numbers = [&](std::int64_t width, const auto& number) {
    Tensor x(DType::kBFloat16, {1, dims.tokens, dims.heads, width});
    for (std::int64_t i = 0; i < x.elements(); ++i) StoreElement(x.data(), x.dtype(), i, number(i));
    return x;
  };
  const auto small = [&](std::int64_t) { return static_cast<double>(random.Bits() % 5) - 2; };
  std::int64_t channel = 0;
  const auto unit = [&](std::int64_t i) {
    const std::int64_t at = i % dims.key_dim;
    if (at == 0) channel = static_cast<std::int64_t>(random.Bits() % 8) * 9;
    return at == channel ? 1. : 0.;
  };
  const Tensor q = numbers(dims.key_dim, small), k = numbers(dims.key_dim, unit);
  const Tensor v = numbers(dims.value_dim, small);
  const Tensor steps(DType::kFloat32, {1, dims.tokens, dims.heads});
  std::ranges::fill(steps.as<float>(), 1.f);
  const Inputs inputs{.q = q, .k = k, .v = v, .step = steps};
  const auto outputs = [&](const CallOptions& options) {
    Tensor y(DType::kFloat32, {1, dims.tokens, dims.heads, dims.value_dim});
    State state;
    layer.Forward(inputs, state, {.y = y.view(), .status = {}}, options);
    return y;
  };
  const Tensor wide = outputs({}), narrow = outputs({.bfloat16_products = true});
  return std::ranges::equal(wide.as<float>(), narrow.as<float>());
}

}  // namespace ttr::tools
