#include "tests/engines/gates_case.h"

#include <algorithm>
#include <cmath>

#include "tests/support/engines.h"

namespace ttr::test {
namespace {

constexpr DType kFloating[] = {DType::kFloat32, DType::kFloat64, DType::kBFloat16};

/// The parameter that number i of a contiguous [B, T, H, D] takes.
double ParameterOf(const Tensor& tensor, std::int64_t i, std::int64_t heads, std::int64_t dim,
                   double otherwise) {
  if (!tensor.defined()) return otherwise;
  const std::int64_t channel = i % dim, head = i / dim % heads;
  const bool row = tensor.shape().rank() == 2;
  return LoadElement(tensor.data(), tensor.dtype(), row ? head * dim + channel : head);
}

/// What storing adds to the error, where outputs are narrower than the arithmetic.
double StorageOf(DType outputs, DType data) {
  if (outputs == DType::kBFloat16) return Epsilon(outputs) / 2;
  return outputs == DType::kFloat32 && data == DType::kFloat64 ? Epsilon(outputs) / 2 : 0;
}

double ArithmeticEpsilon(DType dtype) {
  return Epsilon(dtype == DType::kFloat64 ? dtype : DType::kFloat32);
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const GateCase& c) {
  out << (c.rate ? "decay" : "step") << " B=" << c.batch << " T=" << c.tokens << " H=" << c.heads
      << " D=" << c.dim << (c.bias ? " bias" : "") << (c.a_row ? " a of rows" : "")
      << (c.bias_row ? " bias of rows" : "") << " scale=" << c.scale;
  if (!c.rate) out << " within " << c.low << " .. " << c.high;
  return out << " of " << Name(c.data) << ", " << Name(c.parameters) << ", " << Name(c.outputs);
}

std::vector<GateCase> GateCases() {
  std::vector<GateCase> cases;
  for (const bool rate : {true, false}) {
    for (const std::int64_t dim : {0, 1, 2, 7, 8, 16, 33, 100}) {
      for (const bool row : {true, false}) {
        cases.push_back({.dim = dim, .rate = rate, .a_row = row, .bias_row = !row});
      }
      cases.push_back({.dim = dim, .rate = rate, .bias = false});
    }
    for (const std::int64_t heads : {1, 3, 16, 40}) {
      cases.push_back({.batch = 2, .heads = heads, .dim = 0, .rate = rate});
    }
    for (const std::int64_t tokens : {0, 1, 2, 1000}) {
      cases.push_back({.tokens = tokens, .heads = 24, .dim = 0, .rate = rate});
      cases.push_back({.tokens = tokens, .dim = 20, .rate = rate});
    }
    for (const double scale : {1e-3, 10.0, 50.0, 300.0}) {
      for (const DType data : {DType::kFloat32, DType::kFloat64}) {
        cases.push_back({.tokens = 40,
                         .rate = rate,
                         .scale = scale,
                         .data = data,
                         .parameters = data,
                         .outputs = data});
      }
    }
    for (const DType data : kFloating) {
      for (const DType parameters : kFloating) {
        for (const DType outputs : kFloating) {
          cases.push_back({.dim = 19,
                           .rate = rate,
                           .data = data,
                           .parameters = parameters,
                           .outputs = outputs});
        }
      }
    }
  }
  cases.push_back({.tokens = 40, .rate = false, .low = 0.5, .high = 1, .scale = 2});
  cases.push_back({.tokens = 40, .dim = 0, .rate = false, .low = 1e-3, .high = 0.1, .scale = 4});
  return cases;
}

GateProblem::GateProblem(const GateCase& given) : c(given) {
  const Shape shape =
      c.dim == 0 ? Shape{c.batch, c.tokens, c.heads} : Shape{c.batch, c.tokens, c.heads, c.dim};
  x = Tensor(c.data, shape);
  y = Tensor(c.outputs, shape);
  FillNormal(x, 1);
  for (std::int64_t i = 0; i < x.elements(); ++i) {
    StoreElement(x.data(), c.data, i, c.scale * LoadElement(x.data(), c.data, i));
  }
  FillNan(y);
  const auto parameter = [&](bool row) {
    return Tensor(c.parameters, row && c.dim > 0 ? Shape{c.heads, c.dim} : Shape{c.heads});
  };
  if (c.rate) FillNormal(a = parameter(c.a_row), 2);
  if (c.bias) FillNormal(bias = parameter(c.bias_row), 3);
}

void GateProblem::Apply(Executor& executor) const {
  if (c.rate) {
    ApplyDecayGate({a.view(), bias.view()}, x, y, executor);
  } else {
    ApplyStepGate({bias.view(), c.low, c.high}, x, y, executor);
  }
}

GateExpected Gated(const GateProblem& problem) {
  const GateCase& c = problem.c;
  const std::int64_t dim = std::max<std::int64_t>(c.dim, 1);
  const double eps = ArithmeticEpsilon(c.data);
  GateExpected expected;
  for (std::int64_t i = 0; i < problem.x.elements(); ++i) {
    const double u =
        LoadElement(problem.x.data(), c.data, i) + ParameterOf(problem.bias, i, c.heads, dim, 0);
    const double softplus = std::max(u, 0.0) + std::log1p(std::exp(-std::abs(u)));
    const double slope = 1 / (1 + std::exp(-u));
    double y = std::clamp(softplus, c.rate ? 0 : c.low, c.rate ? 1e300 : c.high);
    if (c.rate) y *= -std::exp(ParameterOf(problem.a, i, c.heads, dim, 0));
    expected.y.push_back(y);
    // Rounding of the argument: of u itself, and of parameters that are wider than the arithmetic.
    const double argument =
        2 * (std::abs(u) + std::abs(ParameterOf(problem.bias, i, c.heads, dim, 0))) * slope /
        std::max(softplus, 1e-300);
    const double rate = 2 * std::abs(ParameterOf(problem.a, i, c.heads, dim, 0));
    // Below the normal numbers fewer digits are left.
    const double least = c.data == DType::kFloat64 ? 0 : 4e-45;
    expected.bound.push_back(
        (eps * (6 + argument + rate) + StorageOf(c.outputs, c.data)) * std::abs(y) + 4 * least);
  }
  return expected;
}

std::ostream& operator<<(std::ostream& out, const SkipCase& c) {
  return out << "B=" << c.batch << " T=" << c.tokens << " H=" << c.heads << " D=" << c.dim
             << (c.x ? " x" : "") << (c.z ? " z" : "") << (c.d_row ? " d of rows" : "") << " of "
             << Name(c.data) << ", " << Name(c.parameters);
}

std::vector<SkipCase> SkipCases() {
  std::vector<SkipCase> cases;
  for (const std::int64_t dim : {1, 2, 7, 8, 16, 33, 100}) {
    for (const bool row : {true, false}) cases.push_back({.dim = dim, .d_row = row});
    cases.push_back({.dim = dim, .x = false});
    cases.push_back({.dim = dim, .z = false});
    cases.push_back({.dim = dim, .x = false, .z = false});
  }
  for (const std::int64_t tokens : {0, 1, 2, 1000}) {
    cases.push_back({.batch = 2, .tokens = tokens, .dim = 20});
  }
  for (const DType data : kFloating) {
    for (const DType parameters : kFloating) {
      cases.push_back({.dim = 19, .d_row = true, .data = data, .parameters = parameters});
      cases.push_back({.dim = 19, .data = data, .parameters = parameters});
    }
    cases.push_back({.x = false, .z = false, .data = data});
  }
  return cases;
}

SkipProblem::SkipProblem(const SkipCase& given)
    : c(given), y(c.data, {c.batch, c.tokens, c.heads, c.dim}), out(c.data, y.shape()) {
  FillNormal(y, 1);
  if (c.x) {
    FillNormal(x = Tensor(c.data, y.shape()), 2);
    FillNormal(d = Tensor(c.parameters, c.d_row ? Shape{c.heads, c.dim} : Shape{c.heads}), 4);
  }
  if (c.z) FillNormal(z = Tensor(c.data, y.shape()), 3);
  FillNan(out);
}

GateExpected Skipped(const SkipProblem& problem) {
  const SkipCase& c = problem.c;
  const double eps = ArithmeticEpsilon(c.data);
  const auto at = [](const Tensor& tensor, std::int64_t i, double otherwise) {
    return tensor.defined() ? LoadElement(tensor.data(), tensor.dtype(), i) : otherwise;
  };
  GateExpected expected;
  for (std::int64_t i = 0; i < problem.y.elements(); ++i) {
    const double y = at(problem.y, i, 0);
    const double skip = ParameterOf(problem.d, i, c.heads, c.dim, 0) * at(problem.x, i, 0);
    const double z = at(problem.z, i, 0);
    const double silu = c.z ? z / (1 + std::exp(-z)) : 1;
    expected.y.push_back((y + skip) * silu);
    expected.bound.push_back(eps * (2 * (std::abs(y) + std::abs(skip)) * std::abs(silu) +
                                    4 * std::abs(expected.y.back())) +
                             StorageOf(c.data, c.data) * std::abs(expected.y.back()));
  }
  return expected;
}

}  // namespace ttr::test
