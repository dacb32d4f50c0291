#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "experiments/data/random_inputs.h"
#include "tests/support/calls.h"
#include "tests/tools/command.h"
#include "ttr/plan.h"
#include "ttr/util/safetensors.h"
#include "ttr/zoo.h"

namespace ttr::test {
namespace {

// Two sequences of 7 tokens, two memories, as a file.
TensorFile InputFile(const Recipe& recipe, DType dtype = DType::kFloat64, std::int64_t tokens = 7) {
  Dims dims = SmallDims(recipe);
  dims.tokens = tokens;
  TensorFile file;
  file.tensors = experiments::MakeRandomInputs(recipe, dims, dtype, 11).tensors;
  return file;
}

// The outputs of ttr apply RECIPE MORE...
TensorFile Apply(const TemporaryFolder& folder, const std::string& recipe,
                 const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"apply", recipe,         "--in",   folder / "in",
                                        "--out", folder / "out", "--quiet"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Outcome outcome = Ttr(arguments);
  EXPECT_EQ(outcome.code, 0) << recipe << ": " << outcome.err;
  return outcome.code == 0 ? ReadSafetensors(folder / "out") : TensorFile();
}

void ExpectSame(const TensorFile& a, const TensorFile& b, double tolerance,
                const std::string& what) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size()) << what;
  for (const auto& [name, tensor] : a.tensors) {
    ASSERT_TRUE(b.tensors.contains(name)) << what << " " << name;
    double size = 1;
    const Tensor wide = Tensor::Copy(tensor, DType::kFloat64);
    for (const double x : wide.as<double>()) {
      if (std::isfinite(x)) size = std::max(size, std::abs(x));
    }
    EXPECT_LE(LargestDifference(tensor, b.tensors.at(name)), tolerance * size)
        << what << " " << name;
  }
}

TEST(Apply, EveryLayerByEveryWayIsTheSame) {
  const TemporaryFolder folder;
  for (const ZooEntry& entry : Zoo()) {
    const std::string name(entry.name);
    const Recipe recipe = ParseRecipe(name);
    WriteSafetensors(folder / "in", InputFile(recipe));
    const TensorFile definition = Apply(folder, name, {"--via", "definition"});
    EXPECT_TRUE(definition.tensors.contains("y")) << name;
    EXPECT_TRUE(definition.tensors.contains("status")) << name;
    // Sums in another order: some rounding errors, times the condition of the least squares.
    constexpr double kTolerance = 1e-9;
    ExpectSame(definition, Apply(folder, name, {}), kTolerance, name + " via engine");
    if (!recipe.reading.causal) continue;
    ExpectSame(definition, Apply(folder, name, {"--via", "step"}), kTolerance, name + " via step");
    ExpectSame(definition, Apply(folder, name, {"--split", "3"}), kTolerance, name + " split");
  }
}

TEST(Apply, ConjugateGradientsSayHowManyTheyWere) {
  const TemporaryFolder folder;
  const std::string recipe = "uniform | linear | conjugate_gradient(steps: 2, ridge: 0.1)";
  WriteSafetensors(folder / "in", InputFile(ParseRecipe(recipe)));
  for (const char* split : {"1", "3"}) {
    const TensorFile out = Apply(folder, recipe, {"--split", split});
    ASSERT_TRUE(out.tensors.contains("iterations"));
    const Tensor& iterations = out.tensors.at("iterations");
    EXPECT_EQ(iterations.shape(), out.tensors.at("status").shape());
    for (const std::int64_t n : iterations.as<std::int64_t>()) EXPECT_EQ(n, 2);
    ASSERT_TRUE(out.tensors.contains("residual"));
    for (const double r : out.tensors.at("residual").as<double>()) EXPECT_GT(r, 0);
  }
  WriteSafetensors(folder / "in", InputFile(ParseRecipe("rls")));
  EXPECT_FALSE(Apply(folder, "rls", {}).tensors.contains("iterations"));
  EXPECT_FALSE(Apply(folder, "rls", {}).tensors.contains("residual"));
  for (const auto& [name, iterates] : {std::pair("retnet", false), std::pair("batch_gd", true)}) {
    WriteSafetensors(folder / "in", InputFile(ParseRecipe(name)));
    EXPECT_EQ(Apply(folder, name, {}).tensors.contains("residual"), iterates) << name;
  }
}

TEST(Apply, MultipliesInBFloat16IfAsked) {
  const TemporaryFolder folder;
  const Recipe recipe = ParseRecipe("gated_deltanet");
  WriteSafetensors(folder / "in", InputFile(recipe, DType::kBFloat16, 70));  // few are not rounded
  const TensorFile usual = Apply(folder, "gated_deltanet", {});
  const TensorFile asked = Apply(folder, "gated_deltanet", {"--bfloat16-products"});
  ExpectSame(usual, asked, 0x1p-6, "products in bfloat16");
  const double states = LargestDifference(usual.tensors.at("state"), asked.tensors.at("state"));
  EXPECT_EQ(states > 0, Layer(recipe).HasBFloat16Products());
}

