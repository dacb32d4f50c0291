// float16 rows: calls answer as those of the widened rows do, rounded.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "src/recipe/family.h"
#include "src/simd/half.h"
#include "tests/layer/decoder_calls.h"
#include "tests/support/calls.h"
#include "tests/support/recipes.h"
#include "tests/support/targets.h"
#include "ttr/error.h"
#include "ttr/state_pool.h"
#include "ttr/util/random.h"

namespace ttr {
namespace {

using test::Call;
using test::ErrorOf;
using test::LargestDifference;

// A call whose floating inputs are rounded to float16, and the same numbers in float32.
struct Rounded {
  Inputs half{}, wide{};
  std::vector<Tensor> tensors{};

  explicit Rounded(const Call& call) {
    tensors.reserve(64);
    for (const InputField& field : InputFields()) {
      const TensorView& view = call.inputs.*field.view;
      if (!view.defined()) continue;
      half.*field.view = tensors.emplace_back(Tensor::Copy(view, DType::kFloat16));
      wide.*field.view = tensors.emplace_back(Tensor::Copy(half.*field.view, DType::kFloat32));
    }
  }
};

Tensor AsHalf(const Tensor& tensor) { return Tensor::Copy(tensor, DType::kFloat16); }

class Float16Rows : public ::testing::TestWithParam<std::string> {
 protected:
  Float16Rows()
      : layer(ParseRecipe(GetParam())),
        call(layer.recipe(), Sizes(), DType::kFloat32, 5),
        rows(call) {}

  Dims Sizes() const {
    Dims dims = test::SmallDims(layer.recipe());
    dims.batch = 2;
    dims.tokens = 9;
    return dims;
  }

