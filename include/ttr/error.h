/// The two kinds of failure that ttr reports.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

namespace ttr {

/// The caller gave something that has no meaning: a shape, a range, a recipe, a damaged file. The
/// text is one line that names the operator, the argument, what is required and what was given.
/// Nothing was written. (A command exits with 2.)
class Error : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;

  /// "[where] what must be REQUIRED but is GIVEN"
  Error(std::string_view where, std::string_view what, std::string_view required,
        std::string_view given);
};

/// The system refused: disk full, no permission, out of descriptors. (A command exits with 1.)
class SystemError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace ttr
