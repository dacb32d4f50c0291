#include "ttr/target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "hwy/highway.h"
#include "src/engines/fast_weights/fast_weights.h"
#include "src/simd/targets.h"
#include "ttr/error.h"

namespace ttr {
namespace {

TEST(Target, ForcedOneIsWhatKernelsWereCompiledFor) {
  const std::vector<std::string> targets = SupportedTargets();
  ASSERT_FALSE(targets.empty());
  for (const std::string& name : targets) {
    ForceTarget(name);
    EXPECT_EQ(ChosenTarget(), name);
    EXPECT_EQ(fast_weights::KernelTarget(), name);
  }
  ForceTarget("");
}

TEST(Target, UnknownNameIsAnErrorThatListsTheKnownOnes) {
  const std::string before(ChosenTarget());
  try {
    ForceTarget("AVX9");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(SupportedTargets().front()), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("\"AVX9\""), std::string::npos);
  }
  EXPECT_EQ(ChosenTarget(), before);
}

TEST(Target, UsableOnesAreCompiledAndSupportedBestFirst) {
  const std::vector<std::int64_t> usable = simd::UsableTargets(0b1110, 0b0111);
  EXPECT_EQ(usable, (std::vector<std::int64_t>{0b0010, 0b0100}));
  const std::vector<std::string> compiled = CompiledTargets();
  for (const std::string& name : SupportedTargets()) {
    EXPECT_NE(std::ranges::find(compiled, name), compiled.end()) << name;
  }
}

TEST(Target, ProgramForAnotherProcessorSaysSo) {
#if HWY_ARCH_X86
  try {
    simd::UsableTargets(HWY_AVX3, HWY_AVX2 | HWY_SCALAR);
    FAIL();
  } catch (const SystemError& error) {
    EXPECT_STREQ(error.what(),
                 "this ttr was compiled for processors with AVX3, and this one has AVX2, SCALAR: "
                 "build it here, or with TTR_TARGETS=all for every processor");
  }
#endif
}

// The environment is read once a process, so each value is tried in a process of its own.
TEST(TargetDeathTest, EnvironmentVariableTakesEffect) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const std::string& name : SupportedTargets()) {
    EXPECT_EXIT(
        {
          setenv("TTR_TARGET", name.c_str(), 1);
          std::exit(ChosenTarget() == name && fast_weights::KernelTarget() == name ? 0 : 1);
        },
        testing::ExitedWithCode(0), "");
  }
  EXPECT_EXIT(
      {
        setenv("TTR_TARGET", "nonsense", 1);
        try {
          fast_weights::KernelTarget();
        } catch (const Error& error) {
          const bool named = std::string(error.what()).find("TTR_TARGET") != std::string::npos;
          std::exit(named ? 0 : 1);
        }
        std::exit(2);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace ttr
