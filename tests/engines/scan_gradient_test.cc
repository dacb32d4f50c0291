#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "src/engines/scan/backward.h"
#include "tests/engines/scan_case.h"
#include "tests/support/engines.h"
#include "tests/support/targets.h"
#include "ttr/error.h"

namespace ttr::scan {
namespace {

using test::Bytes;
using test::OnTarget;

struct Named {
  const char* name;
  Data Problem::* input;
  TensorView Gradients::* gradient;
};

constexpr Named kInputs[] = {{"v", &Problem::v, &Gradients::v},
                             {"v_im", &Problem::v_im, &Gradients::v_im},
                             {"importance", &Problem::importance, &Gradients::importance},
                             {"log_decay", &Problem::log_decay, &Gradients::log_decay},
                             {"phase", &Problem::phase, &Gradients::phase},
                             {"q", &Problem::q, &Gradients::q},
                             {"k", &Problem::k, &Gradients::k},
                             {"dt", &Problem::dt, &Gradients::dt},
                             {"a", &Problem::a, &Gradients::a}};

Tensor Normal(DType dtype, const Shape& shape, unsigned seed) {
  Tensor tensor(dtype, shape);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    // Numbers that every dtype holds.
    StoreElement(tensor.data(), dtype, i, std::round(64 * normal(random)) / 64);
  }
  return tensor;
}

/// The gradients of a problem whose loss is dy . y + dstate . state.
struct Result {
  Tensor dy, dstate, dstate_im;
  Tensor weights, weights_im;  // dstate as it was given
  std::vector<Tensor> tensors;
  Gradients gradients;