  Layer layer;
  Call call;
  Rounded rows;
};

// One of every engine.
INSTANTIATE_TEST_SUITE_P(Recipes, Float16Rows,
                         ::testing::Values("gated_deltanet", "kda", "hgrn", "mamba", "rls",
                                           "batch_gd", "softmax", "local_linear", "kernel_ridge",
                                           "kernel_rls", "titans", "intention"),
                         test::CaseName);

TEST_P(Float16Rows, AreWidenedAndRounded) {
  State half_state, wide_state;
  const Tensor half(DType::kFloat16, OutputShape(call.dims));
  const Tensor wide(DType::kFloat32, OutputShape(call.dims));
  layer.Forward(rows.half, half_state, {.y = half});
  layer.Forward(rows.wide, wide_state, {.y = wide});
  EXPECT_EQ(LargestDifference(half, AsHalf(wide)), 0);
  for (const State::Entry& entry : wide_state.entries()) {
    EXPECT_EQ(LargestDifference(half_state.Get(entry.name), entry.view), 0) << entry.name;
  }
}

TEST_P(Float16Rows, HaveGradients) {
  if (!layer.HasGradients()) GTEST_SKIP() << "differences";
  Tensor wide_dy(DType::kFloat32, OutputShape(call.dims));
  CounterRandom random(3, 0);
  for (float& x : wide_dy.as<float>()) {
    x = ToFloat(ToFloat16(random.Normal()));
  }
  Inputs dhalf, dwide;
  std::vector<Tensor> tensors;
  tensors.reserve(64);
  for (const InputSpec& spec : layer.requirements().inputs) {
    const TensorView& view = rows.wide.*spec.view;
    if (!view.defined()) continue;
    dhalf.*spec.view = tensors.emplace_back(DType::kFloat16, view.shape());
    dwide.*spec.view = tensors.emplace_back(DType::kFloat32, view.shape());
  }
  State dhalf_start, dwide_start;
  layer.Backward(rows.half, {}, AsHalf(wide_dy), {}, dhalf, dhalf_start);
  layer.Backward(rows.wide, {}, wide_dy, {}, dwide, dwide_start);
  for (const InputSpec& spec : layer.requirements().inputs) {
    const TensorView& wide = dwide.*spec.view;
    if (!wide.defined()) continue;
    EXPECT_EQ(LargestDifference(dhalf.*spec.view, Tensor::Copy(wide, DType::kFloat16)), 0)
        << spec.name;
  }
}

TEST_P(Float16Rows, AreTokens) {
  if (!layer.recipe().reading.causal) GTEST_SKIP() << "no tokens";
  Dims dims = InferDims("Decoder", layer.requirements(), rows.half);
  Decoder half_decoder(layer, dims), wide_decoder(layer, dims);
  const std::int64_t steps = RowsPerToken(layer.recipe());
  for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
    Inputs half = rows.half, wide = rows.wide;
    for (const InputSpec& spec : layer.requirements().inputs) {
      const std::vector<Axis>& axes = spec.shapes.front();
      if (axes.size() < 2 || (axes[1] != Axis::kTokens && axes[1] != Axis::kRows)) continue;
      const std::int64_t n = axes[1] == Axis::kRows ? steps : 1;
      for (Inputs* inputs : {&half, &wide}) {
        TensorView& view = inputs->*spec.view;
        if (view.defined()) view = view.Slice(1, t * n, n);
      }
    }
    const Shape shape{2, 1, call.dims.output_heads(), call.dims.value_dim};
    const Tensor y(DType::kFloat16, shape), expected(DType::kFloat32, shape);
    half_decoder.Step(half, {.y = y});
    wide_decoder.Step(wide, {.y = expected});
    ASSERT_EQ(LargestDifference(y, AsHalf(expected)), 0) << t;
  }
}

TEST(Float16, OfLayersAlone) {
  const Layer layer("gated_deltanet");
  Dims dims = test::SomeDims();
  dims.tokens = 4;
  const Call call(layer.recipe(), dims, DType::kFloat32, 1);
  const Rounded rows(call);
  State state;
  const Tensor y(DType::kFloat16, OutputShape(call.dims));
  // What is checked of other types is checked of this one.
  rows.half.step.Set({0, 2, 1}, -1);
  EXPECT_EQ(ErrorOf([&] { layer.Forward(rows.half, state, {.y = y}); }),
            "[Forward] step must be >= 0 but is -1 at [0,2,1]");
  rows.half.step.Set({0, 2, 1}, 1);
  Inputs overlapping = rows.half;
  EXPECT_NE(ErrorOf([&] { layer.Forward(overlapping, state, {.y = rows.half.v}); }), "no error");
  State narrow;
  narrow.Set("state", Tensor(DType::kInt8, {1, 2, dims.key_dim, dims.value_dim}));
  EXPECT_EQ(ErrorOf([&] { layer.Forward(rows.half, narrow, {.y = y}); }),
            "[Forward] state must be float32, float64, bfloat16 or float16 but is int8");
  State of_solver;
  of_solver.Set("state", Tensor(DType::kFloat16, {1, 2, dims.key_dim, dims.value_dim}));
  EXPECT_EQ(ErrorOf([&] {
              Layer("rls").Forward({.q = rows.half.q, .k = rows.half.k, .v = rows.half.v},
                                   of_solver, {.y = y});
            }),
            "[Forward] state must be float32 or float64 but is float16");
}

// Every float16, and floats about them, on every target.
TEST(Float16, ConversionsAreExactAndToNearest) {
  constexpr std::int64_t kAll = 65536;
  Tensor all(DType::kFloat16, {kAll});
  for (std::int64_t i = 0; i < kAll; ++i) {
    all.as<Float16>()[static_cast<std::size_t>(i)].bits = static_cast<std::uint16_t>(i);
  }
  std::vector<float> about;
  for (std::int64_t i = 0; i + 1 < 0x7c00; ++i) {
    const double low = ToFloat(Float16{static_cast<std::uint16_t>(i)});
    const double high = ToFloat(Float16{static_cast<std::uint16_t>(i + 1)});
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    for (const float x : {middle, std::nextafterf(middle, 0), std::nextafterf(middle, 1e9f)}) {
      about.push_back(x);
      about.push_back(-x);
    }
    // Ties go to even bits.
    const auto even = static_cast<std::uint16_t>((i % 2 == 0) ? i : i + 1);
    ASSERT_EQ(ToFloat16((low + high) / 2).bits, even) << i;
    ASSERT_EQ(ToFloat16(static_cast<double>(std::nextafterf(middle, 0))).bits, i) << i;
    ASSERT_EQ(ToFloat16(static_cast<double>(std::nextafterf(middle, 1e9f))).bits, i + 1) << i;
  }
  for (const float x : {65519.996f, 65520.f, 1e30f, INFINITY, 1e-30f, 2.9802322e-8f, 0.f}) {
    about.push_back(x);
    about.push_back(-x);
  }
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    std::vector<float> wide(kAll);
    simd::Widen(all.as<Float16>().data(), kAll, wide.data());
    for (std::int64_t i = 0; i < kAll; ++i) {
      const float expected = ToFloat(Float16{static_cast<std::uint16_t>(i)});
      const float x = wide[static_cast<std::size_t>(i)];
      ASSERT_TRUE(x == expected || (std::isnan(x) && std::isnan(expected))) << target << " " << i;
      const std::uint16_t back = ToFloat16(static_cast<double>(x)).bits;
      ASSERT_TRUE(back == i || std::isnan(x)) << target << " " << i;
    }
    const auto count = static_cast<std::int64_t>(about.size());
    std::vector<Float16> narrow(about.size());
    simd::Narrow(about.data(), count, narrow.data());
    for (std::size_t i = 0; i < about.size(); ++i) {
      ASSERT_EQ(narrow[i].bits, ToFloat16(static_cast<double>(about[i])).bits)
          << target << ": " << about[i];
    }
  }
}

}  // namespace
}  // namespace ttr
