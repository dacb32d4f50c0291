// src/linalg against Eigen in double: every target, both types, sizes that fill no vector.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/linalg/minimum_norm.h"
#include "src/linalg/rounding.h"
#include "tests/linalg/kernels.h"
#include "tests/support/targets.h"

namespace ttr {
namespace {

using Eigen::MatrixXd;
using Eigen::VectorXd;
using linalg::Block;
using linalg::kUnit;
using linalg::Left;
using linalg::RoundUp;
using linalg::UpperFactor;
using test::LinalgKernels;
using test::Part;

constexpr std::int64_t kSizes[] = {1, 2, 3, 5, 8, 13, 16, 17, 31, 33, 64, 77};

template <class T>
constexpr double kEpsilon = static_cast<double>(std::numeric_limits<T>::epsilon());

// Calls each(kernels) on every target.
template <class T, class Each>
void OnEveryTarget(const Each& each) {
  for (const std::string& name : test::Targets()) {
    SCOPED_TRACE(name);
    const test::OnTarget on(name);
    each(test::KernelsOfLinalg<T>());
  }
}

MatrixXd Random(std::int64_t rows, std::int64_t columns, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  MatrixXd m(rows, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < columns; ++j) m(i, j) = normal(generator);
  }
  return m;
}

// As a T has them.
template <class T>
MatrixXd Rounded(const MatrixXd& m) {
  return m.cast<T>().template cast<double>();
}

// Positive definite, of a condition of some hundreds.
template <class T>
MatrixXd Gram(std::int64_t n, unsigned seed) {
  const MatrixXd keys = Random(2 * n + 2, n, seed);
  MatrixXd gram = keys.transpose() * keys;
  gram.diagonal().array() += 0.1;
  return Rounded<T>(gram);
}

// A block in whole units, with zeros outside `m`, and NaN beside and below those units.
template <class T>
class Padded {
 public:
  explicit Padded(const MatrixXd& m)
      : rows_(RoundUp(m.rows(), kUnit)), columns_(RoundUp(m.cols(), kUnit)) {
    stride_ = linalg::StrideOf<T>(columns_ + kUnit);
    constexpr std::size_t kAligned = 64 / sizeof(T);
    numbers_.assign(static_cast<std::size_t>((rows_ + 1) * stride_) + kAligned,
                    std::numeric_limits<T>::quiet_NaN());
    const auto address = reinterpret_cast<std::uintptr_t>(numbers_.data());
    start_ = numbers_.data() + (64 - address % 64) % 64 / sizeof(T);
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < columns_; ++j) {
        const bool inside = i < m.rows() && j < m.cols();
        block().Row(i)[j] = inside ? static_cast<T>(m(i, j)) : T(0);
      }
    }
  }
  Padded(const Padded&) = delete;
  Padded& operator=(const Padded&) = delete;

  Block<T> block() const { return {start_, stride_}; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  MatrixXd Part(std::int64_t rows, std::int64_t columns) const {
    MatrixXd m(rows, columns);
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < columns; ++j) m(i, j) = static_cast<double>(block().Row(i)[j]);
    }
    return m;
  }

 private:
  std::int64_t rows_, columns_, stride_ = 0;
  std::vector<T> numbers_;
  T* start_ = nullptr;
};

template <class T>
class Linalg : public testing::Test {};
using Types = testing::Types<float, double>;
TYPED_TEST_SUITE(Linalg, Types);

// Which elements of the left or right factor stairs leave, and which of the result are compared.
void CutToPart(Part part, std::int64_t per_step, MatrixXd& left, MatrixXd& right) {
  for (std::int64_t i = 0; i < left.rows(); ++i) {
    for (std::int64_t p = 0; p < left.cols(); ++p) {
      if (part == Part::kLowerLeft && p > i / per_step) left(i, p) = 0;
      if (part == Part::kUpperLeft && p < i * per_step) left(i, p) = 0;
    }
  }
  for (std::int64_t p = 0; p < right.rows(); ++p) {
    for (std::int64_t j = 0; j < right.cols(); ++j) {
      if (part == Part::kUpperRight && p > j / per_step) right(p, j) = 0;
    }
  }
}

