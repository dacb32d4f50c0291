#include "ttr/norm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "tests/engines/short_conv_case.h"
#include "ttr/error.h"
#include "ttr/target.h"

namespace ttr::test {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

struct NormCase {
  RowNorm kind = RowNorm::kRms;
  double eps = 1e-5;
  std::int64_t batch = 1, tokens = 3, heads = 2, dim = 5;
  bool weight = false, bias = false, gate = false, shared = false;
  DType data = DType::kFloat32;
};

std::ostream& operator<<(std::ostream& out, const NormCase& c) {
  constexpr const char* kNames[] = {"l2", "rms", "layer"};
  return out << kNames[static_cast<int>(c.kind)] << " eps=" << c.eps << " T=" << c.tokens
             << " D=" << c.dim << (c.weight ? " weight" : "") << (c.bias ? " bias" : "")
             << (c.gate ? " gate" : "") << (c.shared ? " shared" : "") << " of " << Name(c.data);
}

std::vector<NormCase> NormCases() {
  std::vector<NormCase> cases;
  for (const RowNorm kind : {RowNorm::kL2, RowNorm::kRms, RowNorm::kLayer}) {
    for (const DType data : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      for (const std::int64_t dim : {1, 2, 4, 7, 8, 9, 16, 33, 64, 100}) {
        cases.push_back({.kind = kind, .dim = dim, .data = data});
        cases.push_back({.kind = kind,
                         .eps = 0,
                         .dim = dim,
                         .weight = true,
                         .gate = true,
                         .shared = true,
                         .data = data});
        cases.push_back(
            {.kind = kind, .dim = dim, .weight = true, .bias = true, .gate = true, .data = data});
      }
      for (const std::int64_t tokens : {0, 1, 127, 128, 129}) {
        cases.push_back({.kind = kind, .batch = 2, .tokens = tokens, .bias = true, .data = data});
      }
    }
  }
  return cases;
}

struct NormProblem {
  explicit NormProblem(const NormCase& given)
      : c(given), x(c.data, {c.batch, c.tokens, c.heads, c.dim}), y(c.data, x.shape()) {
    FillNormal(x, 1);
    FillNan(y);
    const Shape shape = c.shared ? Shape{c.dim} : Shape{c.heads, c.dim};
    if (c.weight) FillNormal(weight = Tensor(c.data, shape), 2);
    if (c.bias) FillNormal(bias = Tensor(c.data, shape), 3);
    if (c.gate) FillNormal(gate = Tensor(c.data, x.shape()), 4);
  }
  Norm norm() const { return {c.kind, c.eps, weight.view(), bias.view()}; }
  NormInputs inputs() const { return {x.view(), gate.view()}; }

  NormCase c;
  Tensor x, weight, bias, gate, y;
};

struct NormExpected {
  std::vector<double> y, bound;
};

double Parameter(const Tensor& tensor, std::int64_t h, std::int64_t d, double otherwise) {
  if (!tensor.defined()) return otherwise;
  return tensor.shape().rank() == 1 ? tensor.view().At({d}) : tensor.view().At({h, d});
}

/// The equations of norm.h, written out.
NormExpected Normed(const NormProblem& problem) {
  const NormCase& c = problem.c;
  NormExpected expected;
  const double eps = c.data == DType::kFloat64
                         ? std::numeric_limits<double>::epsilon()
                         : static_cast<double>(std::numeric_limits<float>::epsilon());
  const double storage = c.data == DType::kBFloat16 ? 1.0 / 256 : 0;
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      for (std::int64_t h = 0; h < c.heads; ++h) {
        const double count = static_cast<double>(c.dim);
        double mean = 0, square = 0, size = 0;
        for (std::int64_t d = 0; d < c.dim; ++d) {
          mean += problem.x.view().At({b, t, h, d}) / count;
          size += std::abs(problem.x.view().At({b, t, h, d})) / count;
        }
        if (c.kind != RowNorm::kLayer) mean = 0;
        for (std::int64_t d = 0; d < c.dim; ++d) {
          square += std::pow(problem.x.view().At({b, t, h, d}) - mean, 2);
        }
        if (c.kind != RowNorm::kL2) square /= count;
        const double root = std::sqrt(square + c.eps);
        for (std::int64_t d = 0; d < c.dim; ++d) {
          const double x = problem.x.view().At({b, t, h, d});
          const double n = root == 0 ? 0 : (x - mean) / root;
          const double w = Parameter(problem.weight, h, d, 1);
          const double shift = Parameter(problem.bias, h, d, 0);
          double silu = 1;
          if (c.gate) {
            const double g = problem.gate.view().At({b, t, h, d});
            silu = g / (1 + std::exp(-g));
          }
          expected.y.push_back((n * w + shift) * silu);
          // What cancels in x - mean does so in double.
          const double wide = std::numeric_limits<double>::epsilon() * (4 + std::sqrt(count)) *
                              (std::abs(x) + size) / std::max(root, 1e-300);
          expected.bound.push_back(
              ((5 * eps * std::abs(n) + wide) * std::abs(w) + 5 * eps * std::abs(shift)) *
                  std::abs(silu) +
              (5 * eps + storage) * std::abs(expected.y.back()));
        }
      }
    }
  }
  return expected;
}

