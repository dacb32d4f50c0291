#include "tests/support/regressions.h"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>

#include "ttr/features.h"
#include "ttr/norm.h"
#include "ttr/util/random.h"

namespace ttr::test {
namespace {

using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

Vector Normals(CounterRandom& random, std::int64_t n) {
  Vector x(n);
  for (double& number : x) number = random.Normal();
  return x;
}

// T rows of keys.
Matrix MakeKeys(Keys keys, std::int64_t tokens, std::int64_t dim, CounterRandom& random) {
  Matrix rows(tokens, dim);
  const double size = 1 / std::sqrt(static_cast<double>(dim));
  const std::int64_t rank = std::max<std::int64_t>(1, dim / 3);
  Matrix basis(dim, rank);
  for (std::int64_t j = 0; j < rank; ++j) basis.col(j) = Normals(random, dim);
  std::vector<Vector> words;
  for (int w = 0; w < 40; ++w) words.push_back(Normals(random, dim));
  const Vector direction = Normals(random, dim);
  Vector state = Normals(random, dim);
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double phi = keys == Keys::kSlow ? 0.999 : 0.9;
    switch (keys) {
      case Keys::kRandom: state = Normals(random, dim); break;
      case Keys::kCorrelated:
      case Keys::kSlow:
        state = phi * state + std::sqrt(1 - phi * phi) * Normals(random, dim);
        break;
      case Keys::kLowRank: state = basis * Normals(random, rank); break;
      case Keys::kCollinear: state = random.Normal() * direction; break;
      case Keys::kRepeated: state = words[static_cast<std::size_t>(t % 5)]; break;
      case Keys::kVocabulary: {
        // Zipf's law: the logarithm of the rank is about uniform.
        const double rank_of_word = std::exp(random.Uniform() * std::log(40.0));
        state = words[static_cast<std::size_t>(rank_of_word) - 1];
        break;
      }
      case Keys::kSine:
        for (std::int64_t i = 0; i < dim; ++i) {
          state[i] = std::sin(0.1 * static_cast<double>(t - i));
        }
        break;
    }
    rows.row(t) = size * state;
  }
  return rows;
}

// Condition of A x = q: the definition sees the directions of A, scaled to a diagonal of ones, that
// are no rounding.
Condition ConditionOf(const Matrix& a, const Matrix& b) {
  Vector scale = a.diagonal();
  for (double& x : scale) x = x > 0 ? 1 / std::sqrt(x) : 0;
  const Matrix scaled = scale.asDiagonal() * a * scale.asDiagonal();
  const Vector spectrum =
      Eigen::SelfAdjointEigenSolver<Matrix>(scaled, Eigen::EigenvaluesOnly).eigenvalues();
  const double rounding = 64 * static_cast<double>(a.rows()) * spectrum.cwiseAbs().maxCoeff() *
                          std::numeric_limits<double>::epsilon();
  Condition condition;
  condition.rank = (spectrum.array() > rounding).count();

  const Eigen::SelfAdjointEigenSolver<Matrix> eigen(a);
  const Vector& lambda = eigen.eigenvalues();  // in increasing order
  const Eigen::Index dropped = lambda.size() - condition.rank;
  if (condition.rank > 0) {
    condition.number = lambda(lambda.size() - 1) / std::max(lambda(dropped), 1e-300);
  }
  const Matrix turned = eigen.eigenvectors().transpose() * b;
  double squares = 0;
  for (Eigen::Index i = dropped; i < lambda.size(); ++i) {
    squares += turned.row(i).squaredNorm() / (lambda(i) * lambda(i));
  }
  condition.memory = std::sqrt(squares);
  return condition;
}

Matrix MatrixOf(const TensorView& state, std::int64_t n, std::int64_t h) {
  Matrix matrix(state.size(2), state.size(3));
  for (std::int64_t i = 0; i < state.size(2); ++i) {
    for (std::int64_t j = 0; j < state.size(3); ++j) matrix(i, j) = state.At({n, h, i, j});
  }
  return matrix;
}

}  // namespace

std::string_view Name(Keys keys) {
  constexpr std::string_view kNames[] = {"random",    "correlated", "slow",       "low_rank",
                                         "collinear", "repeated",   "vocabulary", "sine"};
  return kNames[static_cast<int>(keys)];
}

