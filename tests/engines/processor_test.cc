// How products of bfloat16 are chosen, for processors that are not here.
#include "src/simd/processor.h"

#include <gtest/gtest.h>

#include <string>

#include "ttr/error.h"
#include "ttr/target.h"

namespace ttr::simd {
namespace {

constexpr Bf16Processor kOld{};
constexpr Bf16Processor kZen4{.has_pairs = true, .has_fast_pairs = true};
constexpr Bf16Processor kXeon{.has_pairs = true, .has_tiles = true, .may_use_tiles = true};
constexpr Bf16Processor kRefused{.has_pairs = true, .has_tiles = true};

TEST(Bf16Products, AreTheQuickestThatThereAre) {
  EXPECT_EQ(ChooseBf16Products(kOld, ""), Bf16Products::kFloat32);
  EXPECT_EQ(ChooseBf16Products(kZen4, ""), Bf16Products::kPairs);
  EXPECT_EQ(ChooseBf16Products(kXeon, ""), Bf16Products::kTiles);
}

TEST(Bf16Products, OfARefusedProcessAreNotTiles) {
  // Its pairs are slower than floats.
  EXPECT_EQ(ChooseBf16Products(kRefused, ""), Bf16Products::kFloat32);
}

TEST(Bf16Products, AreThoseThatAreNamed) {
  EXPECT_EQ(ChooseBf16Products(kZen4, "float32"), Bf16Products::kFloat32);
  EXPECT_EQ(ChooseBf16Products(kXeon, "pairs"), Bf16Products::kPairs);
  EXPECT_EQ(ChooseBf16Products(kRefused, "pairs"), Bf16Products::kPairs);
}

std::string WhatIsSaid(const Bf16Processor& processor, const char* name) {
  try {
    ChooseBf16Products(processor, name);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Bf16Products, ThatAreNotThereAreAnErrorThatListsThose) {
  EXPECT_EQ(WhatIsSaid(kOld, "pairs"),
            "[target] TTR_BFLOAT16_PRODUCTS must be one of float32 but is \"pairs\"");
  EXPECT_EQ(WhatIsSaid(kZen4, "tiles"),
            "[target] TTR_BFLOAT16_PRODUCTS must be one of float32, pairs but is \"tiles\"");
  EXPECT_EQ(
      WhatIsSaid(kRefused, "tiles"),
      "[target] TTR_BFLOAT16_PRODUCTS must be one of float32, pairs (the system refuses tiles) "
      "but is \"tiles\"");
  EXPECT_NE(WhatIsSaid(kXeon, "nonsense"), "");
}

TEST(Bf16Products, OfThisProcessorAreThoseThatAreTold) {
  EXPECT_EQ(BFloat16Products(), NameOf(ChosenBf16Products()));
  const Bf16Processor& here = TheBf16Processor();
  EXPECT_EQ(MatrixTilesRefused(), here.has_tiles && !here.may_use_tiles);
  EXPECT_TRUE(here.has_pairs || !here.has_fast_pairs);
  EXPECT_TRUE(here.has_tiles || !here.may_use_tiles);
}

}  // namespace
}  // namespace ttr::simd
