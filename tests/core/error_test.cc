#include "ttr/error.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <type_traits>

namespace ttr {
namespace {

TEST(Error, HasOnePattern) {
  const Error error("Forward", "k", "[B,T,H,Dk] = [2, 64, 4, 128]", "[2, 64, 4, 64]");
  EXPECT_STREQ(error.what(),
               "[Forward] k must be [B,T,H,Dk] = [2, 64, 4, 128] but is [2, 64, 4, 64]");
}

TEST(Error, IsWhatBindingsExpect) {
  static_assert(std::is_base_of_v<std::invalid_argument, Error>);
  static_assert(std::is_base_of_v<std::runtime_error, SystemError>);
  EXPECT_STREQ(Error("as it is").what(), "as it is");
  EXPECT_STREQ(SystemError("disk full").what(), "disk full");
}

}  // namespace
}  // namespace ttr
