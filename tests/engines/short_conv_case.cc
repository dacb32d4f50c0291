#include "tests/engines/short_conv_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/engines.h"
#include "ttr/util/random.h"

namespace ttr::test {
std::ostream& operator<<(std::ostream& out, const ConvCase& c) {
  return out << c.name << " B=" << c.batch << " T=" << c.tokens << " H=" << c.heads
             << " D=" << c.dim << " W=" << c.width << (c.silu ? " silu" : "")
             << (c.bias ? " bias" : "") << (c.state ? "" : " without state") << " R=" << c.rows()
             << (c.channel_by_channel ? " channel by channel" : "") << " of " << Name(c.data)
             << ", " << Name(c.parameters) << ", " << Name(c.states);
}

std::vector<ConvCase> ConvCases() {
  std::vector<ConvCase> cases;
  for (std::int64_t width = 1; width <= 8; ++width) {
    cases.push_back({.name = "width", .width = width});
    cases.push_back({.name = "width",
                     .tokens = 70,
                     .dim = 17,
                     .width = width,
                     .silu = true,
                     .bias = true,
                     .data = DType::kFloat64,
                     .states = DType::kFloat64});
  }
  for (const std::int64_t dim : {1, 2, 3, 4, 7, 8, 15, 16, 31, 64, 96}) {
    cases.push_back({.name = "dim", .dim = dim, .silu = true, .bias = true});
  }
  for (const std::int64_t tokens : {0, 1, 2, 3, 4, 5, 63, 64, 65, 511, 512, 513, 1030}) {
    cases.push_back({.name = "tokens", .batch = 2, .tokens = tokens, .silu = true});
    cases.push_back({.name = "tokens", .tokens = tokens, .state = false});
  }
  cases.push_back(
      {.name = "packed", .tokens = 12, .silu = true, .bias = true, .cu_seqlens = {0, 1, 1, 3, 12}});
  cases.push_back({.name = "packed", .tokens = 700, .heads = 1, .cu_seqlens = {0, 0, 600, 700}});
  for (std::int64_t width = 1; width <= 8; ++width) {
    for (const std::int64_t more : {0, 1, 4}) {
      for (const std::int64_t tokens : {1, 2, 3, 12}) {
        cases.push_back({.name = "cache",
                         .batch = 2,
                         .tokens = tokens,
                         .dim = 19,
                         .width = width,
                         .silu = true,
                         .more_rows = more,
                         .channel_by_channel = true});
      }
      cases.push_back({.name = "more rows", .tokens = 6, .width = width, .more_rows = more});
    }
  }
  for (const DType data : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (const DType states : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      for (const std::int64_t more : {0, 1}) {
        cases.push_back({.name = "cache of",
                         .tokens = 1,
                         .heads = 1,
                         .dim = 75,
                         .bias = true,
                         .data = data,
                         .parameters = states,
                         .states = states,
                         .more_rows = more,
                         .channel_by_channel = true});
      }
    }
  }
  cases.push_back({.name = "packed cache",
                   .tokens = 12,
                   .cu_seqlens = {0, 1, 1, 3, 12},
                   .more_rows = 1,
                   .channel_by_channel = true});
  cases.push_back({.name = "many channels", .tokens = 3, .heads = 2, .dim = 1100, .bias = true});
  cases.push_back({.name = "many channels", .tokens = 1, .heads = 2, .dim = 1100, .bias = true});
  for (const DType data : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    for (const DType parameters : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
      cases.push_back({.name = "dtypes",
                       .tokens = 21,
                       .dim = 12,
                       .silu = true,
                       .bias = true,
                       .data = data,
                       .parameters = parameters,
                       .states = data == DType::kBFloat16 ? DType::kFloat32 : data});
    }
  }
  return cases;
}

void FillNormal(const Tensor& tensor, std::uint64_t stream) {
  CounterRandom random(5, stream);
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(tensor.data(), tensor.dtype(), i, random.Normal());
  }
}

void FillNan(const Tensor& tensor) {
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    StoreElement(tensor.data(), tensor.dtype(), i, std::numeric_limits<double>::quiet_NaN());
  }
}

ConvProblem::ConvProblem(const ConvCase& given)
    : c(given),
      x(c.data, {c.batch, c.tokens, c.heads, c.dim}),
      weight(c.parameters, {c.heads, c.dim, c.width}),
      y(c.data, x.shape()) {
  FillNormal(x, 1);
  FillNormal(weight, 2);
  if (c.bias) {
    bias = Tensor(c.parameters, {c.heads, c.dim});
    FillNormal(bias, 3);
  }
  if (c.state) {
    state_memory = ConvStateMemory(c, c.states);
    state = ConvStateView(c, state_memory);
    FillNormal(state_memory, 4);
  }
  FillNan(y);
}