class NormOnTarget : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ForceTarget(GetParam()); }
  void TearDown() override { ForceTarget(""); }
};
INSTANTIATE_TEST_SUITE_P(Targets, NormOnTarget, testing::ValuesIn(SupportedTargets()),
                         [](const auto& target) { return target.param; });

TEST_P(NormOnTarget, IsTheEquation) {
  for (const NormCase& c : NormCases()) {
    if (c.kind == RowNorm::kLayer && c.dim == 1 && c.eps == 0) continue;  // 0 / 0, below
    const NormProblem problem(c);
    const NormExpected expected = Normed(problem);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    ExpectWithin(problem.y, expected.y, expected.bound, testing::PrintToString(c));
    if (HasFatalFailure()) return;
  }
}

TEST(Norm, ZeroRowsStayZero) {
  for (const RowNorm kind : {RowNorm::kL2, RowNorm::kRms, RowNorm::kLayer}) {
    const NormProblem problem(NormCase{.kind = kind, .eps = 0, .weight = true, .bias = true});
    for (std::int64_t d = 0; d < 5; ++d) problem.x.view().Set({0, 1, 0, d}, 0);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    Tensor dy(DType::kFloat32, problem.x.shape()), dx(DType::kFloat32, problem.x.shape());
    FillNormal(dy, 5);
    FillNan(dx);
    ApplyNormGradient(problem.norm(), problem.inputs(), dy, {.dx = dx});
    for (std::int64_t d = 0; d < 5; ++d) {
      EXPECT_EQ(problem.y.view().At({0, 1, 0, d}), problem.bias.view().At({0, d}));
      EXPECT_EQ(dx.view().At({0, 1, 0, d}), 0);
    }
  }
}

TEST(Norm, OfHugeAndTinyRowsNeitherOverflowsNorVanishes) {
  for (const double scale : {1e30, 1e-30, 1e38, 1e-38}) {
    const NormProblem problem(NormCase{.kind = RowNorm::kL2, .eps = 0, .heads = 1, .dim = 2});
    problem.x.view().Set({0, 0, 0, 0}, 3 * scale);
    problem.x.view().Set({0, 0, 0, 1}, scale);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    EXPECT_NEAR(problem.y.view().At({0, 0, 0, 0}), 3 / std::sqrt(10.0), 1e-6) << scale;
  }
}

// A mean a million times the deviations: in float it would leave nothing.
TEST(Norm, TakesTheMeanOffInDouble) {
  const NormProblem problem(NormCase{.kind = RowNorm::kLayer, .eps = 0, .heads = 1, .dim = 2});
  problem.x.view().Set({0, 0, 0, 0}, 8388608);
  problem.x.view().Set({0, 0, 0, 1}, 8388609);
  ApplyNorm(problem.norm(), problem.inputs(), problem.y);
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 0}), -1);
  EXPECT_EQ(problem.y.view().At({0, 0, 0, 1}), 1);
}

TEST(Norm, KeepsNanInItsRow) {
  for (const RowNorm kind : {RowNorm::kL2, RowNorm::kRms, RowNorm::kLayer}) {
    const NormProblem problem(NormCase{.kind = kind, .weight = true, .gate = true});
    problem.x.view().Set({0, 1, 0, 3}, kNaN);
    ApplyNorm(problem.norm(), problem.inputs(), problem.y);
    for (std::int64_t t = 0; t < 3; ++t) {
      for (std::int64_t h = 0; h < 2; ++h) {
        for (std::int64_t d = 0; d < 5; ++d) {
          EXPECT_EQ(std::isnan(problem.y.view().At({0, t, h, d})), t == 1 && h == 0);
        }
      }
    }
  }
}

