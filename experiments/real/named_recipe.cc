#include "experiments/real/named_recipe.h"

#include <algorithm>

namespace ttr::experiments {

std::vector<std::string> ShortNames(const std::vector<std::string>& methods) {
  std::vector<std::string> names;
  for (const std::string& method : methods) {
    const std::size_t brace = method.find('{');
    names.push_back(brace == std::string::npos ? method : method.substr(0, brace) + "{..}");
  }
  std::vector<std::string> shown = names;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (std::count(names.begin(), names.end(), names[i]) > 1) shown[i] = methods[i];
  }
  return shown;
}

}  // namespace ttr::experiments
