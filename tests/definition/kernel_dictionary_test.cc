#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <vector>

#include "src/definition/memory.h"
#include "tests/definition/token.h"

namespace ttr::definition {
namespace {

Recipe Budgeted(Kernel kernel, double ridge, std::int64_t budget, double tolerance) {
  Recipe recipe;
  recipe.similarity = {kernel, 2};
  recipe.function.kind = FunctionClass::kKernel;
  recipe.optimizer.solver = Solver::kExact;
  recipe.optimizer.ridge = ridge;
  recipe.optimizer.budget = budget;
  recipe.optimizer.tolerance = tolerance;
  return recipe;
}

/// The regression as the paper has it: every key replaced by the combination a_i of the dictionary
/// that is nearest to it as it is written, f = sum_j alpha_j k(d_j, .) over the dictionary,
///
///     alpha = (A^T W A k(D, D) + ridge I)^-1 A^T W V
class Combinations {
 public:
  explicit Combinations(const Recipe& recipe) : recipe_(recipe) {}

  void Write(const Token& token) {
    const Vector k = token.k.col(0);
    Vector a(0);
    if (!keys_.empty()) a = Gram().ldlt().solve(Kernels(k));
    const double self = Value(k, k), outside = self - a.dot(Kernels(k));
    const bool joins = static_cast<std::int64_t>(keys_.size()) < recipe_.optimizer.budget &&
                       outside > recipe_.optimizer.tolerance * self;
    if (joins) {
      keys_.push_back(k);
      a = Vector::Unit(static_cast<Eigen::Index>(keys_.size()), a.size());
    }
    rows_.push_back(a);
    tokens_.push_back(token);
  }

  Vector Read(const Vector& q) const {
    const auto n = static_cast<Eigen::Index>(keys_.size());
    Matrix left = Matrix::Zero(n, n), right = Matrix::Zero(n, tokens_[0].v.rows());
    for (std::size_t i = 0; i < rows_.size(); ++i) {
      Vector a = Vector::Zero(n);
      a.head(rows_[i].size()) = rows_[i];
      left += tokens_[i].importance * a * a.transpose();
      right += tokens_[i].importance * a * tokens_[i].v.col(0).transpose();
    }
    left = left * Gram();
    left.diagonal().array() += recipe_.optimizer.ridge;
    return left.partialPivLu().solve(right).transpose() * Kernels(q);
  }

  std::size_t size() const { return keys_.size(); }

 private:
  double Value(const Vector& a, const Vector& b) const {
    return EvaluateKernel(recipe_.similarity, 1, a, b);
  }
  Vector Kernels(const Vector& x) const {
    Vector values(static_cast<Eigen::Index>(keys_.size()));
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      values(static_cast<Eigen::Index>(i)) = Value(keys_[i], x);
    }
    return values;
  }
  Matrix Gram() const {
    const auto n = static_cast<Eigen::Index>(keys_.size());
    Matrix gram(n, n);
    for (Eigen::Index i = 0; i < n; ++i) gram.col(i) = Kernels(keys_[static_cast<std::size_t>(i)]);
    return gram;
  }

