#include "ttr/target.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "src/engines/fast_weights/fast_weights.h"
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
