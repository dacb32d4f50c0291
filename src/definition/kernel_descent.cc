/// Steps towards kernel ridge regression, in the space of the kernel's functions, from f = 0:
///
///     f <- f - eta (sum_i w_i (f(k_i) - v_i) k(k_i, .) + ridge f)
///
/// With f = sum_i alpha_i k(k_i, .) and W = diag(w) these are
///
///     alpha <- alpha + eta (W (V - k(K,K) alpha) - ridge alpha),   y = alpha^T k(K, q)
///
/// One step is eta times the unnormalised sum over the pairs, many are kernel ridge regression. The
/// same polynomial of the same matrix may be applied to the query instead, which is what is done
/// here, and what conjugate gradients need: with R = W^1/2
///
///     y = (R V)^T x,   A x = R k(K, q),   A = R k(K,K) R + ridge I
///
/// Source: Wang, Shi, Fox (2025), Vignettes 3 and 4.
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "src/core/diverged.h"
#include "src/definition/iterations.h"
#include "src/definition/memory.h"
#include "src/definition/pairs.h"

namespace ttr::definition {
namespace {

class KernelDescent : public Memory {
 public:
  explicit KernelDescent(const Constants& constants)
      : similarity_(constants.recipe.similarity),
        optimizer_(constants.recipe.optimizer),
        scale_(constants.scale),
        ridge_(constants.ridge.size() > 0 ? constants.ridge(0) : optimizer_.ridge),
        value_dim_(constants.value_dim),
        pairs_(constants) {}

  void Write(const Token& token) override {
    pairs_.Write(token);
    system_.reset();
  }

  void SetSteps(const Vector& sizes, double momentum) override {
    sizes_ = sizes;
    momentum_ = momentum;
  }

  Answer Read(const Vector& q) const override {
    if (!system_) system_ = Formed();
    const auto size = static_cast<Eigen::Index>(system_->kept.size());
    if (size == 0) return {Vector::Zero(value_dim_)};
    if (!system_->a.allFinite()) {
      constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
      return {Vector::Constant(value_dim_, kNaN), Status::kSolved, 0, kNaN};
    }
    Vector near(size);
    for (Eigen::Index i = 0; i < size; ++i) {
      near(i) = Root(Kept(i)) * EvaluateKernel(similarity_, scale_, pairs_.k(Kept(i)), q);
    }
    const Preconditioning none(system_->a, optimizer_);
    const bool descends = optimizer_.solver == Solver::kGradient;
    const Iterate iterate = descends
                                ? GradientDescent(system_->a, none, StepSizes(), momentum_, near)
                                : ConjugateGradient(system_->a, none, near, optimizer_);
    const double residual = RelativeResidual((near - system_->a * iterate.x).norm(), near.norm());
    const bool diverged = descends && Diverged(residual);
    return {system_->values.transpose() * iterate.x,
            diverged ? Status::kNotConverged : iterate.status, iterate.steps, residual};
  }

  Arrays Save() const override { return pairs_.Save(); }
  void Load(const Arrays& state) override {
    pairs_.Load(state);
    system_.reset();
  }

 private:
  struct System {
    std::vector<Eigen::Index> kept{};  // pairs that have weight
    Matrix a{};
    Matrix values{};  // R V
    double norm = 0;  // |R k(K,K) R|_F
  };

  /// sqrt(w_i)
  double Root(Eigen::Index i) const { return std::exp(pairs_.log_weight(i) / 2); }
  Eigen::Index Kept(Eigen::Index i) const { return system_->kept[static_cast<std::size_t>(i)]; }

  System Formed() const {
    System system;
    for (Eigen::Index i = 0; i < pairs_.size(); ++i) {
      if (Root(i) != 0) system.kept.push_back(i);
    }
    const auto size = static_cast<Eigen::Index>(system.kept.size());
    system.a.resize(size, size);
    system.values.resize(size, value_dim_);
    for (Eigen::Index i = 0; i < size; ++i) {
      const Eigen::Index one = system.kept[static_cast<std::size_t>(i)];
      for (Eigen::Index j = 0; j <= i; ++j) {
        const Eigen::Index other = system.kept[static_cast<std::size_t>(j)];
        system.a(i, j) = system.a(j, i) =
            Root(one) * EvaluateKernel(similarity_, scale_, pairs_.k(one), pairs_.k(other)) *
            Root(other);
      }
      system.values.row(i) = Root(one) * pairs_.v(one).transpose();
    }
    system.norm = system.a.norm();
    system.a.diagonal().array() += ridge_;
    return system;
  }

  /// A step of eta relative to a bound of the largest eigenvalue, |R k(K,K) R|_F + ridge.
  Vector StepSizes() const {
    if (optimizer_.eta_kind == EtaKind::kInput) return sizes_;
    const double bound = optimizer_.eta_kind == EtaKind::kConstant ? 1 : system_->norm + ridge_;
    return Vector::Constant(optimizer_.steps, bound == 0 ? 0 : optimizer_.eta / bound);
  }

  Similarity similarity_;
  Optimizer optimizer_;
  double scale_;
  double ridge_;
  Eigen::Index value_dim_;
  Pairs pairs_;
  Vector sizes_;  // where they are an input
  double momentum_ = 0;
  mutable std::optional<System> system_;  // of the pairs so far
};

}  // namespace

std::unique_ptr<Memory> MakeKernelDescent(const Constants& constants) {
  return std::make_unique<KernelDescent>(constants);
}

}  // namespace ttr::definition
