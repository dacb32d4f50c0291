// Text in the cells of a Markdown table.
#pragma once

#include <string>
#include <string_view>

namespace ttr::tools {

std::string Escaped(std::string_view text);

// A code span; a bar would end the cell.
std::string Code(std::string_view text);

}  // namespace ttr::tools
