#include "tests/experiments/paper_equations.h"

#include <cmath>
#include <limits>

namespace ttr::experiments {
namespace {

using Eigen::Index;
using Matrix = Eigen::MatrixXd;
using Vector = Eigen::VectorXd;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A small gradient over its own root: digits that a difference of values lost come back.
constexpr double kAdaptedCondition = 1000;

Answer Read(const Matrix& m, const Vector& q, double condition = 1) {
  return {m * q, condition * m.norm() * q.norm()};
}

double Condition(const Matrix& x) {
  const Vector s = Eigen::JacobiSVD<Matrix>(x).singularValues();
  return s.minCoeff() > 0 ? s.maxCoeff() / s.minCoeff() : kInfinity;
}

// M_t of a recurrence: `write` takes M' and the number of a token.
template <class Write>
Matrix Written(const Pairs& p, Index t, Index key_dim, Write write) {
  Matrix m = Matrix::Zero(p.v.cols(), key_dim);
  for (Index i = 0; i <= t; ++i) m = write(m, i);
  return m;
}

Vector Key(const Pairs& p, Index i) { return p.k.row(i).transpose(); }
Vector Value(const Pairs& p, Index i) { return p.v.row(i).transpose(); }
Vector Query(const Pairs& p, Index i) { return p.q.row(i).transpose(); }
Matrix Identity() { return Matrix::Identity(kKeyDim, kKeyDim); }

// The least of 1/2 |M - M'|^2 + b/2 |v - M k|^2, where M (I + b k k^T) = M' + b v k^T.
Answer LeastChangeAndLoss(const Pairs& p, Index t) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        const double b = p.step(i, 0);
                        const Vector k = Key(p, i);
                        const Matrix system = Identity() + b * k * k.transpose();
                        const Matrix side = m + b * Value(p, i) * k.transpose();
                        return system.ldlt().solve(side.transpose()).transpose();
                      }),
              Query(p, t), 8);
}

// Feature maps.

Vector Elu1(const Vector& x) {
  return x.unaryExpr([](double a) { return a > 0 ? a + 1 : std::exp(a); });
}

// 1, x and all x_i x_j with i <= j, times a factor where i < j.
Vector Monomials(const Vector& x, double linear, double square, double mixed) {
  const Index d = x.size();
  Vector f(1 + d + d * (d + 1) / 2);
  Index n = 0;
  f[n++] = 1;
  for (Index i = 0; i < d; ++i) f[n++] = linear * x[i];
  for (Index i = 0; i < d; ++i) {
    for (Index j = i; j < d; ++j) f[n++] = (i == j ? square : mixed) * x[i] * x[j];
  }
  return f;
}

Vector Taylor2(const Vector& x) {
  const auto d = static_cast<double>(x.size());
  return Monomials(x, std::pow(d, -.25), 1 / std::sqrt(2 * d), 1 / std::sqrt(d));
}

Matrix OfRows(const Matrix& rows, Vector (*map)(const Vector&)) {
  Matrix mapped(rows.rows(), map(rows.row(0).transpose()).size());
  for (Index i = 0; i < rows.rows(); ++i) {
    mapped.row(i) = map(rows.row(i).transpose()).transpose();
  }
  return mapped;
}

// Section 2.

template <class Similarity>
Answer WeightedMean(const Pairs& p, Index t, Similarity s) {
  Vector sum = Vector::Zero(p.v.cols());
  double weights = 0;
  for (Index i = 0; i <= t; ++i) {
    const double weight = s(Key(p, i), Query(p, t));
    sum += weight * Value(p, i);
    weights += weight;
  }
  return {sum / weights, p.v.norm()};
}

double Exponential(const Vector& k, const Vector& q) {
  return std::exp(k.dot(q) / std::sqrt(static_cast<double>(k.size())));
}

// One update of a modern Hopfield network with patterns K, read through V.
Answer Hopfield(const Pairs& p, Index t) {
  return WeightedMean(p, t,
                      [](const Vector& k, const Vector& q) { return std::exp(8 * k.dot(q)); });
}

Answer Softmax(const Pairs& p, Index t) { return WeightedMean(p, t, Exponential); }

Answer AsFirstPublished(const Pairs& p, Index t) {
  return WeightedMean(p, t, [](const Vector& k, const Vector& q) { return Elu1(k).dot(Elu1(q)); });
}

Answer LinearAttention(const Pairs& p, Index t) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        return m + Value(p, i) * Key(p, i).transpose();
                      }),
              Query(p, t));
}

Answer FeatureMapped(const Pairs& p, Index t) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        return m + Value(p, i) * Elu1(Key(p, i)).transpose();
                      }),
              Elu1(Query(p, t)));
}

Answer Gated(const Pairs& p, Index t) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        return p.decay[i] * m + Value(p, i) * Key(p, i).transpose();
                      }),
              Query(p, t));
}

