// The machine's limits: that they can be had for any size. Their values are the machine's.
#include <gtest/gtest.h>

#include <cmath>

#include "ttr/util/machine.h"

namespace ttr {
namespace {

TEST(Machine, LevelsGrowAndEndInMainMemory) {
  const std::vector<MemoryLevel> levels = MemoryLevels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.back().name, "DRAM");
  EXPECT_EQ(levels.back().bytes, 0u);
  for (std::size_t i = 0; i + 1 < levels.size(); ++i) {
    EXPECT_EQ(levels[i].name, "L" + std::to_string(i + 1));
    EXPECT_GT(levels[i].bytes, i == 0 ? 0 : levels[i - 1].bytes);
  }
}

TEST(Machine, LimitsOfAnySizeArePositive) {
  const auto positive = [](double limit) { return std::isfinite(limit) && limit > 0; };
  EXPECT_TRUE(positive(MeasureFmaPeak()));
  EXPECT_TRUE(positive(MeasureFmaPeak(/*float64=*/true)));
  EXPECT_TRUE(positive(MeasureExpRate()));
  EXPECT_TRUE(positive(MeasureIssueRate()));
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
    EXPECT_TRUE(positive(MeasureInPlaceBandwidth(bytes))) << bytes;
    EXPECT_TRUE(positive(MeasureReadBandwidth(bytes))) << bytes;
    EXPECT_TRUE(positive(MeasureStreamBandwidth(bytes))) << bytes;
  }
}

}  // namespace
}  // namespace ttr
