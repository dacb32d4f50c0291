/// Kernel ridge regression with a budget: in the span of at most n keys, the dictionary D. Kernel
/// recursive least squares.
///
///     z(x) = L^-1 k(D, x),   L L^T = k(D, D)      coordinates of x in the span of D
///     k(x, x) - |z(x)|^2                          what of x lies outside of it, squared
///
/// A key of which more than the share `tolerance` lies outside joins D, while D has less than n
/// keys (approximate linear dependence): it is one coordinate more, in which those before it are 0.
/// Every other key counts by its projection z. In these coordinates the regression is
///
///     m = argmin_M 1/2 sum_i w_i |v_i - M z_i|^2 + ridge/2 |M|^2,   z_i = z(k_i) as it was written
///     y = M z(q) = B A^-1 z(q),   A = ridge I + sum_i w_i z_i z_i^T,   B = sum_i w_i v_i z_i^T
///
/// which is that over all pairs where nothing was neglected. A is carried by its triangular root,
/// R^T R = A, and E = R^-T B^T. A state holds, of a key of D with k(d, d) > 2^32, its row of L in
/// units of -sqrt(k(d, d)) and its column of R in units of sqrt(k(d, d)): float32 need not hold
/// these. Source: Engel, Mannor, Meir (2004); ridge and weights are ours.
#include <algorithm>
#include <cmath>
#include <limits>

#include "src/definition/decompositions.h"
#include "src/definition/memory.h"

namespace ttr::definition {
namespace {

class KernelDictionary : public Memory {
 public:
  explicit KernelDictionary(const Constants& constants)
      : similarity_(constants.recipe.similarity),
        scale_(constants.scale),
        ridge_(constants.ridge.size() > 0 ? constants.ridge(0) : constants.recipe.optimizer.ridge),
        budget_(constants.recipe.optimizer.budget),
        tolerance_(constants.recipe.optimizer.tolerance),
        choices_(constants.choices),
        keys_(Matrix::Zero(budget_, constants.phi_dim)),
        l_(Matrix::Zero(budget_, budget_)),
        r_(Matrix::Zero(budget_, budget_)),
        e_(Matrix::Zero(budget_, constants.value_dim)) {}

  void Write(const Token& token) override {
    const Vector k = token.k.col(0);
    Vector z = Coordinates(k);
    const double self = EvaluateKernel(similarity_, scale_, k, k);
    const double outside = self - z.squaredNorm();
    // A key that is not finite joins, too, and so reaches whatever is read later.
    const bool outlies = !(outside <= Least() * self);
    const bool joins = token.importance != 0 && size_ < budget_ && outlies;
    if (choices_ != nullptr ? choices_->Made(joins) : joins) {
      z.conservativeResize(size_ + 1);
      z(size_) = std::sqrt(outside);
      Join(k, z);
    }
    // A pair without weight is no pair, whatever it holds.
    if (token.importance == 0 || size_ == 0) return;
    const double root = std::sqrt(token.importance);
    AddRow(root * z, root * token.v.col(0));
  }

  /// y = B A^-1 z = E^T R^-T z
  Answer Read(const Vector& q) const override {
    if (size_ == 0) return {Vector::Zero(e_.cols())};
    const Matrix root = r_.topLeftCorner(size_, size_);
    const Vector u = root.transpose().triangularView<Eigen::Lower>().solve(Coordinates(q));
    return {e_.topRows(size_).transpose() * u};
  }

  Arrays Save() const override {
    Matrix r = r_, l = l_;
    for (Eigen::Index i = 0; i < size_; ++i) {
      const double self = Self(i);
      if (!(self > kMostPlain) || !std::isfinite(self)) continue;
      l.row(i) /= -std::sqrt(self);
      r.col(i) /= std::sqrt(self);
    }
    return {{"state", Array::Of(e_)},
            {"state.r", Array::Of(r)},
            {"state.keys", Array::Of(keys_)},
            {"state.l", Array::Of(l)},
            {"state.count", Array::Of(static_cast<double>(size_))}};
  }

  void Load(const Arrays& state) override {
    e_ = state.at("state").matrix();
    r_ = state.at("state.r").matrix();
    keys_ = state.at("state.keys").matrix();
    l_ = state.at("state.l").matrix();
    size_ = static_cast<Eigen::Index>(state.at("state.count").scalar());
    for (Eigen::Index i = 0; i < size_; ++i) {
      if (!(l_(i, i) < 0)) continue;
      l_.row(i) *= -std::sqrt(Self(i));
      r_.col(i) *= std::sqrt(Self(i));
    }
  }

 private:
  static constexpr double kMostPlain = 0x1p32;

  /// k(d, d) of a key of D.
  double Self(Eigen::Index i) const {
    const Vector key = keys_.row(i).transpose();
    return EvaluateKernel(similarity_, scale_, key, key);
  }

  Vector Coordinates(const Vector& x) const {
    Vector z(size_);
    for (Eigen::Index i = 0; i < size_; ++i) {
      z(i) = EvaluateKernel(similarity_, scale_, keys_.row(i).transpose(), x);
    }
    return l_.topLeftCorner(size_, size_).triangularView<Eigen::Lower>().solve(z);
  }

  /// The share of a key that is neglected, which is never less than rounding.
  double Least() const {
    const double rounding = 64 * static_cast<double>(size_ + 1);
    return std::max(tolerance_, rounding * std::numeric_limits<double>::epsilon());
  }

  /// L gets the row z; A one coordinate more, which has its ridge.
  void Join(const Vector& k, const Vector& z) {
    keys_.row(size_) = k.transpose();
    l_.row(size_).head(size_ + 1) = z.transpose();
    r_(size_, size_) = std::sqrt(ridge_);
    ++size_;
  }

  /// R^T R + z z^T and R^T E + z v^T as [R E] of one row more, rotated until that row is 0 in R.
  void AddRow(const Vector& z, const Vector& v) {
    Matrix rows(size_ + 1, size_ + v.size());
    rows << r_.topLeftCorner(size_, size_), e_.topRows(size_), z.transpose(), v.transpose();
    rows = Triangularised(rows, size_);
    for (Eigen::Index i = 0; i < size_; ++i) {
      if (rows(i, i) < 0) rows.row(i) *= -1;  // the root whose diagonal is not negative
    }
    r_.topLeftCorner(size_, size_) =
        rows.topLeftCorner(size_, size_).triangularView<Eigen::Upper>();
    e_.topRows(size_) = rows.topRightCorner(size_, v.size());
  }

  Similarity similarity_;
  double scale_, ridge_;
  Eigen::Index budget_;
  double tolerance_;
  Choices* choices_;
  Eigen::Index size_ = 0;  // keys of D
  Matrix keys_;            // D, as rows
  Matrix l_;
  Matrix r_;
  Matrix e_;  // E, Dv columns
};

}  // namespace

std::unique_ptr<Memory> MakeKernelDictionary(const Constants& constants) {
  return std::make_unique<KernelDictionary>(constants);
}

}  // namespace ttr::definition
