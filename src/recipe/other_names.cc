#include "src/recipe/other_names.h"

#include <cstddef>
#include <vector>

#include "ttr/zoo.h"

namespace ttr {
namespace {

constexpr std::size_t kMostMeant = 4;
constexpr std::size_t kLeastLetters = 3;

bool IsCapital(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLetterOrDigit(char c) {
  return IsCapital(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Small letters and digits, one blank between words: "TTT-Linear" is "ttt linear".
std::string Plain(std::string_view text) {
  std::string plain;
  bool between = false;
  for (const char c : text) {
    if (!IsLetterOrDigit(c)) {
      between = !plain.empty();
      continue;
    }
    if (between) plain += ' ';
    between = false;
    plain += IsCapital(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return plain;
}

// The parts of `text` between any of `separators`.
std::vector<std::string_view> Parts(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Is it one of the names that a title lists, "RG-LRU (Griffin)"?
bool Lists(std::string_view title, std::string_view plain) {
  for (const std::string_view part : Parts(title, ",;:()")) {
    if (Plain(part) == plain) return true;
  }
  return false;
}

// Is it a proper name in a title, "TTT" of "TTT-Linear"? Other words say what a layer does.
bool Holds(std::string_view title, std::string_view plain) {
  for (const std::string_view word : Parts(title, " ,;:()-")) {
    if (!word.empty() && IsCapital(word.front()) && Plain(word) == plain) return true;
  }
  return false;
}

template <class Says>
std::vector<std::string> Meant(std::string_view plain, Says says) {
  std::vector<std::string> meant;
  for (const ZooEntry& entry : Zoo()) {
    if (!says(entry.title, plain)) continue;
    meant.push_back(std::string(entry.name) + " (" + std::string(entry.title) + ")");
  }
  for (const FeatureEntry& feature : FeatureMaps()) {
    if (!says(feature.source, plain)) continue;
    meant.push_back("linear_attention{features: " + std::string(feature.name) + "} (" +
                    std::string(feature.source) + ")");
  }
  return meant;
}

}  // namespace

std::string MeantBy(std::string_view name) {
  const std::string plain = Plain(name);
  if (plain.size() < kLeastLetters) return "";
  for (const ZooEntry& entry : Zoo()) {  // "GLA", "Gated-DeltaNet2"
    if (Plain(entry.name) == plain) return std::string(entry.name);
  }
  std::vector<std::string> meant = Meant(plain, Lists);
  if (meant.empty()) meant = Meant(plain, Holds);
  if (meant.size() > kMostMeant) return {};
  std::string text;
  for (const std::string& one : meant) text += (text.empty() ? "" : ", or ") + one;
  return text;
}

}  // namespace ttr
