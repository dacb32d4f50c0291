// Runs gnuplot: a script in, a picture out.
#pragma once

#include <string>
#include <string_view>

namespace ttr::report {

// What gnuplot (found on PATH, run without a shell and without the user's start-up files) writes to
// its standard output for `script`. Throws ttr::SystemError when it is missing, naming the package,
// and with its own message when it fails.
std::string RunGnuplot(std::string_view script);

// `text` as a gnuplot string constant. Single quotes: the only form in which gnuplot interprets
// nothing, backquotes and escapes included.
std::string GnuplotQuoted(std::string_view text);

}  // namespace ttr::report
