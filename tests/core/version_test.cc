#include "ttr/version.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace ttr {
namespace {

TEST(Version, HasThreeNumbers) {
  EXPECT_TRUE(std::regex_match(std::string(Version()), std::regex("[0-9]+\\.[0-9]+\\.[0-9]+")));
}

}  // namespace
}  // namespace ttr
