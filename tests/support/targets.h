// SIMD targets for tests.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ttr/target.h"

namespace ttr::test {

// The targets that tests go through: that which the environment's TTR_TARGET names, or else all
// that this machine supports. So a program run once a target does nothing twice.
std::vector<std::string> Targets();

// Forces a target for the length of a test.
class OnTarget {
 public:
  explicit OnTarget(std::string_view name) { ForceTarget(name); }
  ~OnTarget() { ForceTarget(""); }
  OnTarget(const OnTarget&) = delete;
  OnTarget& operator=(const OnTarget&) = delete;
};

}  // namespace ttr::test
