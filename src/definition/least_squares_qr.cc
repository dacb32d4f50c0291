/// Weighted linear least squares by orthogonal factors of the rows: what least_squares.cc defines,
/// without the Gram matrix A, which has half the digits of the rows that it sums.
///
///     R^T R = A,   R = D^1/2 L,   B = L^T D W
///
/// L is a unit triangle below its diagonal, D a diagonal, W the values in the rows of L. A row [k
/// v] of weight w is rotated into [L W] by Givens rotations without square roots, channel i from
/// the last to the first:
///
///     d = D_i + w k_i^2,   c = D_i / d,   s = w k_i / d
///     [k v], row i of [L W]  <-  [k v] - k_i row i,   c row i + s [k v]
///     w <- c w,   D_i <- d
///
/// so that k_i is 0 from there on. What is left of v is an error of the whole fit, of the weight
/// that is left: rss <- g rss + w v^2 is the least weighted sum of squares. The last channel comes
/// first since it is the 1 of an affine memory: its row of [L W] holds the weighted means, and what
/// is rotated into the rows above it is what keys and values differ from their means by (Welford's
/// update). Forgetting is D <- g D.
///
///     y = W^T u,   L^T u = q
///
/// Source: Gentleman (1974), algorithm AS 75; Miller (1992), AS 274.
#include <cmath>
#include <limits>
#include <optional>

#include "src/definition/decompositions.h"
#include "src/definition/memory.h"

namespace ttr::definition {
namespace {

class RotatedLeastSquares : public Memory {
 public:
  explicit RotatedLeastSquares(const Constants& constants)
      : ridge_(constants.ridge),
        kept_in_r_(constants.recipe.optimizer.ridge_kind == RidgeKind::kFading),
        d_(Vector::Zero(constants.phi_dim)),
        l_(Matrix::Identity(constants.phi_dim, constants.phi_dim)),
        w_(Matrix::Zero(constants.phi_dim, constants.value_dim)),
        rss_(Vector::Zero(constants.value_dim)) {
    if (kept_in_r_) d_ = ridge_;
  }

  void Write(const Token& token) override {
    if (token.log_decay.size() > 0) Fade(std::exp(token.log_decay(0)));
    if (token.importance != 0) {
      for (Eigen::Index j = 0; j < token.k.cols(); ++j) {
        AddRow(token.k.col(j), token.v.col(j), token.importance);
      }
    }
    rows_.reset();
  }

  /// y = E^T u with R^T u = q, where [R E] has as many rows as A has rank: u is then unique but for
  /// what of q is in no key, and that counts as 0.
  Answer Read(const Vector& q) const override {
    if (!d_.allFinite() || !l_.allFinite()) {
      constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
      return {Vector::Constant(w_.cols(), kNaN)};
    }
    if (!rows_) rows_ = Rows();
    if (rows_->factor.rows() == 0) return {Vector::Zero(w_.cols()), Status::kRegularised};
    const Vector u = SolveLeastNorm(rows_->factor.transpose(), q, kEpsilon).x;
    const bool regular = rows_->factor.rows() == d_.size();
    // q^T A^-1 q = |u|^2: rows of R are orthonormal rows of what was rotated in.
    return {.y = rows_->rest.transpose() * u,
            .status = regular ? Status::kSolved : Status::kRegularised,
            .leverage = u.squaredNorm()};
  }

  Arrays Save() const override {
    Matrix r = l_;
    r.diagonal() = d_;
    return {{"state", Array::Of(w_)}, {"state.r", Array::Of(r)}, {"state.rss", Array::Of(rss_)}};
  }

  void Load(const Arrays& state) override {
    if (const auto w = state.find("state"); w != state.end()) w_ = w->second.matrix();
    if (const auto r = state.find("state.r"); r != state.end()) {
      d_ = r->second.matrix().diagonal();
      l_ = r->second.matrix().triangularView<Eigen::UnitLower>();
    }
    if (const auto rss = state.find("state.rss"); rss != state.end()) rss_ = rss->second.vector();
    rows_.reset();
  }

 private:
  static constexpr double kEpsilon = std::numeric_limits<double>::epsilon();
  /// Squares below this have lost their digits: a key so short is none.
  static constexpr double kFaded = 1e-290;

  void Fade(double g) {
    d_ = Faded(g, d_);
    rss_ = Faded(g, rss_);
    if (g != 0) return;
    l_.setIdentity();
    w_.setZero();
  }

  void AddRow(Vector k, Vector v, double weight) {
    for (Eigen::Index i = k.size() - 1; i >= 0; --i) {
      const double ki = k(i), gain = weight * ki * ki;
      if (weight == 0 || gain + d_(i) <= kFaded || ki == 0) continue;
      const double d = d_(i) + gain, c = d_(i) / d, s = weight * ki / d;
      const auto rotate = [&](auto row, auto x) {
        const Vector left = x - ki * row;
        // Where little changes, as a correction, which leaves what is right as it is.
        row = c < .5 ? Vector(c * row + s * x) : Vector(row + s * left);
        x = left;
      };
      rotate(l_.row(i).head(i).transpose(), k.head(i));
      rotate(w_.row(i).transpose(), v.head(v.size()));
      d_(i) = d;
      weight *= c;
    }
    if (weight != 0) rss_ += weight * v.cwiseAbs2();
  }

  /// [R E] in as many rows as A has rank, the ridge in it. What is rounding is told by columns of
  /// unit length.
  PivotedRows Rows() const {
    const Eigen::Index n = d_.size();
    const Matrix root = d_.cwiseSqrt().asDiagonal();
    Matrix r = root * l_, e = root * w_;
    if (!kept_in_r_) {
      r.conservativeResize(2 * n, n);
      r.bottomRows(n) = ridge_.cwiseSqrt().asDiagonal();
      e.conservativeResize(2 * n, e.cols());
      e.bottomRows(n).setZero();
    }
    Vector length = r.colwise().norm();
    for (Eigen::Index i = 0; i < n; ++i) {
      if (length(i) > 0) r.col(i) /= length(i);
    }
    PivotedRows rows = PivotedRowsOf(r, e, 64 * static_cast<double>(n) * kEpsilon);
    rows.factor = rows.factor * length.asDiagonal();
    return rows;
  }

  Vector ridge_;
  bool kept_in_r_;  // d_ and l_ hold the ridge
  Vector d_;        // D
  Matrix l_;        // L, as rows
  Matrix w_;        // W, Dphi x Dv
  Vector rss_;
  mutable std::optional<PivotedRows> rows_;  // that reads share until the next write
};

}  // namespace

std::unique_ptr<Memory> MakeRotatedLeastSquares(const Constants& constants) {
  return std::make_unique<RotatedLeastSquares>(constants);
}

}  // namespace ttr::definition