TYPED_TEST(Linalg, ProductsOfAllParts) {
  using T = TypeParam;
  OnEveryTarget<T>([](const LinalgKernels<T>& kernels) {
    for (const std::int64_t n : kSizes) {
      for (const Part part : {Part::kWhole, Part::kUpperResult, Part::kLowerLeft, Part::kUpperLeft,
                              Part::kUpperRight}) {
        for (int into = 0; into < 3; ++into) {
          for (const bool transposed : {false, true}) {
            const std::int64_t per_step = 1 + n % 3;
            MatrixXd left = Rounded<T>(Random(n, n + 3, 1));
            MatrixXd right = Rounded<T>(Random(n + 3, 2 * n + 1, 2));
            const MatrixXd before = Rounded<T>(Random(n, 2 * n + 1, 3));
            CutToPart(part, per_step, left, right);
            const Padded<T> a(transposed ? MatrixXd(left.transpose()) : left);
            const Padded<T> b(right), to(before);
            const test::Product product{
                part, into, RoundUp(n, kUnit), to.columns(), RoundUp(n + 3, kUnit), per_step};
            kernels.multiply(product,
                             transposed ? Left<T>::Transposed(a.block()) : Left<T>::Of(a.block()),
                             b.block(), to.block());
            const MatrixXd expected = into == 0 ? MatrixXd(left * right)
                                                : (into == 1 ? MatrixXd(before + left * right)
                                                             : MatrixXd(before - left * right));
            const MatrixXd bound = left.cwiseAbs() * right.cwiseAbs() + before.cwiseAbs();
            const MatrixXd computed = to.Part(n, 2 * n + 1);
            for (std::int64_t i = 0; i < n; ++i) {
              const std::int64_t first = part == Part::kUpperResult ? i * per_step : 0;
              for (std::int64_t j = first; j < 2 * n + 1; ++j) {
                ASSERT_LE(std::abs(computed(i, j) - expected(i, j)),
                          2 * static_cast<double>(n + 3) * kEpsilon<T> * bound(i, j))
                    << n << ": " << i << ", " << j << "; part " << static_cast<int>(part);
              }
            }
          }
        }
      }
    }
  });
}

template <class T>
struct Factored {
  Padded<T> u;
  std::vector<T> corners, work;

  explicit Factored(const MatrixXd& a) : u(a) {
    for (std::int64_t i = a.rows(); i < u.rows(); ++i) u.block().Row(i)[i] = T(1);
    corners.resize(static_cast<std::size_t>(u.rows() * linalg::kCornerNumbers));
    work.resize(static_cast<std::size_t>(2 * u.rows()));
  }
  UpperFactor<T> factor() { return {u.block(), corners.data()}; }
};

TYPED_TEST(Linalg, CholeskyAndBothSolves) {
  using T = TypeParam;
  OnEveryTarget<T>([](const LinalgKernels<T>& kernels) {
    for (const std::int64_t n : kSizes) {
      const MatrixXd a = Gram<T>(n, 4);
      Factored<T> f(a);
      ASSERT_EQ(kernels.factor(f.factor(), f.u.rows(), n, f.work.data()), f.u.rows()) << n;
      const MatrixXd u = f.u.Part(n, n).template triangularView<Eigen::Upper>();
      EXPECT_LE((u.transpose() * u - a).norm(),
                4 * static_cast<double>(n) * kEpsilon<T> * a.norm());
      const MatrixXd b = Rounded<T>(Random(n, n + 2, 5));
      const Padded<T> x(b);
      const double tolerance =
          4 * static_cast<double>(n) * kEpsilon<T> * u.norm() * u.inverse().norm();
      kernels.solve_down(f.factor(), f.u.rows(), x.block(), x.columns());
      const MatrixXd down = u.transpose().template triangularView<Eigen::Lower>().solve(b);
      EXPECT_LE((x.Part(n, n + 2) - down).norm(), tolerance * down.norm()) << n;
      const Padded<T> y(b);
      kernels.solve_up(f.factor(), f.u.rows(), y.block(), y.columns());
      const MatrixXd up = u.template triangularView<Eigen::Upper>().solve(b);
      EXPECT_LE((y.Part(n, n + 2) - up).norm(), tolerance * up.norm()) << n;
    }
  });
}

