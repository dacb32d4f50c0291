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
             << (c.gate ? " gate" : "") << (c.gate_kind == Gate::kSigmoid ? " sigmoid" : "")
             << (c.gate_first ? " first" : "") << (c.shared ? " shared" : "") << " of "
             << Name(c.data);
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
      for (const Gate gate_kind : {Gate::kSilu, Gate::kSigmoid}) {
        for (const bool gate_first : {false, true}) {
          for (const std::int64_t dim : {1, 5, 33}) {
            cases.push_back({.kind = kind,
                             .dim = dim,
                             .weight = true,
                             .bias = true,
                             .gate = true,
                             .data = data,
                             .gate_kind = gate_kind,
                             .gate_first = gate_first});
            cases.push_back({.kind = kind,
                             .dim = dim,
                             .gate = true,
                             .data = data,
                             .gate_kind = gate_kind,
                             .gate_first = gate_first});
          }
        }
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
        const auto g = [&](std::int64_t d) {
          if (!c.gate) return 1.0;
          const double z = problem.gate.view().At({b, t, h, d});
          return (c.gate_kind == Gate::kSilu ? z : 1) / (1 + std::exp(-z));
        };
        std::vector<double> row;
        double mean = 0, square = 0, size = 0;
        for (std::int64_t d = 0; d < c.dim; ++d) {
          row.push_back(problem.x.view().At({b, t, h, d}) * (c.gate_first ? g(d) : 1));
          mean += row.back() / count;
          size += std::abs(row.back()) / count;
        }
        if (c.kind != RowNorm::kLayer) mean = 0;
        for (const double x : row) square += std::pow(x - mean, 2);
        if (c.kind != RowNorm::kL2) square /= count;
        const double root = std::sqrt(square + c.eps);
        for (std::int64_t d = 0; d < c.dim; ++d) {
          const double x = row[static_cast<std::size_t>(d)];
          const double n = root == 0 ? 0 : (x - mean) / root;
          const double w = Parameter(problem.weight, h, d, 1);
          const double shift = Parameter(problem.bias, h, d, 0);
          const double after = c.gate_first ? 1 : g(d);
          expected.y.push_back((n * w + shift) * after);
          // What cancels in x - mean does so in double, but for the rounding of a gated x.
          const double cancels = c.gate_first ? 5 * eps : std::numeric_limits<double>::epsilon();
          const double wide =
              cancels * (4 + std::sqrt(count)) * (std::abs(x) + size) / std::max(root, 1e-300);
          expected.bound.push_back(
              ((5 * eps * std::abs(n) + wide) * std::abs(w) + 5 * eps * std::abs(shift)) *
                  std::abs(after) +
              (5 * eps + storage) * std::abs(expected.y.back()));
        }
      }
    }
  }
  return expected;
}

}  // namespace ttr::test
