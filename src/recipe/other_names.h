/// The names by which people know a layer, for suggestions; only names of the zoo parse.
#pragma once

#include <string>
#include <string_view>

namespace ttr {

/// What to type for a layer or a feature map that `name` is called elsewhere: "deltanet (DeltaNet,
/// LMS)" for "lms". The zoo's titles and the feature maps' sources are the table: another name of a
/// layer belongs there. Empty where none of them says it, or too many do.
std::string MeantBy(std::string_view name);

}  // namespace ttr