Tensor ConvStateMemory(const ConvCase& c, DType dtype) {
  if (!c.channel_by_channel) return {dtype, {c.sequences(), c.rows(), c.heads, c.dim}};
  return {dtype, {c.sequences(), c.heads, c.dim, c.rows()}};
}

TensorView ConvStateView(const ConvCase& c, const Tensor& memory) {
  if (!memory.defined() || !c.channel_by_channel) return memory.view();
  const std::int64_t strides[] = {c.heads * c.dim * c.rows(), 1, c.dim * c.rows(), c.rows()};
  return {memory.data(), memory.dtype(), {c.sequences(), c.rows(), c.heads, c.dim}, strides};
}

ShortConvInputs ConvProblem::inputs() const {
  ShortConvInputs in{.x = x.view()};
  if (!c.cu_seqlens.empty()) {
    in.cu_seqlens =
        TensorView::Of(c.cu_seqlens.data(), {static_cast<std::int64_t>(c.cu_seqlens.size())});
  }
  return in;
}

ShortConvInputs ConvProblem::Tokens(std::int64_t begin, std::int64_t count) const {
  return {.x = x.view().Slice(1, begin, count)};
}

ConvExpected Convolved(const ConvProblem& problem) {
  const ConvCase& c = problem.c;
  ConvExpected expected;
  expected.y.resize(static_cast<std::size_t>(problem.x.elements()));
  expected.bound.resize(expected.y.size());
  if (c.state) expected.state.resize(static_cast<std::size_t>(problem.state_memory.elements()));
  const double eps = c.data == DType::kFloat64 ? Epsilon(c.data) : Epsilon(DType::kFloat32);
  const double storage = c.data == DType::kBFloat16 ? Epsilon(c.data) / 2 : 0;
  for (std::int64_t n = 0; n < c.sequences(); ++n) {
    const auto at = static_cast<std::size_t>(n);
    const bool packed = !c.cu_seqlens.empty();
    const std::int64_t b = packed ? 0 : n;
    const std::int64_t first = packed ? c.cu_seqlens[at] : 0;
    const std::int64_t tokens = packed ? c.cu_seqlens[at + 1] - first : c.tokens;
    for (std::int64_t h = 0; h < c.heads; ++h) {
      for (std::int64_t d = 0; d < c.dim; ++d) {
        const auto input = [&](std::int64_t t) {
          if (t >= 0) return problem.x.view().At({b, first + t, h, d});
          return c.state ? problem.state.At({n, t + c.rows(), h, d}) : 0;
        };
        for (std::int64_t t = 0; t < tokens; ++t) {
          double z = c.bias ? problem.bias.view().At({h, d}) : 0;
          double size = std::abs(z);
          for (std::int64_t j = 0; j < c.width; ++j) {
            const double term = problem.weight.view().At({h, d, j}) * input(t - (c.width - 1) + j);
            z += term;
            size += std::abs(term);
          }
          const auto i =
              static_cast<std::size_t>(((b * c.tokens + first + t) * c.heads + h) * c.dim + d);
          const double y = c.silu ? z / (1 + std::exp(-z)) : z;
          expected.y[i] = y;
          // The slope of silu is below 1.1.
          expected.bound[i] = eps * (1.1 * static_cast<double>(c.width + 1) * size +
                                     (c.silu ? 4 * std::abs(y) : 0)) +
                              storage * std::abs(y);
        }
        for (std::int64_t r = 0; c.state && r < c.rows(); ++r) {
          expected.state[static_cast<std::size_t>(((n * c.rows() + r) * c.heads + h) * c.dim + d)] =
              input(tokens - c.rows() + r);
        }
      }
    }
  }
  return expected;
}

void ExpectWithin(const TensorView& actual, const std::vector<double>& expected,
                  const std::vector<double>& bound, const std::string& what) {
  const Tensor values = Tensor::Copy(actual, DType::kFloat64);
  ASSERT_EQ(static_cast<std::size_t>(values.elements()), expected.size()) << what;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double value = values.as<double>()[i];
    if (std::isnan(expected[i])) {
      ASSERT_TRUE(std::isnan(value)) << what << " at " << i;
    } else {
      ASSERT_LE(std::abs(value - expected[i]), bound[i])
          << what << " at " << i << ": " << value << " instead of " << expected[i];
    }
  }
}

}  // namespace ttr::test
