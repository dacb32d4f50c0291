/// Local constant regression (Nadaraya-Watson; softmax attention for the exponential kernel), and
/// its unnormalised form:
///
///     y = sum_i w_i s(k_i, q) v_i / sum_i w_i s(k_i, q)    (constant | exact)
///     y = eta sum_i w_i s(k_i, q) v_i                      (kernel | gradient)
///
/// The second is one step of gradient descent from 0 on the kernel regression.
/// Source: Wang, Shi, Fox (2025), Vignette 4; softmax 1706.03762.
#include <cmath>
#include <limits>

#include "src/definition/memory.h"
#include "src/definition/pairs.h"

namespace ttr::definition {

double LogKernel(const Similarity& similarity, double scale, const Vector& k, const Vector& q) {
  if (similarity.kernel == Kernel::kExponential) return scale * k.dot(q);
  const double d = (k - q).norm();
  const double b = similarity.bandwidth;
  // Without any width only a hit is near.
  const double u = d == 0 ? 0 : d / b;
  // (1 - u^2)_+^n; a NaN is no distance beyond 1.
  const auto compact = [u](double n) {
    return u >= 1 ? -std::numeric_limits<double>::infinity() : n * std::log1p(-u * u);
  };
  switch (similarity.kernel) {
    case Kernel::kNone: return 0;
    case Kernel::kExponential: break;
    case Kernel::kGaussian: return -d * u;
    case Kernel::kLaplace: return -u;
    case Kernel::kEpanechnikov: return compact(1);
    case Kernel::kBiweight: return compact(2);
    case Kernel::kTriweight: return compact(3);
    case Kernel::kInverseDistance: return -std::log(d);
    case Kernel::kLinear: break;  // has no logarithm: EvaluateKernel
  }
  return 0;
}

double EvaluateKernel(const Similarity& similarity, double scale, const Vector& k,
                      const Vector& q) {
  if (similarity.kernel == Kernel::kLinear) return scale * k.dot(q);
  return std::exp(LogKernel(similarity, scale, k, q));
}

namespace {

class KernelSmoother : public Memory {
 public:
  explicit KernelSmoother(const Constants& constants)
      : similarity_(constants.recipe.similarity),
        scale_(constants.scale),
        normalised_(constants.recipe.function.kind == FunctionClass::kConstant),
        eta_(constants.recipe.optimizer.eta),
        value_dim_(constants.value_dim),
        pairs_(constants) {}

  void Write(const Token& token) override { pairs_.Write(token); }
  void SetPairBias(const Vector& bias) override { pairs_.SetBias(bias); }

  Answer Read(const Vector& q) const override { return normalised_ ? Mean(q) : Sum(q); }

  Arrays Save() const override { return pairs_.Save(); }
  void Load(const Arrays& state) override { pairs_.Load(state); }

 private:
  /// y = sum w s v / sum w s
  Answer Mean(const Vector& q) const {
    const Closeness closeness = Weigh(pairs_, similarity_, scale_, q);
    return {.y = WeightedMean(pairs_, closeness.p, value_dim_),
            .status = closeness.any ? Status::kSolved : Status::kSingular,
            .effective_pairs = EffectivePairs(closeness)};
  }

  /// y = eta sum w s v, over the pairs that have weight and are neighbours.
  Answer Sum(const Vector& q) const {
    Vector y = Vector::Zero(value_dim_);
    for (Eigen::Index i = 0; i < pairs_.size(); ++i) {
      const double w = std::exp(pairs_.log_weight(i));
      if (w == 0) continue;
      const double s = EvaluateKernel(similarity_, scale_, pairs_.k(i), q);
      if (s != 0) y += eta_ * w * s * pairs_.v(i);
    }
    return {y};
  }

  Similarity similarity_;
  double scale_;
  bool normalised_;
  double eta_;
  Eigen::Index value_dim_;
  Pairs pairs_;
};

}  // namespace

std::unique_ptr<Memory> MakeKernelSmoother(const Constants& constants) {
  return std::make_unique<KernelSmoother>(constants);
}

}  // namespace ttr::definition
