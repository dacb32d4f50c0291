/// Least squares by stochastic gradient descent: one step for each pair, from where the pair before
/// left the memory (Vignette 3). The gradient of 1/2 |v - M k|^2 is -(v - M k) k^T, so
///
///     M~ = decay(M_{t-1}),   M_t = M~ + (v - M~ r) w^T,   y = M q
///
/// with erase key r = k and write key w = beta k unless the recipe says otherwise. LMS / DeltaNet,
/// NLMS, Longhorn, EFLA, leaky LMS, Gated DeltaNet, KDA, Comba, Gated DeltaNet-2, DeltaProduct,
/// RWKV-7, preconditioned DeltaNet, recursive least squares with a curvature of low rank, momentum.
#include <algorithm>
#include <cmath>
#include <utility>

#include "src/definition/decay.h"
#include "src/definition/decompositions.h"
#include "src/definition/memory.h"

namespace ttr::definition {
namespace {

// beta, the step size, from b, the input, and |k|^2.
double StepSize(const Optimizer& optimizer, double b, double squared_norm) {
  switch (optimizer.step) {
    case StepRule::kInput:  // LMS, DeltaNet
      return b;
    case StepRule::kNlms:  // eta / (|k|^2 + eps): for eta = 1, eps = 0 the pair is then met exactly
      return squared_norm == 0 ? 0 : optimizer.eta / (squared_norm + optimizer.eps);
    case StepRule::kLonghorn:  // argmin_M 1/2 |M - M_{t-1}|^2 + b/2 |v - M k|^2
      return b / (1 + b * squared_norm);
    case StepRule::kEfla:  // the flow dM/ds = (v - M k) k^T for time b; for |k| -> 0 this is b
      return squared_norm == 0 ? b : -std::expm1(-b * squared_norm) / squared_norm;
    case StepRule::kOne: return 1;
  }
  return b;
}

class Sgd final : public Memory {
 public:
  explicit Sgd(const Constants& constants)
      : recipe_(constants.recipe),
        optimizer_(constants.recipe.optimizer),
        m_(Matrix::Zero(constants.value_dim, constants.phi_dim)),
        momentum_(Matrix::Zero(constants.value_dim, constants.phi_dim)),
        curvature_(Vector::Zero(constants.phi_dim)),
        directions_(Matrix::Zero(optimizer_.rank, constants.phi_dim)) {}

  // Forgets once, then takes one step for each pair of the token (DeltaProduct: n of them).
  void Write(const Token& token) override {
    Matrix before;  // RWKV-7's erasure reads M as it was
    if (optimizer_.erase == Erase::kUndecayed) before = m_;
    m_ = Decayed(token.log_decay, std::move(m_));
    for (Eigen::Index j = 0; j < token.k.cols(); ++j) Step(token, j, before);
  }

  Answer Read(const Vector& q) const override { return {m_ * q}; }

  Arrays Save() const override {
    Arrays state;
    state["state"] = Array::Transposed(m_);
    if (optimizer_.momentum) state["state.momentum"] = Array::Transposed(momentum_);
    if (Diagonal()) state["state.d"] = Array::Of(curvature_);
    if (LowRank()) state["state.u"] = Array::Of(directions_);
    return state;
  }

  void Load(const Arrays& state) override {
    if (const auto it = state.find("state"); it != state.end()) m_ = it->second.transposed();
    if (const auto it = state.find("state.momentum"); it != state.end()) {
      momentum_ = it->second.transposed();
    }
    if (const auto it = state.find("state.d"); it != state.end()) {
      curvature_ = it->second.vector();
    }
    if (const auto it = state.find("state.u"); it != state.end()) {
      directions_ = it->second.matrix();
    }
  }

 private:
  bool Diagonal() const { return optimizer_.preconditioner == Preconditioner::kDiagonal; }
  bool LowRank() const { return optimizer_.preconditioner == Preconditioner::kLowRank; }

  // One optimizer step on pair j:
  //     G = momentum G + update          (G = update where there is no momentum)
  //     M = shrink M + G
  // where `shrink` is 1, 1 - beta lambda (leaky LMS) or 1 - lambda (decoupled weight decay,
  // Titans), and the error is that of M before it shrinks.
  void Step(const Token& token, Eigen::Index j, const Matrix& before) {
    const Vector k = token.k.col(j);
    const double b = token.step.size() > 0 ? token.step(j) : 1;
    const double beta = StepSize(optimizer_, b, k.squaredNorm());
    Matrix update = Update(token, j, beta, before);
    if (optimizer_.momentum) {
      momentum_ = Faded(token.momentum, momentum_) + update;
      update = momentum_;
    }
    m_ *= Shrink(beta, token.weight_decay);
    m_ += update;
  }