// The last of n rows is a sum of others (or zero, or NaN): there the factor stops, and rows before
// it are right.
TYPED_TEST(Linalg, CholeskyStopsAtAPivotThatIsNone) {
  using T = TypeParam;
  OnEveryTarget<T>([](const LinalgKernels<T>& kernels) {
    for (const std::int64_t n : kSizes) {
      if (n == 1) continue;
      for (int kind = 0; kind < 3; ++kind) {
        MatrixXd keys = Random(2 * n, n, 6);
        keys.col(n - 1) = kind == 0 ? VectorXd(keys.leftCols(n - 1).rowwise().sum())
                                    : VectorXd(VectorXd::Zero(2 * n));
        MatrixXd a = Rounded<T>(keys.transpose() * keys);
        if (kind == 2) a(n - 1, n - 1) = std::numeric_limits<double>::quiet_NaN();
        Factored<T> f(a);
        EXPECT_EQ(kernels.factor(f.factor(), f.u.rows(), n, f.work.data()), n - 1)
            << n << ", kind " << kind;
      }
    }
  });
}

TYPED_TEST(Linalg, SystemsSideBySide) {
  using T = TypeParam;
  OnEveryTarget<T>([](const LinalgKernels<T>& kernels) {
    const std::int64_t lanes = kernels.systems_at_once();
    for (const std::int64_t n : kSizes) {
      for (const std::int64_t sides : {std::int64_t{1}, std::int64_t{2}, std::int64_t{3}}) {
        std::vector<T> h, key, b, decay, regular(static_cast<std::size_t>(lanes));
        const VectorXd ridge = VectorXd::Constant(n, 0.25);
        std::vector<MatrixXd> systems, rights;
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          const auto seed = static_cast<unsigned>(7 + lane);
          const MatrixXd gram = Gram<T>(n, seed);
          const MatrixXd k = Rounded<T>(Random(n, 1, seed + 100));
          const MatrixXd right = Rounded<T>(Random(n, sides, seed + 200));
          const double g = lane % 3 == 2 ? 0 : 0.5;  // what is forgotten leaves the key and ridge
          for (std::int64_t i = 0; i < n * n; ++i) h.push_back(static_cast<T>(gram(i / n, i % n)));
          for (std::int64_t i = 0; i < n; ++i) key.push_back(static_cast<T>(k(i, 0)));
          for (std::int64_t i = 0; i < n * sides; ++i) {
            b.push_back(static_cast<T>(right(i % n, i / n)));
          }
          decay.push_back(static_cast<T>(g));
          systems.push_back(g * gram + k * k.transpose() + MatrixXd(ridge.asDiagonal()));
          rights.push_back(right);
        }
        kernels.solve_systems(
            {n, sides, h.data(), key.data(), decay.data(), ridge.data(), b.data(), regular.data()});
        for (std::int64_t lane = 0; lane < lanes; ++lane) {
          const auto l = static_cast<std::size_t>(lane);
          EXPECT_EQ(regular[l], T(1));
          const MatrixXd expected = systems[l].llt().solve(rights[l]);
          const double condition = systems[l].norm() * systems[l].inverse().norm();
          MatrixXd computed(n, sides);
          for (std::int64_t i = 0; i < n * sides; ++i) {
            computed(i % n, i / n) =
                static_cast<double>(b[static_cast<std::size_t>(lane * n * sides + i)]);
          }
          EXPECT_LE((computed - expected).norm(),
                    8 * static_cast<double>(n) * kEpsilon<T> * condition * expected.norm())
              << n << ", lane " << lane;
        }
      }
    }
  });
}

