#include "tools/markdown.h"

namespace ttr::tools {

std::string Escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|' || c == '*' || c == '_' || c == '<' || c == '>') result += '\\';
    result += c;
  }
  return result;
}

std::string Code(std::string_view text) {
  std::string result = "`";
  for (const char c : text) result += c == '|' ? std::string("\\|") : std::string(1, c);
  return result + "`";
}

}  // namespace ttr::tools