TEST(Apply, AnswersInFloat16WhereValuesAre) {
  const TemporaryFolder folder;
  const Recipe recipe = ParseRecipe("gated_deltanet");
  TensorFile half = InputFile(recipe, DType::kFloat16), wide = half;
  for (auto& [name, tensor] : wide.tensors) tensor = Tensor::Copy(tensor, DType::kFloat32);
  WriteSafetensors(folder / "in", half);
  const Tensor y = Apply(folder, "gated_deltanet", {}).tensors.at("y");
  WriteSafetensors(folder / "in", wide);
  const Tensor expected = Apply(folder, "gated_deltanet", {}).tensors.at("y");
  EXPECT_EQ(y.dtype(), DType::kFloat16);
  EXPECT_EQ(LargestDifference(y, Tensor::Copy(expected, DType::kFloat16)), 0);
}

TEST(Apply, GradientsOfLinearAttentionAreTheClosedForm) {
  const TemporaryFolder folder;
  const Recipe recipe = ParseRecipe("linear_attention");
  Dims dims;
  dims.tokens = 5;
  dims.key_dim = 3;
  dims.value_dim = 2;
  TensorFile file;
  file.tensors = experiments::MakeRandomInputs(recipe, dims, DType::kFloat64, 4).tensors;
  file.tensors["dy"] = Tensor::Copy(file.tensors.at("v"));
  WriteSafetensors(folder / "in", file);
  const TensorFile out = Apply(folder, "linear_attention", {"--grad", "--via", "definition"});
  const auto at = [&](const char* name, std::int64_t t, std::int64_t i) {
    return file.tensors.at(name).view().At({0, t, 0, i});
  };
  // y_t = sum over i <= t of v_i (k_i . q_t)
  for (std::int64_t t = 0; t < 5; ++t) {
    for (std::int64_t c = 0; c < 3; ++c) {
      double dq = 0, dk = 0;
      for (std::int64_t i = 0; i < 5; ++i) {
        for (std::int64_t d = 0; d < 2; ++d) {
          if (i <= t) dq += at("dy", t, d) * at("v", i, d) * at("k", i, c);
          if (i >= t) dk += at("dy", i, d) * at("v", t, d) * at("q", i, c);
        }
      }
      EXPECT_NEAR(out.tensors.at("dq").view().At({0, t, 0, c}), dq, 1e-7);
      EXPECT_NEAR(out.tensors.at("dk").view().At({0, t, 0, c}), dk, 1e-7);
    }
    for (std::int64_t d = 0; d < 2; ++d) {
      double dv = 0;
      for (std::int64_t i = t; i < 5; ++i) {
        double kq = 0;
        for (std::int64_t c = 0; c < 3; ++c) kq += at("k", t, c) * at("q", i, c);
        dv += kq * at("dy", i, d);
      }
      EXPECT_NEAR(out.tensors.at("dv").view().At({0, t, 0, d}), dv, 1e-7);
    }
  }
}

// A name that the layer does not have is no gradient that is silently left out.
TEST(Apply, UnknownNamesOfStatesAndGradientsAreRefused) {
  const TemporaryFolder folder;
  const Recipe recipe = ParseRecipe("linear_attention");
  for (const char* name : {"dv", "dstates", "dstate.speed", "dstate.n", "state.speed", "statew"}) {
    TensorFile file = InputFile(recipe);
    file.tensors["dy"] = Tensor::Copy(file.tensors.at("v"));
    file.tensors[name] = Tensor(DType::kFloat64, {2, 2, 4, 4});
    WriteSafetensors(folder / "in", file);
    const Outcome outcome = Ttr(
        {"apply", "linear_attention", "--grad", "--in", folder / "in", "--out", folder / "out"});
    EXPECT_EQ(NoRefusal(outcome, 2, name), "");
    EXPECT_NE(outcome.err.find("it takes q, k, v, cu_seqlens, state, and for gradients dy, dstate"),
              std::string::npos)
        << outcome.err;
  }
  TensorFile file = InputFile(recipe);
  file.tensors["state"] = Tensor(DType::kInt64, {2, 2, 4, 4});
  WriteSafetensors(folder / "in", file);
  EXPECT_EQ(
      NoRefusal(Ttr({"apply", "linear_attention", "--in", folder / "in", "--out", folder / "out"}),
                2, "state must be float32, float64, bfloat16 or float16 but is int64"),
      "");
}

