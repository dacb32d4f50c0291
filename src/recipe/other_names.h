/// The names by which people know a layer, for suggestions; only names of the zoo parse.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ttr {

/// What a layer is called elsewhere, where no title of the zoo says it.
struct OtherName {
  std::string_view names;   ///< in small letters, commas between them
  std::string_view recipe;  ///< what to type
  std::string_view reason;  ///< why it is that, in a few words
};

std::span<const OtherName> OtherNames();

/// What to type for a layer or a feature map that `name` is called elsewhere: "deltanet (DeltaNet,
/// LMS)" for "lms". The table above says it, else the zoo's titles, the names of the feature maps
/// and their sources. Empty where none of them does, or too many do.
std::string MeantBy(std::string_view name);

}  // namespace ttr
