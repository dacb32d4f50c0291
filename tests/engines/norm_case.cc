#include "tests/engines/norm_case.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::test {
namespace {

double Parameter(const Tensor& tensor, std::int64_t h, std::int64_t d, double otherwise) {
  if (!tensor.defined()) return otherwise;
  return tensor.shape().rank() == 1 ? tensor.view().At({d}) : tensor.view().At({h, d});
}

}  // namespace

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

NormProblem::NormProblem(const NormCase& given)
    : c(given), x(c.data, {c.batch, c.tokens, c.heads, c.dim}), y(c.data, x.shape()) {
  FillNormal(x, 1);
  FillNan(y);
  const Shape shape = c.shared ? Shape{c.dim} : Shape{c.heads, c.dim};
  if (c.weight) FillNormal(weight = Tensor(c.data, shape), 2);
  if (c.bias) FillNormal(bias = Tensor(c.data, shape), 3);
  if (c.gate) FillNormal(gate = Tensor(c.data, x.shape()), 4);
}

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

}  // namespace ttr::test
