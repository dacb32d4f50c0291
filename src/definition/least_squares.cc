/// Weighted linear least squares, its normal equations carried as statistics and solved at every
/// read:
///
///     A_t = g_t A_{t-1} + w_t k_t k_t^T,   B_t = g_t B_{t-1} + w_t v_t k_t^T
///     y = B x,   A x = q
///
/// The third choice of the recipe is how A x = q is solved: exactly (RLS, mesa-layer, intention),
/// by conjugate gradients (MesaNet), Chebyshev (Gated KalmaNet) or gradient descent with any
/// preconditioner (between linear attention and RLS).
/// Source: Wang, Shi, Fox (2025), Vignettes 1 to 3; mesa 2309.05858, intention 2305.10203,
/// MesaNet 2506.05233, Gated KalmaNet 2511.21016.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "src/core/diverged.h"
#include "src/definition/decompositions.h"
#include "src/definition/iterations.h"
#include "src/definition/memory.h"
#include "src/definition/preconditioner.h"
#include "src/definition/symmetric.h"

namespace ttr::definition {
namespace {

/// A bound of the largest eigenvalue of P A. For blocks it is their number: x^T A x is at most so
/// many times the sum of what the blocks give alone.
double LargestEigenvalueBound(const Optimizer& optimizer, double norm, Eigen::Index size) {
  switch (optimizer.preconditioner) {
    case Preconditioner::kNone: return norm;
    case Preconditioner::kDiagonal: return static_cast<double>(size);
    case Preconditioner::kBlockDiagonal: {
      const Eigen::Index blocks = (size + optimizer.block - 1) / optimizer.block;
      return static_cast<double>(blocks);
    }
    default: return 1;
  }
}

/// Chebyshev's semi-iteration on an interval that holds the eigenvalues of A:
///
///     c = (high + low) / 2,  rho = (high - low) / (high + low),  x_1 = q / c,  w_1 = 2
///     w_{n+1} = 4 / (4 - rho^2 w_n)
///     x_{n+1} = w_{n+1} (x_n - x_{n-1} + (q - A x_n) / c) + x_{n-1}
///
/// x_1 counts as the first iterate.
Iterate Chebyshev(const Matrix& a, double low, double high, const Vector& q,
                  std::int64_t iterates) {
  Vector before = Vector::Zero(q.size());
  const double centre = (high + low) / 2;
  if (centre == 0 || iterates == 0) return {before, iterates, Status::kRegularised};  // A = 0
  const double rho = (high - low) / (high + low);
  Vector x = q / centre;
  double weight = 2;
  for (std::int64_t n = 1; n < iterates; ++n) {
    weight = 4 / (4 - rho * rho * weight);
    const Vector next = weight * (x - before + (q - a * x) / centre) + before;
    before = x;
    x = next;
  }
  return {x, iterates};
}

class LeastSquares : public Memory {
 public:
  explicit LeastSquares(const Constants& constants)
      : optimizer_(constants.recipe.optimizer),
        ridge_(constants.ridge),
        // Without decay a fading ridge does not fade: it may be kept apart from the data.
        fading_(optimizer_.ridge_kind == RidgeKind::kFading &&
                constants.recipe.weights.decay != Decay::kNone),
        kept_in_a_(optimizer_.ridge_kind == RidgeKind::kFading),
        a_(Matrix::Zero(constants.phi_dim, constants.phi_dim)),
        b_(Matrix::Zero(constants.value_dim, constants.phi_dim)) {
    if (kept_in_a_) a_.diagonal() = ridge_;
  }

  /// A_t = g A_{t-1} + w k k^T,  B_t = g B_{t-1} + w v k^T
  void Write(const Token& token) override {
    if (token.log_decay.size() > 0) {
      const double g = std::exp(token.log_decay(0));
      a_ = Faded(g, a_);
      b_ = Faded(g, b_);
    }
    if (token.importance != 0) {
      for (Eigen::Index j = 0; j < token.k.cols(); ++j) {
        a_.noalias() += (token.importance * token.k.col(j)) * token.k.col(j).transpose();
        b_.noalias() += (token.importance * token.v.col(j)) * token.k.col(j).transpose();
      }
    }
    solver_.reset();
    preconditioning_.reset();
  }

  void SetSteps(const Vector& sizes, double momentum) override {
    steps_ = sizes;
    momentum_ = momentum;
  }