  double Shrink(double beta, double lambda) const {
    switch (optimizer_.weight_decay) {
      case WeightDecay::kCoupled: return 1 - beta * lambda;
      case WeightDecay::kDecoupled: return 1 - lambda;
      case WeightDecay::kNone: break;
    }
    return 1;
  }

  // (v - M r) w^T, with w = beta k
  //     r = k                    the delta rule
  //     r = p                    Comba
  //     r = b (.) k              Gated DeltaNet-2
  // and RWKV-7, whose decay and erasure both act on M_{t-1}:
  //     M_t = M_{t-1} (diag(g) - kappa (a (.) kappa)^T) + v w^T
  Matrix Update(const Token& token, Eigen::Index j, double beta, const Matrix& before) {
    const Vector k = token.k.col(j), v = token.v.col(j);
    const Vector w = beta * Precondition(token, k, j == 0);
    switch (optimizer_.erase) {
      case Erase::kKey: return (v - m_ * k) * w.transpose();
      case Erase::kEraseKey: return (v - m_ * token.erase_key) * w.transpose();
      case Erase::kGatedKey: return (v - m_ * token.erase_gate.cwiseProduct(k)) * w.transpose();
      case Erase::kUndecayed: {
        const Vector& kappa = token.erase_key;
        const Vector along = token.erase_gate.cwiseProduct(kappa);
        return v * w.transpose() - (before * kappa) * along.transpose();
      }
    }
    return Matrix::Zero(m_.rows(), m_.cols());
  }

  Vector Precondition(const Token& token, const Vector& k, bool first) {
    if (Diagonal()) return DividedByDiagonal(token, k);
    return LowRank() ? DividedByLowRank(token, k, first) : k;
  }

  // k (.) m(D_t), D_t = g D_{t-1} + b k (.) k, b the importance of the association:
  //     m(D) = x^(-l / (1 + |l|)), x = 1.5, l = log(D + 1e-6) - c
  // (preconditioned DeltaNet, 2604.21100).
  Vector DividedByDiagonal(const Token& token, const Vector& k) {
    curvature_ = optimizer_.curvature_decay * curvature_ + token.importance * k.cwiseAbs2();
    const double c = optimizer_.curvature_centre;
    const Vector m = curvature_.unaryExpr([c](double d) {
      const double l = std::log(d + 1e-6) - c;
      return std::pow(1.5, -l / (1 + std::abs(l)));
    });
    return k.cwiseProduct(m);
  }

  // A_t^-1 k, the gain of recursive least squares, of
  //     A_t = ridge I + C_t,   C_t = g U_{t-1}^T U_{t-1} + b k k^T,
  // b the importance, g 1 but for the first pair of a token; U_t^T U_t are the `rank` largest
  // eigenpairs of C_t. With g U_{t-1}^T U_{t-1} = S diag(l) S^T
  //     z = S diag(1 / (ridge + l)) S^T k,   A_t^-1 k = z / (1 + b k . z)
  // (Sherman, Morrison), where nothing is subtracted.
  Vector DividedByLowRank(const Token& token, const Vector& k, bool first) {
    const Eigen::Index rank = directions_.rows();
    Matrix n(rank + 1, k.size());  // C_t = n^T n
    n << std::sqrt(first ? optimizer_.curvature_decay : 1) * directions_,
        std::sqrt(token.importance) * k.transpose();
    const Spectrum before = SpectrumOfRows(n.topRows(rank));
    const Vector along = before.vectors.transpose() * k;
    const Vector divided = along.array() / (optimizer_.ridge + before.values.array());
    directions_ = LargestRows(n, rank);
    return before.vectors * divided / (1 + token.importance * along.dot(divided));
  }

  // U of `rank` rows whose U^T U are the largest eigenpairs of n^T n: the longest first, the
  // largest entry of each above 0, and zeros where there are fewer channels.
  static Matrix LargestRows(const Matrix& n, Eigen::Index rank) {
    const Spectrum all = SpectrumOfRows(n);  // the smallest first
    Matrix u = Matrix::Zero(rank, n.cols());
    for (Eigen::Index i = 0; i < std::min(rank, n.cols()); ++i) {
      const Eigen::Index at = n.cols() - 1 - i;
      const Vector direction = all.vectors.col(at);
      Eigen::Index largest = 0;
      direction.cwiseAbs().maxCoeff(&largest);
      const double length = std::sqrt(all.values(at));
      u.row(i) = (direction(largest) < 0 ? -length : length) * direction.transpose();
    }
    return u;
  }

  Recipe recipe_;
  Optimizer optimizer_;
  Matrix m_;           // Dv x Dk
  Matrix momentum_;    // G, Dv x Dk
  Vector curvature_;   // D, Dk
  Matrix directions_;  // U, rank x Dk
};

}  // namespace

std::unique_ptr<Memory> MakeSgd(const Constants& constants) {
  return std::make_unique<Sgd>(constants);
}

}  // namespace ttr::definition
