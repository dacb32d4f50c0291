#include "ttr/error.h"

#include <string>
#include <string_view>

namespace ttr {
namespace {

std::string Text(std::string_view where, std::string_view what, std::string_view required,
                 std::string_view given) {
  std::string text;
  text.reserve(where.size() + what.size() + required.size() + given.size() + 20);
  text.append("[").append(where).append("] ").append(what);
  text.append(" must be ").append(required).append(" but is ").append(given);
  return text;
}

}  // namespace

Error::Error(std::string_view where, std::string_view what, std::string_view required,
             std::string_view given)
    : std::invalid_argument(Text(where, what, required, given)) {}

}  // namespace ttr