  /// y = B x with A x = q.
  Answer Read(const Vector& q) const override {
    const Matrix a = Regularised();
    if (!a.allFinite()) {
      constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
      const bool iterates = optimizer_.solver != Solver::kExact;
      return {Vector::Constant(b_.rows(), kNaN), Status::kSolved, 0, iterates ? kNaN : 0};
    }
    if (optimizer_.solver == Solver::kExact) {
      if (!solver_) solver_.emplace(a);
      const Vector x = solver_->Solve(q);
      return {.y = b_ * x,
              .status = solver_->singular() ? Status::kRegularised : Status::kSolved,
              .leverage = q.dot(x)};
    }
    const Iterate iterate = Iterated(a, q);
    const double residual = RelativeResidual((q - a * iterate.x).norm(), q.norm());
    // Conjugate gradients find the size of their steps themselves: in the norm of A they never make
    // matters worse.
    const bool diverged = iterate.status == Status::kSolved && Diverged(residual) &&
                          optimizer_.solver != Solver::kConjugateGradient;
    return {b_ * iterate.x, diverged ? Status::kNotConverged : iterate.status, iterate.steps,
            residual};
  }

  Arrays Save() const override {
    return {{"state", Array::Transposed(b_)}, {"state.a", Array::Of(a_)}};
  }

  void Load(const Arrays& state) override {
    if (const auto b = state.find("state"); b != state.end()) b_ = b->second.transposed();
    if (const auto a = state.find("state.a"); a != state.end()) a_ = a->second.matrix();
    solver_.reset();
    preconditioning_.reset();
  }

 private:
  /// A with its ridge: fading, it is in the statistics already; constant, H + diag(ridge);
  /// relative, H + ridge |H|_F.
  Matrix Regularised() const {
    Matrix a = a_;
    if (!kept_in_a_) a.diagonal() += RidgeNow();
    return a;
  }

  Vector RidgeNow() const {
    return optimizer_.ridge_kind == RidgeKind::kRelative ? Vector(ridge_ * a_.norm()) : ridge_;
  }

  Iterate Iterated(const Matrix& a, const Vector& q) const {
    if (optimizer_.solver == Solver::kChebyshev) {
      // H is positive semi-definite, so the eigenvalues of H + ridge lie between the smallest ridge
      // and the largest plus |H|_F. A ridge that has faded cannot be separated from the data: the
      // lower end is then the smallest eigenvalue itself.
      if (fading_) {
        const double low = std::max(0., EigenvaluesOf(a).minCoeff());
        return Chebyshev(a, low, a.norm(), q, optimizer_.steps);
      }
      const Vector ridge = RidgeNow();
      Matrix h = a;
      h.diagonal() -= ridge;
      return Chebyshev(a, ridge.minCoeff(), ridge.maxCoeff() + h.norm(), q, optimizer_.steps);
    }
    if (!preconditioning_) preconditioning_.emplace(a, optimizer_);
    return optimizer_.solver == Solver::kConjugateGradient
               ? ConjugateGradient(a, *preconditioning_, q, optimizer_)
               : GradientDescent(a, *preconditioning_, StepSizes(), momentum_, q);
  }

  /// The sizes of the steps of gradient descent.
  Vector StepSizes() const {
    if (optimizer_.eta_kind == EtaKind::kInput) return steps_;
    return Vector::Constant(optimizer_.steps, StepSize());
  }
  /// One size for all steps; 0 where A is 0.
  double StepSize() const {
    if (optimizer_.eta_kind == EtaKind::kConstant) return optimizer_.eta;
    const double norm = a_.norm() + (kept_in_a_ ? 0 : RidgeNow().maxCoeff());
    const double bound = LargestEigenvalueBound(optimizer_, norm, a_.rows());
    return bound == 0 ? 0 : optimizer_.eta / bound;
  }

  Optimizer optimizer_;
  Vector ridge_;
  bool fading_;     // the ridge decays with the data
  bool kept_in_a_;  // a_ holds the ridge
  Matrix a_;
  Matrix b_;      // B, Dv x Dk
  Vector steps_;  // where they are an input
  double momentum_ = 0;
  // The solver that reads share until the next write.
  mutable std::optional<SymmetricSolver> solver_;
  mutable std::optional<Preconditioning> preconditioning_;
};

}  // namespace

std::unique_ptr<Memory> MakeLeastSquares(const Constants& constants) {
  return std::make_unique<LeastSquares>(constants);
}

}  // namespace ttr::definition