Answer ValueReplaced(const Pairs& p, Index t) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        const double b = p.step(i, 0);
                        const Vector k = Key(p, i), before = m * k;
                        const Vector after = b * Value(p, i) + (1 - b) * before;
                        return m - before * k.transpose() + after * k.transpose();
                      }),
              Query(p, t));
}

// A step of size b(i) on the pair of token i, `steps` times.
template <class Size>
Answer DeltaRule(const Pairs& p, Index t, Index steps, Size b) {
  return Read(Written(p, t, kKeyDim,
                      [&](Matrix m, Index i) -> Matrix {
                        const Vector k = Key(p, i);
                        for (Index n = 0; n < steps; ++n) {
                          m = m * (Identity() - b(i, n) * k * k.transpose()) +
                              b(i, n) * Value(p, i) * k.transpose();
                        }
                        return m;
                      }),
              Query(p, t));
}

Answer DeltaNet(const Pairs& p, Index t) {
  return DeltaRule(p, t, 1, [&](Index i, Index) { return p.step(i, 0); });
}

// Vignettes 1 and 2: rows of keys (mapped or not), their weights, both cases of the solution.
Answer LeastSquares(const Matrix& k, const Matrix& v, const Vector& weights, const Vector& q) {
  const Matrix root = weights.cwiseSqrt().asDiagonal() * k;
  const double condition = std::pow(Condition(root), 2);
  if (k.rows() < k.cols()) {
    return Read(v.transpose() * (k * k.transpose()).inverse() * k, q, condition);
  }
  const Matrix gram = k.transpose() * weights.asDiagonal() * k;
  return Read(v.transpose() * weights.asDiagonal() * k * gram.inverse(), q, condition);
}

Answer PrefixLeastSquares(const Pairs& p, const Matrix& k, Index t, const Vector& q) {
  return LeastSquares(k.topRows(t + 1), p.v.topRows(t + 1), Vector::Ones(t + 1), q);
}

Answer Ols(const Pairs& p, Index t) { return PrefixLeastSquares(p, p.k, t, Query(p, t)); }

// Without a preconditioner before K^T K has an inverse.
Answer NewtonStep(const Pairs& p, Index t) {
  return t + 1 < kKeyDim ? Answer{Vector::Zero(kValueDim), kInfinity} : Ols(p, t);
}

Answer OlsOfAll(const Pairs& p, Index t) {
  return PrefixLeastSquares(p, p.k, kTokens - 1, Query(p, t));
}

template <Vector (*kMap)(const Vector&)>
Answer MappedOls(const Pairs& p, Index t) {
  return PrefixLeastSquares(p, OfRows(p.k, kMap), t, kMap(Query(p, t)));
}

Answer WeightedOls(const Pairs& p, Index t) {
  Vector weights = Vector::Ones(t + 1);  // of i: the product of the decays after it
  for (Index i = t; i-- > 0;) weights[i] = weights[i + 1] * p.decay[i + 1];
  return LeastSquares(p.k.topRows(t + 1), p.v.topRows(t + 1), weights, Query(p, t));
}

// Vignette 3.

template <class Size>
Answer GradientDescent(const Pairs& p, Index t, Index steps, Size b) {
  Matrix m = Matrix::Zero(kValueDim, kKeyDim);
  for (Index n = 0; n < steps; ++n) {
    Matrix gradient = Matrix::Zero(kValueDim, kKeyDim);
    for (Index j = 0; j <= t; ++j) {
      gradient += (m * Key(p, j) - Value(p, j)) * Key(p, j).transpose();
    }
    m -= b(n) * gradient;
  }
  return Read(m, Query(p, t), static_cast<double>(kTokens));
}

Answer ThreeSteps(const Pairs& p, Index t) {
  return GradientDescent(p, t, 3, [](Index) { return .05; });
}
Answer ThreeGivenSteps(const Pairs& p, Index t) {
  return GradientDescent(p, t, 3, [&](Index n) { return p.step(t, n); });
}
Answer OneStep(const Pairs& p, Index t) {
  return GradientDescent(p, t, 1, [](Index) { return 1.; });
}

Answer SeveralSteps(const Pairs& p, Index t) {
  return DeltaRule(p, t, 2, [&](Index i, Index n) { return p.step(i, n); });
}

// Where the gradient of |M - M'|^2 / 2 + d |v - M k|^2 / 2 is 0.
Answer OnlineLearner(const Pairs& p, Index t) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        const double d = p.step(i, 0);
                        const Vector k = Key(p, i);
                        const Matrix a = Identity() + d * k * k.transpose();
                        return (m + d * Value(p, i) * k.transpose()) * a.inverse();
                      }),
              Query(p, t), 10);
}