  explicit Result(const Problem& p, Executor& executor = SequentialExecutor(),
                  std::span<std::byte> scratch = {}) {
    dy = Normal(p.y.view.dtype(), p.y.view.shape(), 1);
    dstate = Normal(p.state.view.dtype(), p.state.view.shape(), 2);
    weights = dstate;
    if (p.state_im.view.defined()) {
      dstate_im = Normal(p.state.view.dtype(), p.state.view.shape(), 3);
      weights_im = dstate_im;
    }
    for (const Named& named : kInputs) {
      const TensorView& input = (p.*named.input).view;
      if (!input.defined()) continue;
      tensors.emplace_back(input.dtype(), input.shape());
      for (std::int64_t i = 0; i < tensors.back().elements(); ++i) {
        StoreElement(tensors.back().data(), input.dtype(), i,
                     std::numeric_limits<double>::quiet_NaN());
      }
      gradients.*named.gradient = tensors.back().view();
    }
    Backward(p.options, p.call(), {dy.view(), dstate.view(), dstate_im.view()}, gradients, executor,
             scratch);
  }
};

double Dot(const Tensor& weights, const std::vector<double>& values) {
  double sum = 0;
  for (std::int64_t i = 0; i < weights.elements(); ++i) {
    sum += LoadElement(weights.data(), weights.dtype(), i) * values[static_cast<std::size_t>(i)];
  }
  return sum;
}

double Loss(const Problem& p, const Result& result) {
  const Expected now = Define(p, false);
  return Dot(result.dy, now.y) + Dot(result.weights, now.state) +
         (result.weights_im.defined() ? Dot(result.weights_im, now.im) : 0);
}

/// The derivative by one number: central differences of two widths, of which the leading error
/// cancels.
double Derivative(const Problem& p, const Result& result, const Tensor& memory, std::int64_t i) {
  const auto at = [&](double h) {
    const double x = LoadElement(memory.data(), memory.dtype(), i);
    StoreElement(memory.data(), memory.dtype(), i, x + h);
    const double loss = Loss(p, result);
    StoreElement(memory.data(), memory.dtype(), i, x);
    return loss;
  };
  constexpr double kStep = 1e-3;
  const double wide = (at(kStep) - at(-kStep)) / (2 * kStep);
  const double narrow = (at(kStep / 2) - at(-kStep / 2)) / kStep;
  return (4 * narrow - wide) / 3;
}

std::vector<Case> GradientCases() {
  std::vector<Case> cases;
  const auto add = [&](const char* name, auto change) {
    Case c;
    c.name = name;
    c.tokens = 35;
    c.value_dim = 5;
    c.key_dim = 3;
    c.log_decays = {-0.1, -0.7, -0.05, -3};
    c.data = c.gates = c.state = DType::kFloat64;
    change(c);
    cases.push_back(c);
  };
  add("plain", [](Case&) {});
  add("hgrn", [](Case& c) { c.options.weight = Weight::kComplement; });
  add("rg_lru", [](Case& c) { c.options.weight = Weight::kRootComplement; });
  add("lru", [](Case& c) {
    c.options.weight = Weight::kRootComplement;
    c.phase = c.v_im = true;
  });
  add("complex before",
      [](Case& c) { c.phase = c.v_im = c.importance = c.options.read_before = true; });
  add("scalar", [](Case& c) {
    c.gate = Gate::kScalar;
    c.importance = true;
    c.options.scale = 0.5;
  });
  add("factor", [](Case& c) { c.gate = Gate::kFactor; });
  add("packed", [](Case& c) { c.cu_seqlens = {0, 1, 1, 20, 35}; });
  add("matrix", [](Case& c) { c.matrix = true; });
  add("matrix before", [](Case& c) {
    c.matrix = c.importance = c.options.read_before = c.options.normalise_qk = true;
  });
  add("matrix grouped", [](Case& c) {
    c.matrix = c.options.normalise_qk = true;
    c.heads = 4;
    c.query_heads = c.key_heads = 2;
    c.value_heads = 1;
    c.tokens = 6;
  });
  add("matrix many queries", [](Case& c) {
    c.matrix = c.importance = true;
    c.query_heads = 6;
    c.key_heads = c.value_heads = 1;
    c.options.scale = 0.25;
    c.tokens = 6;
  });
  add("matrix packed", [](Case& c) {
    c.matrix = c.importance = true;
    c.cu_seqlens = {0, 2, 2, 35};
    c.key_dim = 5;
  });
  add("empty", [](Case& c) { c.tokens = 0; });
  add("matrix empty", [](Case& c) {
    c.matrix = true;
    c.tokens = 0;
  });
  add("matrix wide", [](Case& c) {
    c.matrix = true;
    c.heads = c.query_heads = c.key_heads = c.value_heads = 1;
    c.value_dim = 270;
    c.tokens = 2;
  });
  return cases;
}

class ScanGradientOnTarget : public testing::TestWithParam<std::string> {};

// Every target computes the gradients; a number here and there is compared with the derivative of
// the definition.
TEST_P(ScanGradientOnTarget, IsTheDerivativeOfTheDefinition) {
  const OnTarget target(GetParam());
  for (const Case& c : GradientCases()) {
    const Problem p(c);
    const Result result(p);
    const auto compare = [&](const char* name, const Tensor& memory, const TensorView& gradient) {
      const std::int64_t stride = std::max<std::int64_t>(1, memory.elements() / 12);
      for (std::int64_t i = 0; i < memory.elements(); i += stride) {
        const double expected = Derivative(p, result, memory, i);
        EXPECT_NEAR(gradient.as<double>()[i], expected, 1e-8 * (1 + std::abs(expected)))
            << c.name << ": " << name << " [" << i << "]";
      }
    };
    for (const Named& named : kInputs) {
      const Data& input = p.*named.input;
      if (input.view.defined()) {
        compare(named.name, input.memory, result.gradients.*named.gradient);
      }
    }
    compare("state", p.state.memory, result.dstate.view());
    if (p.state_im.view.defined()) compare("state.im", p.state_im.memory, result.dstate_im.view());
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ScanGradientOnTarget, testing::ValuesIn(test::Targets()),
                         [](const auto& target) { return target.param; });

/// A problem with the same numbers in other dtypes and another order of axes.
Problem In(Case c, const Problem& from, DType data, DType gates, DType state, bool head_major) {
  c.data = data;
  c.gates = gates;
  c.state = state;
  c.head_major = head_major;
  const Problem to(c);
  for (const Named& named : kInputs) {
    const TensorView& view = (to.*named.input).view;
    if (view.defined()) CopyInto((from.*named.input).view, view);
  }
  CopyInto(from.state.view, to.state.view);
  if (to.state_im.view.defined()) CopyInto(from.state_im.view, to.state_im.view);
  return to;
}

TEST(ScanGradient, InFloat32IsThatInFloat64) {
  for (Case c : GradientCases()) {
    c.tokens = c.cu_seqlens.empty() ? 100 : c.tokens;
    c.value_dim = c.matrix ? 40 : 600;
    c.data = c.gates = c.state = DType::kFloat32;
    const Problem narrow(c);
    const Problem wide = In(c, narrow, DType::kFloat64, DType::kFloat64, DType::kFloat64, false);
    const Problem strided = In(c, narrow, DType::kFloat32, DType::kFloat64, DType::kFloat32, true);
    const Result expected(wide);
    for (const Problem* p : {&narrow, &strided}) {
      const Result got(*p);
      const auto compare = [&](const char* name, const TensorView& x, const TensorView& y) {
        const Tensor a = Tensor::Copy(x, DType::kFloat64), b = Tensor::Copy(y, DType::kFloat64);
        double largest = 0, worst = 0;
        for (std::size_t i = 0; i < a.as<double>().size(); ++i) {
          largest = std::max(largest, std::abs(b.as<double>()[i]));
          worst = std::max(worst, std::abs(a.as<double>()[i] - b.as<double>()[i]));
          ASSERT_FALSE(std::isnan(a.as<double>()[i])) << c.name << ": " << name;
        }
        // Some hundred roundings of sums of some hundred terms.
        EXPECT_LE(worst, 100 * static_cast<double>(std::numeric_limits<float>::epsilon()) * largest)
            << c.name << ": " << name;
      };
      for (const Named& named : kInputs) {
        if (!(narrow.*named.input).view.defined()) continue;
        compare(named.name, got.gradients.*named.gradient, expected.gradients.*named.gradient);
      }
      compare("state", got.dstate.view(), expected.dstate.view());
    }
  }
}

TEST(ScanGradient, OfWhatIsForgottenIsZero) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (const bool matrix : {false, true}) {
    for (Case c : GradientCases()) {
      if (c.matrix != matrix || (!matrix && c.gate != Gate::kChannel)) continue;
      c.log_decays = {-kInf};
      const Problem p(c);
      const Result result(p);
      const TensorView& gradient = matrix ? result.gradients.a : result.gradients.log_decay;
      for (std::int64_t i = 0; i < gradient.shape().elements(); ++i) {
        EXPECT_EQ(gradient.as<double>()[i], 0) << c.name;
      }
      for (const Tensor& tensor : result.tensors) {
        for (const double x : tensor.as<double>()) EXPECT_TRUE(std::isfinite(x)) << c.name;
      }
    }
  }
}

/// Row (b, t, h) over sqrt(|row|^2 + 1e-6).
void NormaliseRow(const TensorView& x, std::int64_t b, std::int64_t t, std::int64_t h) {
  double square = 1e-6;
  for (std::int64_t i = 0; i < x.size(3); ++i) {
    square += x.At({b, t, h, i}) * x.At({b, t, h, i});
  }
  for (std::int64_t i = 0; i < x.size(3); ++i) {
    x.Set({b, t, h, i}, x.At({b, t, h, i}) / std::sqrt(square));
  }
}

/// At 0, x / sqrt(|x|^2 + 1e-6) is 1000 x.
TEST(ScanGradient, OfNormalisedKeysOfZeros) {
  for (const Case& c : GradientCases()) {
    if (!c.matrix || !c.options.normalise_qk) continue;
    Case as_they_are = c;
    as_they_are.options.normalise_qk = false;
    const Problem p(c), plain(as_they_are);
    const TensorView &k = p.k.view, &q = plain.q.view;
    CopyInto(Tensor(k.dtype(), k.shape()).view(), k);
    CopyInto(k, plain.k.view);
    for (std::int64_t b = 0; b < q.size(0); ++b) {
      for (std::int64_t t = 0; t < q.size(1); ++t) {
        for (std::int64_t h = 0; h < q.size(2); ++h) NormaliseRow(q, b, t, h);
      }
    }
    const Result result(p), expected(plain);
    for (std::int64_t i = 0; i < k.shape().elements(); ++i) {
      const double slope = 1000 * expected.gradients.k.as<double>()[i];
      EXPECT_NEAR(result.gradients.k.as<double>()[i], slope, 1e-9 * (1 + std::abs(slope)))
          << c.name;
    }
  }
}

TEST(ScanGradient, StaysWithinItsScratch) {
  const auto three = MakeExecutor(3);
  for (const Case& c : GradientCases()) {
    const Problem p(c);
    const bool packed = !c.cu_seqlens.empty();
    const auto sequences = packed ? static_cast<std::int64_t>(c.cu_seqlens.size()) - 1 : c.batch;
    const GradientSizes sizes{
        .sizes = {.key_dim = c.matrix ? c.key_dim : 0,
                  .value_dim = c.value_dim,
                  .queries = std::max<std::int64_t>(1, c.query_heads / c.heads),
                  .state = DType::kFloat64},
        .heads = c.heads,
        .value_heads = c.matrix ? c.value_heads : c.heads,
        .sequences = sequences,
        .tokens = c.batch * c.tokens,
        .length = c.tokens,
        .complex = c.phase};
    // As much as for the fewest workers that are enough: there are no more than tasks.
    for (int workers = 1; workers <= 3; ++workers) {
      const std::size_t bytes = BackwardScratchBytes(sizes, workers);
      std::vector<std::byte> memory(bytes + 16384, std::byte{0x5a});
      try {
        Result(p, *three, {memory.data(), bytes});
      } catch (const Error&) {
        ASSERT_LT(workers, 3) << c.name;
        continue;
      }
      for (std::size_t i = bytes; i < memory.size(); ++i) {
        ASSERT_EQ(memory[i], std::byte{0x5a}) << c.name << ", " << i - bytes << " bytes beyond";
      }
      break;
    }
  }
}

TEST(ScanGradient, MemoryGrowsWithTokensAsTheInputsDo) {
  Case c;
  c.name = "bytes";
  c.matrix = true;
  c.key_dim = 16;
  c.value_dim = 64;
  c.tokens = 1024;
  const Problem p(c);
  const auto inputs = static_cast<std::size_t>(p.v.memory.bytes() + p.dt.memory.bytes() +
                                               p.k.memory.bytes() + p.q.memory.bytes());
  const GradientSizes sizes{
      .sizes = {.key_dim = c.key_dim, .value_dim = c.value_dim, .state = DType::kFloat64},
      .heads = c.heads,
      .value_heads = c.value_heads,
      .sequences = c.batch,
      .tokens = c.batch * c.tokens,
      .length = c.tokens,
      .complex = false};
  EXPECT_LT(BackwardScratchBytes(sizes, 1), 2 * inputs);
}

}  // namespace
}  // namespace ttr::scan