// Gradients of other shapes are refused; nothing is read beyond them, and nothing is written.
TEST(Apply, GradientsOfOtherShapesAreRefused) {
  const TemporaryFolder folder;
  const Recipe recipe = ParseRecipe("linear_attention");
  const auto refused = [&](const char* name, DType dtype, const Shape& shape, const char* text) {
    TensorFile file = InputFile(recipe);
    file.tensors["dy"] = Tensor(DType::kFloat64, {2, 7, 8, 4});
    file.tensors[name] = Tensor(dtype, shape);
    WriteSafetensors(folder / "in", file);
    const std::string what = NoRefusal(Ttr({"apply", "linear_attention", "--grad", "--in",
                                            folder / "in", "--out", folder / "out"}),
                                       2, text);
    return std::filesystem::exists(folder / "out") ? "an output was written" : what;
  };
  EXPECT_EQ(refused("dstate", DType::kFloat64, {1}, "[Backward] dstate must be ["), "");
  EXPECT_EQ(refused("dstate", DType::kFloat64, {7, 2, 4, 4}, "[Backward] dstate must be ["), "");
  EXPECT_EQ(refused("dstate", DType::kInt8, {2, 2, 4, 4}, "dstate must be float32 or float64"), "");
  EXPECT_EQ(refused("dy", DType::kFloat64, {1, 1, 1, 1}, "[Backward] dy must be ["), "");
  EXPECT_EQ(refused("dy", DType::kInt8, {2, 3, 2, 4}, "[Backward] dy must be float32"), "");
}

// Long work says so before it begins; nobody waits for it here.
TEST(Apply, TheDefinitionSaysHowLongItTakes) {
  const TemporaryFolder folder;
  const std::string name = "local_cubic{degree: 4}";
  const Recipe recipe = ParseRecipe(name);
  Dims dims;
  dims.tokens = 4000;
  dims.key_dim = 10;
  TensorFile file;
  file.tensors = experiments::MakeRandomInputs(recipe, dims, DType::kFloat32, 4).tensors;
  WriteSafetensors(folder / "in", file);
  std::vector<std::string> call = {"apply", name,           "--in",      folder / "in",
                                   "--out", folder / "out", "--threads", "1"};
  const Outcome loud = Ttr(call, "", {"timeout", "2"});
  EXPECT_NE(loud.err.find(" will take about "), std::string::npos) << loud.err;
  EXPECT_EQ(std::count(loud.err.begin(), loud.err.end(), '\n'), 2) << loud.err;  // and the plan
  call.emplace_back("--quiet");
  EXPECT_EQ(Ttr(call, "", {"timeout", "1"}).err, "");

  // Errors come alone, before any note.
  file.tensors.erase("v");
  WriteSafetensors(folder / "in", file);
  call.pop_back();
  EXPECT_EQ(NoRefusal(Ttr(call), 2, "v"), "");
}

TEST(Apply, BadInputIsRefusedAndNothingIsWritten) {
  const TemporaryFolder folder;
  const Recipe recipe = ParseRecipe("deltanet");
  const std::vector<std::string> call = {"apply",       "deltanet", "--in",
                                         folder / "in", "--out",    folder / "out"};
  const auto refused = [&](const std::string& text) {
    const std::string what = NoRefusal(Ttr(call), 2, text);
    return std::filesystem::exists(folder / "out") ? "an output was written" : what;
  };
  TensorFile file = InputFile(recipe);
  file.tensors.erase("step");
  WriteSafetensors(folder / "in", file);
  EXPECT_EQ(refused("step"), "");

  file = InputFile(recipe);
  file.tensors["speed"] = Tensor(DType::kFloat32, {1});
  WriteSafetensors(folder / "in", file);
  EXPECT_EQ(refused("speed"), "");

  file = InputFile(recipe);
  file.tensors.at("step").as<double>()[3] = -1;
  WriteSafetensors(folder / "in", file);
  EXPECT_EQ(refused("step"), "");

  file = InputFile(recipe);
  file.tensors["k"] = Tensor(DType::kFloat64, {2, 7, 2, 9});
  WriteSafetensors(folder / "in", file);
  EXPECT_EQ(refused("must be"), "");

  WriteSafetensors(folder / "in", InputFile(recipe));
  const std::string content = ReadAll(folder / "in");
  Write(folder / "in", content.substr(0, content.size() - 1));
  EXPECT_EQ(refused((folder / "in").string()), "");
  Write(folder / "in", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10));
  EXPECT_EQ(refused((folder / "in").string()), "");
  Write(folder / "in", "");
  EXPECT_EQ(refused((folder / "in").string()), "");
}

}  // namespace
}  // namespace ttr::test