Answer Nlms(const Pairs& p, Index t) {
  return DeltaRule(p, t, 1, [&](Index i, Index) { return 1 / p.k.row(i).squaredNorm(); });
}

template <class Kept>
Answer Decayed(const Pairs& p, Index t, Kept kept) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        const Vector k = Key(p, i);
                        return kept(i) * m + p.step(i, 0) * (Value(p, i) - m * k) * k.transpose();
                      }),
              Query(p, t));
}

// The gradient of a pair's loss at M.
Matrix Gradient(const Pairs& p, Index i, const Matrix& m) {
  return (m * Key(p, i) - Value(p, i)) * Key(p, i).transpose();
}

// A step adapted an entry: by the root of V, the sum or a fading mean of squared gradients, of the
// gradient or of a fading mean of it.
Answer Adapted(const Pairs& p, Index t, bool adam) {
  const double c = adam ? .999 : 0;
  Matrix squares = Matrix::Zero(p.v.cols(), kKeyDim), mean = squares;
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        const Matrix g = Gradient(p, i, m);
                        const double eta = adam ? p.momentum[i] : 0;
                        mean = eta * mean + (1 - eta) * g;
                        squares = (adam ? c : 1) * squares + (1 - c) * g.cwiseAbs2();
                        return m - p.step(i, 0) *
                                       (mean.array() / (squares.array().sqrt() + 1e-8)).matrix();
                      }),
              Query(p, t), kAdaptedCondition);
}
Answer Adagrad(const Pairs& p, Index t) { return Adapted(p, t, false); }
Answer Adam(const Pairs& p, Index t) { return Adapted(p, t, true); }

Answer LeakyLms(const Pairs& p, Index t) {
  return Decayed(p, t, [&](Index i) { return 1 - p.step(i, 0) * p.weight_decay[i]; });
}
Answer DecoupledLms(const Pairs& p, Index t) {
  return Decayed(p, t, [&](Index i) { return 1 - p.weight_decay[i]; });
}

Answer GatedDeltaNet(const Pairs& p, Index t) {
  return Read(Written(p, t, kKeyDim,
                      [&](const Matrix& m, Index i) -> Matrix {
                        const double eta = p.step(i, 0);
                        const Vector k = Key(p, i);
                        return m * p.decay[i] * (Identity() - eta * k * k.transpose()) +
                               eta * Value(p, i) * k.transpose();
                      }),
              Query(p, t));
}

// Vignette 4.

Answer KernelRegression(const Pairs& p, Index t) {
  Matrix gram(t + 1, t + 1);
  Vector column(t + 1);
  for (Index i = 0; i <= t; ++i) {
    column[i] = Exponential(Key(p, i), Query(p, t));
    for (Index j = 0; j <= t; ++j) gram(i, j) = Exponential(Key(p, i), Key(p, j));
  }
  return Read(p.v.topRows(t + 1).transpose() * gram.inverse(), column, Condition(gram));
}

Answer Unnormalised(const Pairs& p, Index t) {
  Answer answer{Vector::Zero(kValueDim)};
  for (Index i = 0; i <= t; ++i) {
    answer.y += Value(p, i) * Exponential(Key(p, i), Query(p, t));
    answer.size += Value(p, i).norm() * Exponential(Key(p, i), Query(p, t));
  }
  return answer;
}

template <class Vectors>
Pairs Unit(Vectors pairs) {
  pairs.k.rowwise().normalize();
  pairs.q.rowwise().normalize();
  return pairs;
}

const double kQkNormBandwidth = 2 * std::sqrt(static_cast<double>(kKeyDim));

double Smoothing(const Vector& k, const Vector& q, double bandwidth) {
  return std::exp(-(k - q).squaredNorm() / bandwidth);
}

Answer NadarayaWatson(const Pairs& p, Index t, double bandwidth) {
  return WeightedMean(p, t,
                      [&](const Vector& k, const Vector& q) { return Smoothing(k, q, bandwidth); });
}

Answer NadarayaWatsonOf16(const Pairs& p, Index t) { return NadarayaWatson(p, t, 16); }
Answer QkNorm(const Pairs& p, Index t) { return NadarayaWatson(Unit(p), t, kQkNormBandwidth); }

Vector Degree1(const Vector& d) {
  Vector row(1 + d.size());
  row << 1, d;
  return row;
}
Vector Degree2(const Vector& d) { return Monomials(d, 1, 1, 1); }

struct Fit {
  Matrix m;  // its first column is M^[0], the others M^[1]
  double condition;
};

