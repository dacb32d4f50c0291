#include "src/recipe/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <system_error>

namespace ttr {
namespace {

constexpr std::size_t kMaxQuoted = 48;

// The number of letters to insert, remove or replace that turn a into b.
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

template <class T>
std::optional<T> ParseAll(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A byte as one line of ASCII shows it.
std::string Escaped(char c) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '\n': return "\\n";
    case '\t': return "\\t";
    case '\r': return "\\r";
    case '\\': return "\\\\";
    default: break;
  }
  if (c >= ' ' && c <= '~') return std::string(1, c);
  const auto byte = static_cast<unsigned char>(c);
  return std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
}

}  // namespace

std::string FormatNumber(double x) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), x).ptr;
  return std::string(buffer.data(), end);
}

std::optional<double> ParseNumber(std::string_view text) {
  const auto value = ParseAll<double>(text);
  if (!value || !std::isfinite(*value)) return std::nullopt;
  return value;
}

std::optional<std::int64_t> ParseInteger(std::string_view text) {
  return ParseAll<std::int64_t>(text);
}

std::string Quoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text.substr(0, kMaxQuoted)) quoted += Escaped(c);
  return quoted + (text.size() > kMaxQuoted ? "...'" : "'");
}

std::string Joined(std::span<const std::string_view> words) {
  std::string joined;
  for (const std::string_view word : words) {
    if (!joined.empty()) joined += ", ";
    joined += word;
  }
  return joined;
}

std::string DidYouMean(std::string_view word, std::span<const std::string_view> known) {
  if (word.empty() || word.size() > kMaxQuoted) return "";
  std::string_view nearest;
  std::size_t least = (word.size() + 1) / 3 + 1;
  for (const std::string_view candidate : known) {
    if (candidate == word) continue;  // known, but not there
    const std::size_t distance = EditDistance(word, candidate);
    if (distance < least && distance < candidate.size()) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest.empty() ? "" : " (did you mean " + std::string(nearest) + "?)";
}

}  // namespace ttr
