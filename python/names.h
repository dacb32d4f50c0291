/// Inputs as a caller of Python writes them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "ttr/inputs.h"

namespace ttr {

/// The keyword of an input: its name, with an underscore for a dot ("features_w" for features.w).
inline std::string Keyword(std::string_view name) {
  std::string keyword(name);
  std::ranges::replace(keyword, '.', '_');
  return keyword;
}

/// A text that names inputs, with their keywords.
inline std::string WithKeywords(std::string text) {
  for (const InputField& field : InputFields()) {
    if (field.name.find('.') == std::string_view::npos) continue;
    for (std::size_t at; (at = text.find(field.name)) != std::string::npos;) {
      text.replace(at, field.name.size(), Keyword(field.name));
    }
  }
  return text;
}

}  // namespace ttr
