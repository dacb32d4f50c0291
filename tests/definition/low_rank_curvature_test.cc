// Digits of a gain that is divided by a curvature of low rank, where the ridge is small beside
// keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/definition/sgd_recipes.h"

namespace ttr::definition {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();

// w of a first pair: a memory that is empty writes v w^T, here with v = 1.
Vector GainOf(const Recipe& recipe, const Matrix& u, const Vector& k, double importance) {
  const auto memory = MakeSgd(Sized(recipe, k.size(), 1));
  memory->Load({{"state.u", Array::Of(u)}});
  Token token = Pair(k, Column({1}), 1);
  token.importance = importance;
  memory->Write(token);
  return StateOf(*memory).transpose();
}

// Rows of U along the columns h_i of an orthogonal matrix of halves, so that
//     h_i . w = h_i . k / (ridge + l_i) / (1 + b sum_j (h_j . k)^2 / (ridge + l_j))
// is known. Rounding of w moves it by eps |w|, that of k by eps |k| / (ridge + l_i) / (1 + b ...).
class KnownGain {
 public:
  static constexpr double kDecay = .25, kLengths[] = {3, 1, 1e-3, 0};

  KnownGain() {
    h_ << 1, 1, 1, 1, 1, -1, 1, -1, 1, 1, -1, -1, 1, -1, -1, 1;
    h_ /= 2;
  }
  const Matrix& h() const { return h_; }
  Matrix u() const {
    Matrix u(3, 4);
    for (Eigen::Index i = 0; i < 3; ++i) u.row(i) = kLengths[i] * h_.col(i).transpose();
    return u;
  }

  // The largest error beside what it may be, in eps.
  double WorstOf(const Vector& w, const Vector& k, double ridge, double b) const {
    long double shares[4], divisors[4], sum = 1;
    for (Eigen::Index i = 0; i < 4; ++i) {
      shares[i] = Along(i, k);
      divisors[i] = ridge + (long double){kDecay} * kLengths[i] * kLengths[i];
      sum += b * shares[i] * shares[i] / divisors[i];
    }
    double worst = 0;
    for (Eigen::Index i = 0; i < 4; ++i) {
      const auto error = static_cast<double>(Along(i, w) - shares[i] / divisors[i] / sum);
      const double room = w.norm() + k.norm() / static_cast<double>(divisors[i] * sum);
      if (error != 0) worst = std::max(worst, std::abs(error) / room);
    }
    return worst / kEps;
  }

 private:
  long double Along(Eigen::Index i, const Vector& x) const {
    long double sum = 0;
    for (Eigen::Index c = 0; c < 4; ++c) sum += static_cast<long double>(h_(c, i)) * x(c);
    return sum;
  }
  Matrix h_{4, 4};
};

TEST(LowRankCurvature, HasTheDigitsOfItsKey) {
  const KnownGain known;
  const Matrix& h = known.h();
  const Vector keys[] = {Noise(15).Vec(4),
                         h.col(0),
                         h.col(3),
                         h.col(0) - 2 * h.col(2),
                         h.col(1) + 1e-9 * Noise(16).Vec(4),
                         Vector::Zero(4)};
  for (const double ridge : {1e-12, 1e-8, 1e-4, 1., 1e3}) {
    for (const double b : {0., 1e-30, 1e-15, 1e-6, 1., 1e6}) {
      Recipe recipe = ParseRecipe("low_rank_rls{rank: 3, curvature_decay: 0.25}");
      recipe.optimizer.ridge = ridge;
      for (const Vector& k : keys) {
        const Vector w = GainOf(recipe, known.u(), k, b);
        EXPECT_TRUE(w.allFinite());
        EXPECT_LE(known.WorstOf(w, k, ridge, b), 8) << ridge << " " << b << " " << k.transpose();
      }
    }
  }
}

// A key that comes again: w = k / (ridge + 2 |k|^2). Along it no digit is lost; beside it is what
// the rounding of U leaves, divided by the ridge.
TEST(LowRankCurvature, KnowsAKeyThatComesAgain) {
  for (const double ridge : {1e-12, 1e-6, 1., 1e3}) {
    Recipe recipe = ParseRecipe("low_rank_rls{rank: 3}");
    recipe.optimizer.ridge = ridge;
    const auto memory = MakeSgd(Sized(recipe, kDk, 1));
    const Vector k = Noise(17).Vec(kDk);
    memory->Write(Pair(k, Column({0}), 1));
    memory->Write(Pair(k, Column({1}), 1));
    const Vector w = StateOf(*memory).transpose();
    const double kk = k.squaredNorm(), expected = kk / (ridge + 2 * kk);
    EXPECT_NEAR(w.dot(k), expected, 8 * kEps * expected) << ridge;
    EXPECT_LE((w - w.dot(k) / kk * k).norm(), 8 * kEps * k.norm() / ridge) << ridge;
  }
}

}  // namespace
}  // namespace ttr::definition
