/// Words and numbers of recipes, and what to say about those that nobody knows.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ttr {

/// The shortest text that parses back to the same number.
std::string FormatNumber(double x);

/// The whole text as a finite number (".99", "1e-3"), or nothing.
std::optional<double> ParseNumber(std::string_view text);
std::optional<std::int64_t> ParseInteger(std::string_view text);

/// 'text', cut to a readable length, on one line of printable ASCII: other bytes are escaped (\n,
/// \t, \x1b).
std::string Quoted(std::string_view text);

/// "a, b, c".
std::string Joined(std::span<const std::string_view> words);

/// " (did you mean X?)" with the known word at the smallest edit distance; empty where none is
/// near.
std::string DidYouMean(std::string_view word, std::span<const std::string_view> known);

}  // namespace ttr