// (V^T W X) (X^T W X)^-1, one row of X a pair.
Fit LocalFit(const Pairs& p, Index t, double bandwidth, Vector (*row)(const Vector&)) {
  const Matrix offsets = p.k.topRows(t + 1).rowwise() - p.q.row(t);
  const Matrix x = OfRows(offsets, row), v = p.v.topRows(t + 1);
  Vector w(t + 1);
  for (Index i = 0; i <= t; ++i) w[i] = Smoothing(Key(p, i), Query(p, t), bandwidth);
  if (x.rows() < x.cols()) return {Matrix::Zero(kValueDim, x.cols()), kInfinity};
  const Matrix root = w.cwiseSqrt().asDiagonal() * x;
  const Matrix gram = x.transpose() * w.asDiagonal() * x;
  return {v.transpose() * w.asDiagonal() * x * gram.inverse(), std::pow(Condition(root), 2)};
}

Answer Constant(const Fit& fit) { return {fit.m.col(0), fit.condition * (1 + fit.m.norm())}; }

Answer LocalLinear(const Pairs& p, Index t) { return Constant(LocalFit(p, t, 16, Degree1)); }
Answer LocalQuadratic(const Pairs& p, Index t) { return Constant(LocalFit(p, t, 16, Degree2)); }
Answer LocalLinearOfUnits(const Pairs& p, Index t) {
  return Constant(LocalFit(Unit(p), t, kQkNormBandwidth, Degree1));
}

Answer OffsetMean(const Pairs& p, Index t) {
  const Fit fit = LocalFit(p, t, 16, Degree1);
  Pairs offsets = p;
  offsets.v = p.k.rowwise() - p.q.row(t);
  const Vector value = NadarayaWatson(p, t, 16).y, offset = NadarayaWatson(offsets, t, 16).y;
  return {value - fit.m.rightCols(kKeyDim) * offset, fit.condition * (1 + fit.m.norm())};
}

constexpr Equation kEquations[] = {
    {"eq. 1", "softmax", Softmax},
    {"eq. 2", "linear_attention", LinearAttention},
    {"named", "linear_attention{features: elu1, normalise_sum: sum}", AsFirstPublished},
    {"eq. 3", "linear_attention{features: elu1}", FeatureMapped},
    {"eq. 4", "linear_attention{decay: scalar}", Gated},
    {"eq. 5", "deltanet", ValueReplaced},
    {"eq. 6", "deltanet", DeltaNet},
    {"text", "rls{ridge: 0, causal: false}", OlsOfAll},
    {"eq. 10, 11", "rls{ridge: 0}", Ols},
    {"text", "feature_rls{ridge: 0}", MappedOls<Elu1>},
    {"named", "feature_rls{features: taylor2, ridge: 0}", MappedOls<Taylor2>},
    {"eq. 14, 15", "weighted_rls{ridge: 0}", WeightedOls},
    {"eq. 16", "batch_gd{decay: scalar, steps: 1, eta_kind: constant}", Gated},
    {"eq. 7", "longhorn", LeastChangeAndLoss},
    {"section 7", "softmax{scale: 8}", Hopfield},
    {"section 7", "linear_attention", LinearAttention},
    {"eq. 20-23", "batch_gd{eta_kind: constant, eta: 0.05, steps: 3}", ThreeSteps},
    {"eq. 20-23", "batch_gd{eta_kind: input, steps: 3}", ThreeGivenSteps},
    {"eq. 24", "batch_gd{steps: 1, eta_kind: constant}", OneStep},
    {"eq. 25", "quasi_newton{steps: 1, preconditioner: block_diagonal, block: 64, ridge: 0}",
     NewtonStep},
    {"eq. 26-29", "deltanet", DeltaNet},
    {"named", "delta_product{decay: none, steps: 2}", SeveralSteps},
    {"named", "adagrad_lms", Adagrad},
    {"named", "adam_lms", Adam},
    {"eq. 30, 31", "longhorn", OnlineLearner},
    {"eq. 32, 33", "nlms", Nlms},
    {"eq. 34-37", "leaky_lms", LeakyLms},
    {"eq. 38-41", "gated_deltanet", GatedDeltaNet},
    {"future", "decoupled_lms", DecoupledLms},
    {"eq. 42-44", "kernel_ridge{ridge: 0}", KernelRegression},
    {"eq. 45-47", "kernel_smoother", Unnormalised},
    {"eq. 48-50", "nadaraya_watson{bandwidth: 16}", NadarayaWatsonOf16},
    {"eq. 51", "softmax{normalise_qk: true}", QkNorm},
    {"eq. 52, 53", "local_linear{kernel: gaussian, bandwidth: 16, ridge: 0}", LocalLinear},
    {"eq. 52, 53", "local_linear{normalise_qk: true, ridge: 0}", LocalLinearOfUnits},
    {"eq. 54", "local_linear{kernel: gaussian, bandwidth: 16, ridge: 0}", OffsetMean},
    {"eq. 48, 49", "local_quadratic{kernel: gaussian, bandwidth: 16, ridge: 0}", LocalQuadratic},
};

}  // namespace

std::span<const Equation> Equations() { return kEquations; }

}  // namespace ttr::experiments
