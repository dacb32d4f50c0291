// UTF-8 text as a terminal shows it: columns, not bytes.
#pragma once

#include <string>
#include <string_view>

namespace ttr::report {

// Number of terminal columns that `text` fills: 0 for combining marks, 2 for East Asian wide
// characters and emoji, 1 for all others. A byte that is no UTF-8 counts as one replacement
// character.
int DisplayWidth(std::string_view text);

// `text` made safe to print: control characters as \n, \t, \x1b (a word read from a file must not
// drive the terminal), invalid bytes as U+FFFD.
std::string Printable(std::string_view text);

// Valid UTF-8, control characters other than tab and newline dropped: for HTML and SVG, which
// allow no others.
std::string ValidText(std::string_view text);

// The longest prefix that fills at most `columns`, with an ellipsis at its end where text was cut.
std::string Truncate(std::string_view text, int columns);

}  // namespace ttr::report
