// What `ttr doctor` says of a healthy machine, and that it would not say it of a broken kernel.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/support/matrix_tiles.h"
#include "tests/tools/command.h"
#include "tools/doctor_check.h"
#include "ttr/layer.h"
#include "ttr/plan.h"
#include "ttr/target.h"
#include "ttr/zoo.h"

namespace ttr::test {
namespace {

using tools::Compare;
using tools::Comparison;
using tools::Judge;
using tools::Judgement;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// Every layer is right on every target that was compiled in and that this machine supports.
TEST(Doctor, FindsNothingOnAnyTarget) {
  for (const std::string& target : SupportedTargets()) {
    const Outcome outcome = Ttr({"doctor", "--json"}, "", {"env", "TTR_TARGET=" + target});
    EXPECT_EQ(outcome.code, 0) << target << "\n" << outcome.out << outcome.err;
    EXPECT_EQ(outcome.err, "") << target;
    const auto json = nlohmann::json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(json.is_object()) << outcome.out;
    EXPECT_EQ(json["chosen_target"], target);
    EXPECT_EQ(json["passed"], true);
    for (const auto& row : json["self_test"]["rows"]) {
      EXPECT_EQ(row["verdict"], "right") << target << " " << row;
      EXPECT_LE(row["float32"], row["bound"]) << target << " " << row;
    }
  }
}

TEST(Doctor, SaysHowProductsOfBFloat16AreMade) {
  const auto told = [](const std::string& products) {
    const Outcome outcome =
        Ttr({"doctor", "--json"}, "", {"env", "TTR_BFLOAT16_PRODUCTS=" + products});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return nlohmann::json::parse(outcome.out, nullptr, /*allow_exceptions=*/false);
  };
  EXPECT_EQ(told("float32")["bfloat16_products"], false);
  EXPECT_EQ(told("float32")["bfloat16_products_by"], "float32");
  const auto json = told("");
  const bool has = Layer(ParseRecipe("deltanet")).HasBFloat16Products();  // on the chosen target
  EXPECT_EQ(json["bfloat16_products"], has);
  EXPECT_EQ(json["bfloat16_products_by"], has ? BFloat16Products() : "float32");
  EXPECT_EQ(json["bfloat16_products_exact"], true);
  EXPECT_EQ(json["matrix_tiles_refused"], MatrixTilesRefused());
  const Outcome wrong = Ttr({"doctor"}, "", {"env", "TTR_BFLOAT16_PRODUCTS=nonsense"});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("TTR_BFLOAT16_PRODUCTS must be one of float32"), std::string::npos);
}

TEST(Doctor, FindsProductsOfBFloat16ExactByPairsAndByTiles) {
  using enum simd::Bf16Products;
  for (const simd::Bf16Products products : {kFloat32, kPairs, kTiles}) {
    if (products == kPairs && !simd::TheBf16Processor().has_pairs) continue;
    if (products == kTiles && !HasMatrixTiles()) continue;
    const WithBf16Products with(products);
    EXPECT_TRUE(tools::BFloat16ProductsAreExact()) << simd::NameOf(products);
  }
}

// The judgement of `comparison` with the numbers of every `every`-th output times `factor`.
Judgement Spoilt(Comparison comparison, double factor, std::size_t every = 1) {
  const std::size_t outputs = comparison.conditions.size();
  const std::size_t width = comparison.computed.as<double>().size() / outputs;
  for (std::size_t i = 0; i < outputs; ++i) {
    if ((outputs - 1 - i) % every != 0) continue;  // the last one always
    for (std::size_t j = 0; j < width; ++j)
      comparison.computed.as<double>()[i * width + j] *= factor;
  }
  return Judge(comparison);
}

TEST(Doctor, CatchesOnePercentInAnyLayer) {
  for (const ZooEntry& entry : Zoo()) {
    const Recipe recipe = ParseRecipe(entry.recipe);
    if (MakePlan(recipe).engine == kDefinition) continue;
    for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
      const Comparison comparison = Compare(recipe, dtype);
      EXPECT_TRUE(Judge(comparison).right()) << entry.name;
      EXPECT_FALSE(Spoilt(comparison, 1.01).right()) << entry.name;
      EXPECT_FALSE(Spoilt(comparison, 0.99).right()) << entry.name;
      // One output in a hundred, and one alone.
      EXPECT_FALSE(Spoilt(comparison, 1.01, 100).right()) << entry.name;
      EXPECT_FALSE(Spoilt(comparison, 1.01, comparison.conditions.size()).right()) << entry.name;
      EXPECT_FALSE(Spoilt(comparison, 0).right()) << entry.name;
      EXPECT_FALSE(Spoilt(comparison, kNaN, comparison.conditions.size()).right()) << entry.name;
    }
  }
}

// Two outputs of two numbers, sizes 4 and 1.
Comparison Made(double first_error, double first_condition, double second_condition = 1) {
  Comparison made{.computed = Tensor(DType::kFloat64, {1, 2, 1, 2}),
                  .defined = Tensor(DType::kFloat64, {1, 2, 1, 2}),
                  .conditions = {first_condition, second_condition},
                  .eps = 0x1p-23};
  const double defined[] = {4, -1, 0.5, 1};
  for (std::size_t i = 0; i < 4; ++i) {
    made.defined.as<double>()[i] = made.computed.as<double>()[i] = defined[i];
  }
  made.computed.as<double>()[1] += first_error;
  return made;
}

TEST(Doctor, TheBoundFollowsTheCondition) {
  const double one = tools::kRoundings * 0x1p-23 * 4;  // condition 1, size 4
  EXPECT_TRUE(Judge(Made(0.99 * one, 1)).right());
  EXPECT_FALSE(Judge(Made(1.01 * one, 1)).right());
  EXPECT_TRUE(Judge(Made(99 * one, 100)).right());
  EXPECT_FALSE(Judge(Made(101 * one, 100)).right());
  EXPECT_FALSE(Judge(Made(kNaN, 100)).right());

  // Beyond what has digits to judge nothing is judged; that alone is no pass.
  const Judgement half = Judge(Made(1, 1e9));
  EXPECT_EQ(half.judged, 1);
  EXPECT_TRUE(half.right());
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double lost : {1e9, infinity, kNaN}) {
    const Judgement none = Judge(Made(0, lost, lost));
    EXPECT_EQ(none.judged, 0);
    EXPECT_FALSE(none.right()) << lost;
  }
}

}  // namespace
}  // namespace ttr::test