TEST(Norm, MayWriteOverItsInput) {
  const NormProblem apart(NormCase{.weight = true, .gate = true});
  const NormProblem over(NormCase{.weight = true, .gate = true});
  ApplyNorm(apart.norm(), apart.inputs(), apart.y);
  ApplyNorm(over.norm(), over.inputs(), over.x);
  for (std::size_t i = 0; i < apart.y.as<float>().size(); ++i) {
    EXPECT_EQ(apart.y.as<float>()[i], over.x.as<float>()[i]);
  }
}

TEST(Norm, TakesAnyStrides) {
  const NormProblem problem(NormCase{.kind = RowNorm::kLayer, .tokens = 4, .weight = true});
  ApplyNorm(problem.norm(), problem.inputs(), problem.y);
  Tensor x(DType::kFloat32, {2, 4, 7}), y(DType::kFloat32, {2, 4, 7});
  const std::int64_t strides[] = {0, 7, 28, 1};
  const TensorView x_view(x.data(), DType::kFloat32, {1, 4, 2, 5}, strides);
  const TensorView y_view(y.data(), DType::kFloat32, {1, 4, 2, 5}, strides);
  CopyInto(problem.x, x_view);
  ApplyNorm(problem.norm(), {.x = x_view}, y_view);
  const Tensor copy = Tensor::Copy(y_view);
  for (std::size_t i = 0; i < copy.as<float>().size(); ++i) {
    EXPECT_EQ(copy.as<float>()[i], problem.y.as<float>()[i]);
  }
  for (std::size_t i = 0; i < y.as<float>().size(); ++i) {
    if (i % 7 >= 5) {
      EXPECT_EQ(y.as<float>()[i], 0) << "beside y";
    }
  }
}