// A system that is singular (or NaN) is told, and no other lane sees it.
TYPED_TEST(Linalg, SingularSystemsStayInTheirLanes) {
  using T = TypeParam;
  OnEveryTarget<T>([](const LinalgKernels<T>& kernels) {
    const std::int64_t lanes = kernels.systems_at_once(), n = 5;
    for (std::int64_t bad = 0; bad < lanes; ++bad) {
      std::vector<T> h, key(static_cast<std::size_t>(lanes * n)), b(key.size(), T(1)), regular;
      const std::vector<T> decay(static_cast<std::size_t>(lanes), T(1));
      regular.resize(decay.size());
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        MatrixXd gram = MatrixXd::Identity(n, n);
        if (lane == bad) {
          gram(3, 3) = bad % 2 == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
        }
        for (std::int64_t i = 0; i < n * n; ++i) h.push_back(static_cast<T>(gram(i / n, i % n)));
      }
      const std::vector<double> ridge(static_cast<std::size_t>(n), 0);
      kernels.solve_systems(
          {n, 1, h.data(), key.data(), decay.data(), ridge.data(), b.data(), regular.data()});
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        EXPECT_EQ(regular[static_cast<std::size_t>(lane)], lane == bad ? T(0) : T(1));
        for (std::int64_t i = 0; i < n && lane != bad; ++i) {
          EXPECT_EQ(b[static_cast<std::size_t>(lane * n + i)], T(1)) << lane;
        }
      }
    }
  });
}

TYPED_TEST(Linalg, InversesOfDiagonalBlocks) {
  using T = TypeParam;
  OnEveryTarget<T>([](const LinalgKernels<T>& kernels) {
    for (const std::int64_t n : kSizes) {
      for (const std::int64_t size : {std::int64_t{1}, std::int64_t{3}, std::int64_t{8}}) {
        const std::int64_t block = std::min(size, n);
        MatrixXd a = Gram<double>(n, 8);
        if (n > 4) a.row(2).setZero(), a.col(2).setZero();  // a channel that was never seen
        std::vector<T> to(static_cast<std::size_t>(n * block + kUnit));
        kernels.invert_blocks(n, block, a.data(), to.data());
        for (std::int64_t begin = 0; begin < n; begin += block) {
          const std::int64_t count = std::min(block, n - begin);
          const MatrixXd own = a.block(begin, begin, count, count);
          const MatrixXd expected = own.completeOrthogonalDecomposition().pseudoInverse();
          for (std::int64_t i = 0; i < count; ++i) {
            for (std::int64_t c = 0; c < count; ++c) {
              EXPECT_NEAR(
                  static_cast<double>(to[static_cast<std::size_t>((begin + i) * block + c)]),
                  expected(i, c), 100 * kEpsilon<T> * expected.norm())
                  << n << ", " << block;
            }
          }
        }
      }
    }
  });
}

