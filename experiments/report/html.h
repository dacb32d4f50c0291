// Text and tables as HTML.
#pragma once

#include <string>
#include <string_view>

#include "experiments/report/table.h"

namespace ttr::report {

// `text` with &, <, >, " and ' escaped, invalid bytes and control characters replaced: safe between
// tags and in quoted attributes of HTML and SVG.
std::string EscapeHtml(std::string_view text);

// Escaped text in which `code` between backquotes becomes a code element.
std::string InlineHtml(std::string_view text);

// A table element; numbers align at the right.
std::string TableHtml(const Table& table);

}  // namespace ttr::report