  Recipe recipe_;
  std::vector<Vector> keys_, rows_;
  std::vector<Token> tokens_;
};

TEST(KernelDictionary, IsTheRegressionOnCombinationsOfItsKeys) {
  for (const Kernel kernel : {Kernel::kGaussian, Kernel::kLaplace, Kernel::kExponential}) {
    for (const std::int64_t budget : {3, 7, 40}) {
      const Recipe recipe = Budgeted(kernel, .2, budget, .1);
      const auto memory = MakeKernelDictionary(Sized(recipe, 2, 3));
      Combinations combinations(recipe);
      Noise noise(5);
      for (int t = 0; t < 40; ++t) {
        Token token = Pair(noise.Vec(2), noise.Vec(3));
        token.importance = .5 + .1 * (t % 7);
        memory->Write(token);
        combinations.Write(token);
        const Vector q = noise.Vec(2);
        ASSERT_LT(Gap(memory->Read(q).y, combinations.Read(q)), 1e-10) << t;
      }
      EXPECT_LT(combinations.size(), 40u);
      EXPECT_EQ(memory->Save().at("state.count").scalar(),
                static_cast<double>(combinations.size()));
    }
  }
}

TEST(KernelDictionary, OfAllKeysIsKernelRegression) {
  const Recipe recipe = Budgeted(Kernel::kLaplace, .2, 12, 0);
  const auto memory = MakeKernelDictionary(Sized(recipe, 2, 3));
  const auto whole = MakeKernelRegression(Sized(recipe, 2, 3));
  Noise noise(6);
  for (int t = 0; t < 12; ++t) {
    Token token = Pair(noise.Vec(2), noise.Vec(3));
    token.importance = t % 4;
    memory->Write(token);
    whole->Write(token);
    const Vector q = noise.Vec(2);
    EXPECT_LT(Gap(memory->Read(q).y, whole->Read(q).y), 1e-12);
  }
}

// R^T R and R^T E are the sums that the equations name; L L^T is the kernel of the keys.
TEST(KernelDictionary, CarriesWhatItsEquationsName) {
  const Recipe recipe = Budgeted(Kernel::kGaussian, .3, 4, 0);
  const auto memory = MakeKernelDictionary(Sized(recipe, 1, 1));
  const double keys[] = {0, 1, 3};
  Vector values(3);
  for (int i = 0; i < 3; ++i) {
    values(i) = 2 * keys[i];
    memory->Write(Pair(Vector::Constant(1, keys[i]), Vector::Constant(1, values(i))));
  }
  Arrays state = memory->Save();
  EXPECT_EQ(state.at("state.count").scalar(), 3);
  const Matrix l = state.at("state.l").matrix().topLeftCorner(3, 3);
  const Matrix r = state.at("state.r").matrix().topLeftCorner(3, 3);
  const Matrix e = state.at("state").matrix().topRows(3);
  const Matrix gram = l * l.transpose(), a = r.transpose() * r;
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) {
      EXPECT_NEAR(gram(i, j), std::exp(-std::pow(keys[i] - keys[j], 2) / 2), 1e-15);
    }
  }
  EXPECT_LT((a - l.transpose() * l - .3 * Matrix::Identity(3, 3)).norm(), 1e-14);
  EXPECT_LT((r.transpose() * e - l.transpose() * values).norm(), 1e-14);
  // A key of the span adds no coordinate.
  memory->Write(Pair(Vector::Constant(1, 1), Vector::Constant(1, 5)));
  EXPECT_EQ(memory->Save().at("state.count").scalar(), 3);
}

TEST(KernelDictionary, GoesOnFromItsState) {
  const Recipe recipe = Budgeted(Kernel::kGaussian, .1, 5, .01);
  const auto memory = MakeKernelDictionary(Sized(recipe, 2, 1));
  Noise noise(7);
  for (int t = 0; t < 9; ++t) memory->Write(Pair(noise.Vec(2), noise.Vec(1)));
  const auto other = MakeKernelDictionary(Sized(recipe, 2, 1));
  other->Load(memory->Save());
  const Token token = Pair(noise.Vec(2), noise.Vec(1));
  memory->Write(token);
  other->Write(token);
  const Vector q = noise.Vec(2);
  EXPECT_EQ(memory->Read(q).y, other->Read(q).y);
}

TEST(KernelDictionary, WithoutKeysAnswersZero) {
  const auto memory = MakeKernelDictionary(Sized(Budgeted(Kernel::kGaussian, 1, 4, 0), 2, 3));
  EXPECT_EQ(memory->Read(Vector::Constant(2, 1)).y, Vector::Zero(3));
}

}  // namespace
}  // namespace ttr::definition