void FillKeys(Keys keys, std::uint64_t seed, const Call& call) {
  const TensorView& k = call.inputs.k;
  for (std::int64_t b = 0; b < k.size(0); ++b) {
    for (std::int64_t h = 0; h < k.size(2); ++h) {
      CounterRandom random(seed, static_cast<std::uint64_t>(b * k.size(2) + h));
      const Matrix rows = MakeKeys(keys, k.size(1), k.size(3), random);
      for (std::int64_t t = 0; t < k.size(1); ++t) {
        for (std::int64_t i = 0; i < k.size(3); ++i) {
          k.Set({b, t, h, i}, rows(t, i));
        }
      }
    }
  }
}

std::vector<Condition> Conditions(const Call& call) {
  Recipe recipe = call.recipe;
  recipe.reading.causal = true;
  const Layer layer(recipe, kDefinition);
  const Optimizer& optimizer = call.recipe.optimizer;
  const Dims& dims = call.dims;
  std::vector<Condition> conditions;
  const auto add = [&](const State& state) {
    for (std::int64_t b = 0; b < dims.batch; ++b) {
      for (std::int64_t h = 0; h < dims.heads; ++h) {
        Matrix a = MatrixOf(state.Get("state.a"), b, h);
        const double factor = optimizer.ridge_kind == RidgeKind::kRelative ? a.norm() : 1;
        for (std::int64_t i = 0; i < a.rows() && optimizer.ridge_kind != RidgeKind::kFading; ++i) {
          const TensorView& given = call.inputs.ridge;
          double ridge = optimizer.ridge;
          if (given.defined()) ridge = given.rank() == 1 ? given.At({h}) : given.At({h, i});
          const bool one = call.recipe.function.kind == FunctionClass::kAffine && i == a.rows() - 1;
          a(i, i) += one ? 0 : factor * ridge;
        }
        conditions.push_back(ConditionOf(a, MatrixOf(state.Get("state"), b, h)));
      }
    }
  };
  const bool before = call.recipe.reading.read == Read::kBefore;
  State state = layer.InitialState(call.inputs);
  for (std::int64_t t = 0; t < dims.tokens; ++t) {
    if (before) add(state);
    layer.Memorize(TokensOf(call, t, 1), state);
    if (!before) add(state);
  }
  if (!call.recipe.reading.causal) {  // all read the last one
    const std::size_t memories = static_cast<std::size_t>(dims.batch * dims.heads);
    for (std::size_t i = conditions.size(); i-- > memories;) {
      conditions[i - memories] = conditions[i];
    }
  }
  return conditions;
}

std::vector<double> QueryLengths(const Call& call) {
  const Recipe& recipe = call.recipe;
  const Dims& dims = call.dims;
  Tensor q = Tensor::Copy(call.inputs.q, DType::kFloat64);
  if (recipe.reading.normalise_qk) ApplyNorm({RowNorm::kL2, 1e-6, {}, {}}, {q, {}}, q);
  const std::int64_t one = recipe.function.kind == FunctionClass::kAffine ? 1 : 0;
  const std::int64_t length = PhiDim(recipe, dims) - one;
  Tensor phi(DType::kFloat64, {dims.batch, dims.tokens, 1, length});
  std::vector<double> lengths(
      static_cast<std::size_t>(dims.batch * dims.tokens * dims.output_heads()));
  for (std::int64_t h = 0; h < dims.output_heads(); ++h) {
    const TensorView x = q.view().Slice(2, h * dims.query_heads / dims.output_heads(), 1);
    const std::int64_t memory = h * dims.heads / dims.output_heads();
    FeatureInputs inputs{.x = x};
    if (call.inputs.features_w.defined()) inputs.w = call.inputs.features_w.Slice(0, memory, 1);
    if (call.inputs.features_b.defined()) inputs.b = call.inputs.features_b.Slice(0, memory, 1);
    if (recipe.function.features == FeatureMap::kNone) {
      CopyInto(x, phi);
    } else {
      ApplyFeatures(recipe.function, inputs, phi);
    }
    for (std::int64_t row = 0; row < dims.batch * dims.tokens; ++row) {
      const double* const numbers = phi.as<double>().data() + row * length;
      double squares = static_cast<double>(one);
      for (std::int64_t i = 0; i < length; ++i) squares += numbers[i] * numbers[i];
      lengths[static_cast<std::size_t>(row * dims.output_heads() + h)] = std::sqrt(squares);
    }
  }
  return lengths;
}

}  // namespace ttr::test
