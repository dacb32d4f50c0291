// Every recipe that an engine runs, against the definition: on every target, under every gate, in
// every dtype.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "tests/support/targets.h"
#include "ttr/layer.h"
#include "ttr/zoo.h"

namespace ttr {
namespace {

using test::Call;
using test::LargestDifference;
using test::RunWhole;

constexpr double kInf = std::numeric_limits<double>::infinity();

class EngineLayer : public ::testing::TestWithParam<std::string> {
 protected:
  Recipe recipe() const { return ParseRecipe(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(All, EngineLayer, ::testing::ValuesIn(test::EngineRecipes()),
                         test::CaseName);

// The greatest finite size of a number, 1 at least.
double Size(const TensorView& view) {
  const Tensor copy = Tensor::Copy(view, DType::kFloat64);
  double size = 1;
  for (const double x : copy.as<double>()) {
    if (std::isfinite(x)) size = std::max(size, std::abs(x));
  }
  return size;
}

// `rounding` is that of the arithmetic. A quotient by a small sum has the condition of its own
// size.
void ExpectAgreement(const test::Result& defined, const test::Result& computed, double rounding,
                     const std::string& what) {
  const double size = Size(defined.y);
  EXPECT_LE(LargestDifference(defined.y, computed.y), rounding * size * size) << what;
  EXPECT_EQ(LargestDifference(defined.status, computed.status), 0) << what;
  for (const State::Entry& entry : defined.state.entries()) {
    EXPECT_LE(LargestDifference(entry.view, computed.state.Get(entry.name)),
              rounding * Size(entry.view))
        << what << " " << entry.name;
  }
}

TEST_P(EngineLayer, AgreesWithTheDefinitionOnEveryTarget) {
  struct Shape {
    std::int64_t tokens, key_dim, value_dim;
  };
  for (const Shape& shape :
       {Shape{0, 3, 4}, Shape{1, 3, 4}, Shape{2, 1, 1}, Shape{7, 3, 4}, Shape{40, 3, 4},
        Shape{1, 20, 37}, Shape{19, 20, 37}, Shape{40, 16, 16}}) {
    Dims dims = test::SmallDims(recipe());
    const bool square = dims.key_dim == dims.value_dim;
    dims.tokens = shape.tokens;
    dims.key_dim = square ? shape.value_dim : shape.key_dim;
    dims.value_dim = shape.value_dim;
    const Call call(recipe(), dims, DType::kFloat64, 6, true);
    const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      ExpectAgreement(defined, RunWhole(Layer(recipe()), call), 2e-12,
                      target + ", " + std::to_string(shape.tokens) + " tokens");
    }
  }
}

TEST_P(EngineLayer, AgreesWithTheDefinitionUnderEveryGate) {
  const std::vector<std::vector<double>> lists = {
      {0},
      {-1e-3},
      {-0.7},
      {-7},
      {-70},
      {-kInf},
      {-0.1, -1e-3, 0, -70, -0.7, -1e-3, -kInf, -0.02, -7, 0, -1e-3},
      {-0.1, -0.2, -0.3, -0.01, -1e-3, -0.5, -0.6, -0.3, -0.2, -0.1, -0.05, -kInf, -0.4}};
  const Dims small = test::SmallDims(recipe());
  Dims lines = small;  // rows of keys that are whole cache lines
  lines.key_dim = 16;
  if (small.key_dim == small.value_dim) lines.value_dim = 16;
  for (const Dims& dims : {small, lines}) {
    const Call call(recipe(), dims, DType::kFloat64, 9);
    if (!call.inputs.log_decay.defined()) GTEST_SKIP() << "no gates";
    for (const std::vector<double>& gates : lists) {
      double* numbers = call.inputs.log_decay.as<double>();
      const std::int64_t count = call.inputs.log_decay.shape().elements();
      for (std::int64_t i = 0; i < count; ++i) {
        numbers[i] = gates[static_cast<std::size_t>(i) % gates.size()];
      }
      const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
      const Layer layer(recipe());
      ExpectAgreement(defined, RunWhole(layer, call), 2e-12, "whole");
      if (!recipe().reading.causal) continue;  // no memory to go on from
      ExpectAgreement(defined, test::RunInPieces(layer, call, 1), 2e-12, "token by token");
      ExpectAgreement(defined, test::RunDecoder(layer, call), 2e-12, "deferred");
    }
  }
}

TEST_P(EngineLayer, ForgetsWhatIsNotFinite) {
  const Dims dims = test::SmallDims(recipe());
  const Call call(recipe(), dims, DType::kFloat64, 10);
  const TensorView& gates = call.inputs.log_decay;
  if (!gates.defined()) GTEST_SKIP() << "no gates";
  call.inputs.v.Set({0, 0, 0, 0}, std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t h = 0; h < dims.heads; ++h) {
    for (std::int64_t d = 0; d < (gates.rank() == 4 ? gates.size(3) : 1); ++d) {
      // Two tokens on, for then it has gone wherever a memory takes it.
      for (const std::int64_t t : {2, 5}) {
        if (gates.rank() == 4) {
          gates.Set({0, t, h, d}, -kInf);
        } else {
          gates.Set({0, t, h}, -kInf);
        }
      }
    }
  }
  const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
  const Layer layer(recipe());
  ExpectAgreement(defined, RunWhole(layer, call), 2e-12, "whole");
  if (!recipe().reading.causal) return;  // no memory to go on from
  ExpectAgreement(defined, test::RunInPieces(layer, call, 1), 2e-12, "token by token");
  ExpectAgreement(defined, test::RunDecoder(layer, call), 2e-12, "deferred");
}

TEST_P(EngineLayer, AgreesWithTheDefinitionInNarrowTypes) {
  Dims dims = test::SmallDims(recipe());
  dims.tokens = 40;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const Call call(recipe(), dims, dtype, 11, true);
    const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
    const test::Result computed = RunWhole(Layer(recipe()), call);
    // Answers are rounded to the inputs' type, states are float32.
    ExpectAgreement(defined, computed, dtype == DType::kFloat32 ? 2e-5 : 1.0 / 128, "narrow");
  }
}

// Makes inputs columns of wider rows, which begin anywhere.
void Widen(Call& call, std::vector<Tensor>& memory) {
  for (const InputField& field : InputFields()) {
    TensorView& view = call.inputs.*field.view;
    if (!view.defined() || view.rank() < 3 || view.size(0) != call.dims.batch) continue;
    const int last = view.rank() - 1;
    std::vector<std::int64_t> sizes;
    for (int axis = 0; axis <= last; ++axis) sizes.push_back(view.size(axis));
    sizes.back() += 3;
    memory.emplace_back(view.dtype(), Shape(sizes));
    const TensorView columns = memory.back().view().Slice(last, 1, view.size(last));
    CopyInto(view, columns);
    view = columns;
  }
}

// Rows of whole cache lines may be taken where they lie.
TEST_P(EngineLayer, TakesRowsOfWholeLinesWithAnyStrides) {
  Dims dims = test::SmallDims(recipe());
  const bool square = dims.key_dim == dims.value_dim;
  dims.tokens = 19;
  dims.key_dim = 16;
  if (square) dims.value_dim = 16;
  for (const DType dtype : {DType::kFloat64, DType::kFloat32, DType::kBFloat16}) {
    // Answers are rounded to the inputs' type.
    const double rounding = dtype == DType::kFloat64   ? 2e-12
                            : dtype == DType::kFloat32 ? 2e-5
                                                       : 1.0 / 128;
    Call call(recipe(), dims, dtype, 14, true);
    const test::Result defined = RunWhole(Layer(recipe(), kDefinition), call);
    for (const std::string& target : test::Targets()) {
      const test::OnTarget on(target);
      ExpectAgreement(defined, RunWhole(Layer(recipe()), call), rounding, target);
    }
    std::vector<Tensor> memory;
    Widen(call, memory);
    ExpectAgreement(defined, RunWhole(Layer(recipe()), call), rounding, "columns");
  }
}

TEST_P(EngineLayer, PackedSequencesDoNotMeet) {
  const Dims dims = test::SmallDims(recipe());
  const Call call(recipe(), dims, DType::kFloat64, 12);
  const Layer layer(recipe());
  const Layer defined(recipe(), kDefinition);
  const std::vector<std::int64_t> bounds = {0, 1, 1, 4, dims.tokens};
  ExpectAgreement(RunPacked(defined, call, bounds), RunPacked(layer, call, bounds), 2e-12,
                  "packed");
}

// Lengths fold into the numbers of a chunk where they are usual, and not where a product of rows as
// they are would overflow or vanish. Both kinds, side by side and in chunks of their own.
TEST(EngineNormalises, RowsOfEveryLength) {
  const std::vector<double> usual = {1, 1e-3, 40, 0.2, 900, 1};
  const std::vector<double> lengths = {1, 0, 1e9, 1e-9, 3, 1e30, 1e-18, 1e-3, 1, 1, 1e-30};
  for (const std::string name :
       {"gated_deltanet", "deltanet{read: before}", "deltanet{step: one}", "retnet", "mamba2"}) {
    Recipe recipe = ParseRecipe(name);
    recipe.reading.normalise_qk = true;
    for (const DType dtype : {DType::kFloat64, DType::kFloat32}) {
      Dims dims = test::SmallDims(recipe);
      dims.tokens = 45;
      const Call call(recipe, dims, dtype, 13);
      for (const bool keys : {false, true}) {
        const TensorView& rows = keys ? call.inputs.k : call.inputs.q;
        for (std::int64_t t = 0; t < dims.tokens; ++t) {
          const auto at = static_cast<std::size_t>(t + (keys ? 2 : 0));
          const double by = t < 17 ? usual[at % usual.size()] : lengths[at % lengths.size()];
          for (std::int64_t b = 0; b < rows.size(0); ++b) {
            for (std::int64_t h = 0; h < rows.size(2); ++h) {
              for (std::int64_t d = 0; d < rows.size(3); ++d) {
                rows.Set({b, t, h, d}, by * rows.At({b, t, h, d}));
              }
            }
          }
        }
      }
      const test::Result defined = RunWhole(Layer(recipe, kDefinition), call);
      for (const std::string& target : test::Targets()) {
        const test::OnTarget on(target);
        ExpectAgreement(defined, RunWhole(Layer(recipe), call),
                        dtype == DType::kFloat64 ? 2e-12 : 2e-5, name + " " + target);
      }
    }
  }
}

}  // namespace
}  // namespace ttr