TEST(Norm, SaysWhatIsWrong) {
  const NormProblem p(NormCase{.weight = true});
  const auto message = [&](const Norm& norm, const NormInputs& in, const TensorView& y) {
    try {
      ApplyNorm(norm, in, y);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(message({.eps = -1}, p.inputs(), p.y),
            "[norm] eps must be a finite number, 0 or more but is -1.000000");
  EXPECT_EQ(message({.weight = p.x.view()}, p.inputs(), p.y),
            "[norm] weight must be float32, float64 or bfloat16 [D] or [H,D] = [2, 5] but is "
            "float32 [1, 3, 2, 5]");
  EXPECT_EQ(message(p.norm(), p.inputs(), p.weight),
            "[norm] y must be float32, float64 or bfloat16 [B,T,H,D] = [1, 3, 2, 5] but is float32 "
            "[2, 5]");
}

/// Gradients by central differences of the equations in double.
struct Derivatives {
  explicit Derivatives(const NormProblem& problem)
      : dy(DType::kFloat64, problem.x.shape()), dx(DType::kFloat64, problem.x.shape()) {
    FillNormal(dy, 9);
    if (problem.c.weight) dweight = Tensor(DType::kFloat64, problem.weight.shape());
    if (problem.c.bias) dbias = Tensor(DType::kFloat64, problem.bias.shape());
    if (problem.c.gate) dgate = Tensor(DType::kFloat64, problem.x.shape());
    for (const Tensor* tensor : {&dx, &dweight, &dbias, &dgate}) {
      if (tensor->defined()) FillNan(*tensor);
    }
  }
  NormGradients call() const { return {dx.view(), dweight.view(), dbias.view(), dgate.view()}; }
  double Loss(const NormProblem& problem) const {
    const NormExpected expected = Normed(problem);
    double loss = 0;
    for (std::size_t i = 0; i < expected.y.size(); ++i) loss += dy.as<double>()[i] * expected.y[i];
    return loss;
  }
  Tensor dy, dx, dweight, dbias, dgate;
};

TEST_P(NormOnTarget, GradientIsTheDerivative) {
  for (NormCase c : NormCases()) {
    if (c.data != DType::kFloat64 || c.dim > 16 || c.tokens > 3) continue;
    if (c.kind == RowNorm::kLayer && c.dim <= 2 && c.eps == 0) continue;  // constant: n is 0 or 1
    const NormProblem problem(c);
    const Derivatives g(problem);
    ApplyNormGradient(problem.norm(), problem.inputs(), g.dy, g.call());
    const auto expect = [&](const Tensor& input, const Tensor& gradient, const char* name) {
      for (std::int64_t i = 0; i < input.elements(); ++i) {
        double& value = input.as<double>()[static_cast<std::size_t>(i)];
        const double before = value;
        // Rows of one or two entries may be near 0, where the norm bends: a step that is small
        // beside them.
        const double step = 1e-5 * std::abs(before);
        value = before + step;
        const double above = g.Loss(problem);
        value = before - step;
        const double below = g.Loss(problem);
        value = before;
        const double expected = (above - below) / (2 * step);
        ASSERT_NEAR(gradient.as<double>()[static_cast<std::size_t>(i)], expected,
                    1e-7 * (1 + std::abs(expected)) + 1e-14 * std::abs(above) / step)
            << c << " " << name << " " << i;
      }
    };
    expect(problem.x, g.dx, "dx");
    if (c.weight) expect(problem.weight, g.dweight, "dweight");
    if (c.bias) expect(problem.bias, g.dbias, "dbias");
    if (c.gate) expect(problem.gate, g.dgate, "dgate");
    if (HasFatalFailure()) return;
  }
}

TEST(Norm, GradientInNarrowTypesIsThatInDouble) {
  for (const RowNorm kind : {RowNorm::kL2, RowNorm::kRms, RowNorm::kLayer}) {
    NormCase c{.kind = kind, .tokens = 300, .dim = 24, .weight = true, .bias = true, .gate = true};
    const NormProblem narrow(c);
    c.data = DType::kFloat64;
    const NormProblem wide(c);
    CopyInto(narrow.x, wide.x);
    CopyInto(narrow.weight, wide.weight);
    CopyInto(narrow.bias, wide.bias);
    CopyInto(narrow.gate, wide.gate);
    const Derivatives g(narrow), exact(wide);
    ApplyNormGradient(narrow.norm(), narrow.inputs(), g.dy, g.call());
    ApplyNormGradient(wide.norm(), wide.inputs(), exact.dy, exact.call());
    // Terms are products of some four normal numbers, below 100; parameters sum one a row.
    const double eps = static_cast<double>(std::numeric_limits<float>::epsilon());
    const auto expect = [&](const Tensor& a, const Tensor& b, double terms, const char* name) {
      const std::vector<double> values(b.as<double>().begin(), b.as<double>().end());
      ExpectWithin(a, values, std::vector<double>(values.size(), 100 * eps * std::sqrt(terms)),
                   name);
    };
    expect(g.dx, exact.dx, 1, "dx");
    expect(g.dgate, exact.dgate, 1, "dgate");
    expect(g.dweight, exact.dweight, 300, "dweight");
    expect(g.dbias, exact.dbias, 300, "dbias");
  }
}

TEST(Norm, HasTheSameBitsForAnyNumberOfThreads) {
  const NormCase c{.tokens = 3000, .dim = 48, .weight = true, .gate = true, .shared = true};
  const auto three = MakeExecutor(3);
  const NormProblem one(c), many(c);
  const Derivatives g(one), h(many);
  ApplyNorm(one.norm(), one.inputs(), one.y, SequentialExecutor());
  ApplyNorm(many.norm(), many.inputs(), many.y, *three);
  ApplyNormGradient(one.norm(), one.inputs(), g.dy, g.call(), SequentialExecutor());
  ApplyNormGradient(many.norm(), many.inputs(), h.dy, h.call(), *three);
  EXPECT_TRUE(
      std::equal(one.y.as<float>().begin(), one.y.as<float>().end(), many.y.as<float>().begin()));
  EXPECT_TRUE(
      std::equal(g.dx.as<double>().begin(), g.dx.as<double>().end(), h.dx.as<double>().begin()));
  EXPECT_TRUE(std::equal(g.dweight.as<double>().begin(), g.dweight.as<double>().end(),
                         h.dweight.as<double>().begin()));
}

}  // namespace
}  // namespace ttr::test
