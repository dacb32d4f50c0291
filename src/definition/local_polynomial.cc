/// Local polynomial regression of degree p around every query:
///
///     min over c, M:  sum_i p_i |v_i - c - M f(k_i - q)|^2 + ridge |M|^2
///     y = c,   p_i = w_i s(k_i, q) / sum_j w_j s(k_j, q)
///
/// f holds the monomials of degree 1 .. p, each mixed one once, with coefficient 1; the ridge is
/// relative to sum_j w_j s(k_j, q). Without neighbours y = 0.
/// Source: Wang, Shi, Fox (2025), Vignette 4; Fan (1996), Local polynomial modelling.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "src/definition/decompositions.h"
#include "src/definition/memory.h"
#include "src/definition/pairs.h"
#include "src/definition/symmetric.h"

namespace ttr::definition {
namespace {

/// d_a, then d_a d_b (a <= b), then d_a d_b d_c (a <= b <= c), ...
Vector Monomials(const Vector& d, std::int64_t degree) {
  struct Term {
    double value;
    Eigen::Index last;  // the highest index in the product
  };
  std::vector<Term> terms;
  std::vector<Term> previous{{1, 0}};
  for (std::int64_t p = 1; p <= degree; ++p) {
    std::vector<Term> next;
    for (const Term& term : previous) {
      for (Eigen::Index a = term.last; a < d.size(); ++a) next.push_back({term.value * d(a), a});
    }
    terms.insert(terms.end(), next.begin(), next.end());
    previous = std::move(next);
  }
  Vector f(static_cast<Eigen::Index>(terms.size()));
  for (Eigen::Index i = 0; i < f.size(); ++i) f(i) = terms[static_cast<std::size_t>(i)].value;
  return f;
}

class LocalPolynomial : public Memory {
 public:
  explicit LocalPolynomial(const Constants& constants)
      : similarity_(constants.recipe.similarity),
        degree_(constants.recipe.function.degree),
        scale_(constants.scale),
        ridge_(constants.ridge.size() > 0 ? constants.ridge(0) : constants.recipe.optimizer.ridge),
        value_dim_(constants.value_dim),
        pairs_(constants) {}

  void Write(const Token& token) override { pairs_.Write(token); }
  void SetPairBias(const Vector& bias) override { pairs_.SetBias(bias); }

  Answer Read(const Vector& q) const override {
    const Closeness closeness = Weigh(pairs_, similarity_, scale_, q);
    if (!closeness.any) return {Vector::Zero(value_dim_), Status::kSingular};
    // A hit holds the polynomial to its value at q.
    Answer answer{WeightedMean(pairs_, closeness.p, value_dim_)};
    if (!closeness.hit) answer = Solve(closeness.p, q);
    answer.effective_pairs = EffectivePairs(closeness);
    return answer;
  }

  Arrays Save() const override { return pairs_.Save(); }
  void Load(const Arrays& state) override { pairs_.Load(state); }

 private:
  /// The minimum over c is c = v_bar - M f_bar, with v_bar, f_bar the p-weighted means. What is
  /// left is least squares for M: a reflection of the rows sqrt(p_i) [1, f_i^T, v_i^T] that takes
  /// the column of sqrt(p_i) into the row of the heaviest pair h leaves, of all others and beside
  /// the ridge,
  ///
  ///     [ sqrt(p_i) (f_i - f_c)^T ]         [ sqrt(p_i) (v_i - v_c)^T ]
  ///     [ sqrt(ridge) I           ] M^T  =  [ 0                       ]
  ///
  ///     f_c = (f_bar + sqrt(p_h) f_h) / (1 + sqrt(p_h)), and v_c likewise
  ///
  /// (Were all rows centred at f_bar, that of a pair with nearly all the weight would be rounding,
  /// and yet large beside the others.) Solved by an orthogonal decomposition that shows its rank;
  /// too few points give the slopes M of smallest norm. With rows in order of their size, and
  /// columns pivoted, what it rounds is small beside each row (Cox and Higham 1998).
  Answer Solve(const Vector& p, const Vector& q) const {
    std::vector<Eigen::Index> near;
    for (Eigen::Index i = 0; i < p.size(); ++i) {
      if (p(i) != 0) near.push_back(i);
    }
    std::swap(near.front(), *std::max_element(near.begin(), near.end(),
                                              [&](auto i, auto j) { return p(i) < p(j); }));
    const auto points = static_cast<Eigen::Index>(near.size());
    const Eigen::Index features = Monomials(q, degree_).size();
    Matrix f(points, features);
    Matrix v(points, value_dim_);
    Vector weight(points);
    for (Eigen::Index i = 0; i < points; ++i) {
      const Eigen::Index pair = near[static_cast<std::size_t>(i)];
      f.row(i) = Monomials(pairs_.k(pair) - q, degree_).transpose();
      v.row(i) = pairs_.v(pair).transpose();
      weight(i) = p(pair);
    }
    const Vector f_mean = f.transpose() * weight;
    const Vector v_mean = v.transpose() * weight;

    const Eigen::Index ridge_rows = ridge_ > 0 ? features : 0;
    Matrix x = Matrix::Zero(points - 1 + ridge_rows, features);
    Matrix y = Matrix::Zero(points - 1 + ridge_rows, value_dim_);
    x.topRows(points - 1) = Reflected(f, f_mean, weight);
    y.topRows(points - 1) = Reflected(v, v_mean, weight);
    x.bottomRows(ridge_rows).diagonal().setConstant(std::sqrt(ridge_));
    if (!x.allFinite() || !f_mean.allFinite()) {
      return {Vector::Constant(value_dim_, std::numeric_limits<double>::quiet_NaN())};
    }
    if (x.rows() == 0) return {v_mean, Status::kRegularised};
    const auto order = BySize(x);

    // Centring rounds at eps times the size of what is centred.
    const auto [slopes, rank] =  // M^T, features x Dv
        SolveLeastNorm(order * x, order * y, RankThreshold(features));
    return {.y = v_mean - slopes.transpose() * f_mean,
            .status = rank < features ? Status::kRegularised : Status::kSolved,
            .slope = slopes.topRows(q.size()).transpose()};
  }

  /// Rows 1 on of sqrt(weight) f once the reflection has taken out the constant. Row 0 is the
  /// heaviest.
  static Matrix Reflected(const Matrix& f, const Vector& mean, const Vector& weight) {
    const double root = std::sqrt(weight(0));
    const Vector centre = (mean + root * f.row(0).transpose()) / (1 + root);
    const Eigen::Index rest = f.rows() - 1;
    return weight.tail(rest).cwiseSqrt().asDiagonal() *
           (f.bottomRows(rest).rowwise() - centre.transpose());
  }

  /// Rows with the largest numbers first.
  static Eigen::PermutationMatrix<Eigen::Dynamic> BySize(const Matrix& x) {
    const Vector sizes = x.cwiseAbs().rowwise().maxCoeff();
    Eigen::VectorXi rows(x.rows());
    std::iota(rows.begin(), rows.end(), 0);
    std::stable_sort(rows.begin(), rows.end(), [&](int i, int j) { return sizes(i) > sizes(j); });
    return Eigen::PermutationMatrix<Eigen::Dynamic>(rows).transpose();
  }

  Similarity similarity_;
  std::int64_t degree_;
  double scale_;
  double ridge_;
  Eigen::Index value_dim_;
  Pairs pairs_;
};

}  // namespace

std::unique_ptr<Memory> MakeLocalPolynomial(const Constants& constants) {
  return std::make_unique<LocalPolynomial>(constants);
}

}  // namespace ttr::definition
