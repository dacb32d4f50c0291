/// Kernel (ridge) regression: least squares in the feature space of a kernel,
///
///     m = argmin_f 1/2 sum_i w_i |v_i - f(k_i)|^2 + ridge/2 |f|^2
///     y = m(q) = V^T (k(K,K) + ridge W^-1)^-1 k(K, q),   W = diag(w)
///
/// Without ridge the function of smallest norm, where the Gram matrix is singular.
/// Source: Wang, Shi, Fox (2025), Vignette 4.
#include <cmath>
#include <optional>

#include "src/definition/memory.h"
#include "src/definition/pairs.h"
#include "src/definition/symmetric.h"

namespace ttr::definition {
namespace {

class KernelRegression : public Memory {
 public:
  explicit KernelRegression(const Constants& constants)
      : similarity_(constants.recipe.similarity),
        scale_(constants.scale),
        ridge_(constants.ridge.size() > 0 ? constants.ridge(0) : constants.recipe.optimizer.ridge),
        value_dim_(constants.value_dim),
        pairs_(constants) {}

  void Write(const Token& token) override {
    pairs_.Write(token);
    fit_.reset();
  }

  /// y = sum_i alpha_i k(k_i, q)
  Answer Read(const Vector& q) const override {
    if (!fit_) fit_ = Fitted();
    Vector y = Vector::Zero(value_dim_);
    for (Eigen::Index i = 0; i < pairs_.size(); ++i) {
      if (Root(i) == 0) continue;
      const double s = EvaluateKernel(similarity_, scale_, pairs_.k(i), q);
      if (s != 0) y += s * fit_->alpha.row(i).transpose();
    }
    return {.y = y, .status = fit_->status, .leverage = Leverage(q)};
  }

  Arrays Save() const override { return pairs_.Save(); }
  void Load(const Arrays& state) override {
    pairs_.Load(state);
    fit_.reset();
  }

 private:
  struct Fit {
    Matrix alpha;  // S x Dv
    Status status = Status::kSolved;
    std::vector<Eigen::Index> kept{};  // pairs that have weight
    SymmetricSolver solver{};          // of their matrix
  };

  /// With x = (R k(K,K) R + ridge I)^+ R k(K, q): (k(q, q) - x . R k(K, q)) / ridge; without a
  /// ridge its limit where q is in the span of the keys, |x|^2.
  double Leverage(const Vector& q) const {
    const auto size = static_cast<Eigen::Index>(fit_->kept.size());
    Vector near(size);
    for (Eigen::Index i = 0; i < size; ++i) {
      const Eigen::Index a = fit_->kept[static_cast<std::size_t>(i)];
      near(i) = Root(a) * EvaluateKernel(similarity_, scale_, pairs_.k(a), q);
    }
    const Vector x = size > 0 ? Vector(fit_->solver.Solve(near)) : near;
    if (ridge_ == 0) return x.squaredNorm();
    return (EvaluateKernel(similarity_, scale_, q, q) - x.dot(near)) / ridge_;
  }

  /// sqrt(w_i)
  double Root(Eigen::Index i) const { return std::exp(pairs_.log_weight(i) / 2); }

  /// alpha = (k(K,K) + ridge W^-1)^-1 V, written with the square roots of the weights,
  ///
  ///     alpha = R (R k(K,K) R + ridge I)^+ R V,   R = W^1/2
  ///
  /// so that weights may be as small as zero; those pairs drop out.
  Fit Fitted() const {
    const Eigen::Index n = pairs_.size();
    std::vector<Eigen::Index> kept;
    for (Eigen::Index i = 0; i < n; ++i) {
      if (Root(i) != 0) kept.push_back(i);
    }
    const auto size = static_cast<Eigen::Index>(kept.size());
    Matrix gram(size, size);
    Matrix values(size, value_dim_);
    for (Eigen::Index i = 0; i < size; ++i) {
      const Eigen::Index a = kept[static_cast<std::size_t>(i)];
      for (Eigen::Index j = 0; j <= i; ++j) {
        const Eigen::Index b = kept[static_cast<std::size_t>(j)];
        gram(i, j) = gram(j, i) =
            Root(a) * EvaluateKernel(similarity_, scale_, pairs_.k(a), pairs_.k(b)) * Root(b);
      }
      values.row(i) = Root(a) * pairs_.v(a).transpose();
    }
    gram.diagonal().array() += ridge_;

    const SymmetricSolver solver(gram);
    const Matrix solution = solver.Solve(values);
    Fit fit{Matrix::Zero(n, value_dim_), solver.singular() ? Status::kRegularised : Status::kSolved,
            kept, solver};
    for (Eigen::Index i = 0; i < size; ++i) {
      const Eigen::Index a = kept[static_cast<std::size_t>(i)];
      fit.alpha.row(a) = Root(a) * solution.row(i);
    }
    return fit;
  }

  Similarity similarity_;
  double scale_;
  double ridge_;
  Eigen::Index value_dim_;
  Pairs pairs_;
  mutable std::optional<Fit> fit_;  // of the pairs so far
};

}  // namespace

std::unique_ptr<Memory> MakeKernelRegression(const Constants& constants) {
  return std::make_unique<KernelRegression>(constants);
}

}  // namespace ttr::definition