TEST(LinalgEigen, Eigensystems) {
  for (const std::string& name : test::Targets()) {
    SCOPED_TRACE(name);
    const test::OnTarget on(name);
    for (const std::int64_t n : kSizes) {
      for (const std::int64_t rank : {std::int64_t{1}, n / 2 + 1, n}) {
        for (std::int64_t count = 1; count <= test::EigensystemsAtOnce(); ++count) {
          const std::int64_t stride = RoundUp(rank, 8);
          std::vector<double> a, values(static_cast<std::size_t>(count * n));
          // Vectors of the widest target, aligned.
          std::vector<double> room(static_cast<std::size_t>(count * n * stride + 8));
          const auto address = reinterpret_cast<std::uintptr_t>(room.data());
          double* const vectors = room.data() + (64 - address % 64) % 64 / sizeof(double);
          std::vector<MatrixXd> matrices;
          for (std::int64_t lane = 0; lane < count; ++lane) {
            const MatrixXd keys =
                Random(lane % 2 == 0 ? n : (n + 1) / 2, n, static_cast<unsigned>(9 + lane));
            matrices.push_back(keys.transpose() * keys);  // every other one is singular
            a.insert(a.end(), matrices.back().data(), matrices.back().data() + n * n);
          }
          test::FindEigensystems(n, count, rank, a.data(), values.data(), vectors);
          for (std::int64_t lane = 0; lane < count; ++lane) {
            const MatrixXd& matrix = matrices[static_cast<std::size_t>(lane)];
            const double tolerance = 1e-14 * static_cast<double>(n + 8) * matrix.norm();
            const VectorXd expected =
                Eigen::SelfAdjointEigenSolver<MatrixXd>(matrix).eigenvalues().reverse();
            MatrixXd v(n, rank);
            for (std::int64_t i = 0; i < n; ++i) {
              EXPECT_NEAR(values[static_cast<std::size_t>(lane * n + i)], expected(i), tolerance);
              for (std::int64_t j = 0; j < rank; ++j) {
                v(i, j) = vectors[(lane * n + i) * stride + j];
              }
            }
            EXPECT_LE((matrix * v - v * expected.head(rank).asDiagonal()).norm(), 4 * tolerance);
            EXPECT_LE((v.transpose() * v - MatrixXd::Identity(rank, rank)).norm(),
                      1e-13 * static_cast<double>(n));
          }
        }
      }
    }
  }
}

TEST(LinalgEigen, EigenvaluesOfWhatIsNotFiniteAreNan) {
  for (const std::string& name : test::Targets()) {
    const test::OnTarget on(name);
    MatrixXd a = MatrixXd::Identity(6, 6);
    a(4, 4) = std::numeric_limits<double>::infinity();
    std::vector<double> values(6), vectors(64);
    test::FindEigensystems(6, 1, 0, a.data(), values.data(), vectors.data());
    for (const double value : values) EXPECT_TRUE(std::isnan(value)) << name;
  }
}

TEST(MinimumNorm, IsThePseudoInverse) {
  linalg::MinimumNorm solver;
  for (const std::int64_t n : kSizes) {
    for (const std::int64_t rank : {n, (n + 1) / 2, std::int64_t{0}}) {
      const MatrixXd keys = Random(std::max<std::int64_t>(rank, 1), n, 10);
      const MatrixXd a =
          rank == 0 ? MatrixXd(MatrixXd::Zero(n, n)) : MatrixXd(keys.transpose() * keys);
      solver.Factor(n, a.data(), linalg::Rounding<double>(n), linalg::kFaded<double>);
      EXPECT_EQ(solver.singular(), rank < n) << n << ", " << rank;
      Eigen::CompleteOrthogonalDecomposition<MatrixXd> defined;
      defined.setThreshold(1e-10);
      defined.compute(a);
      const MatrixXd inverse = defined.pseudoInverse();
      const VectorXd q = Random(n, 1, 11);
      VectorXd x(n);
      solver.Solve(q.data(), x.data());
      const double condition = std::max(1.0, a.norm() * inverse.norm());
      EXPECT_LE((x - inverse * q).norm(),
                1e-14 * static_cast<double>(n) * condition * inverse.norm() * q.norm())
          << n << ", " << rank;
    }
  }
}

TEST(MinimumNorm, OfWhatIsNotFiniteIsNan) {
  MatrixXd a = MatrixXd::Identity(3, 3);
  a(1, 0) = std::numeric_limits<double>::quiet_NaN();
  linalg::MinimumNorm solver;
  solver.Factor(3, a.data(), linalg::Rounding<double>(3), linalg::kFaded<double>);
  const VectorXd q = VectorXd::Ones(3);
  VectorXd x(3);
  solver.Solve(q.data(), x.data());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(x(i)));
}

}  // namespace
}  // namespace ttr
