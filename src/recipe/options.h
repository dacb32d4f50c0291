/// The table of all options of a recipe. Printing, parsing, JSON, SetOption, GetOption and the
/// random recipes of the tests follow from it.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "ttr/recipe.h"

namespace ttr {

/// Limits of options without one of their own.
inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr std::int64_t kMaxInt = std::numeric_limits<std::int64_t>::max();

/// One of a list of words; `get` and `set` give and take its place in the list, which is the value
/// of the enumerator.
struct WordOption {
  std::span<const std::string_view> words;
  int (*get)(const Recipe&);
  void (*set)(Recipe&, int);
};

struct FlagOption {
  bool (*get)(const Recipe&);
  void (*set)(Recipe&, bool);
};

struct IntegerOption {
  std::int64_t (*get)(const Recipe&);
  void (*set)(Recipe&, std::int64_t);
  std::int64_t least;
  std::int64_t most;  // keeps products of sizes far from overflow
};

struct NumberOption {
  double (*get)(const Recipe&);
  void (*set)(Recipe&, double);
  double least;
  double most;
  bool open = false;  // `least` itself is not allowed
};

/// A word of the list, or a number: `decay: scalar`, `decay: 0.99`; `scale: rsqrt_dk`, `scale:
/// 0.5`. The number is said where the word's place is `number_place`.
struct WordOrNumberOption {
  WordOption word;
  NumberOption number;
  int number_place;
};

struct Option {
  std::string_view name;
  std::variant<WordOption, FlagOption, IntegerOption, NumberOption, WordOrNumberOption> value;
  std::string_view meaning;
  std::string_view part = {};  // of the recipe, as it is called in JSON
};

/// In the order in which they are printed.
std::span<const Option> Options();

/// Null when there is none.
const Option* FindOption(std::string_view name);

/// As SetOption, with `place` (" at character 7", may be empty) in the error.
void SetOption(Recipe& recipe, const Option& option, std::string_view text, std::string_view place);
std::string GetOption(const Recipe& recipe, const Option& option);

/// "true or false", "one of none, scalar", "a number > 0".
std::string Values(const Option& option);

/// What the value of an option breaks ("a number > 0"), or nothing. Words are always in range.
std::string OutOfRange(const Recipe& recipe, const Option& option);

bool IsDefault(const Recipe& recipe, const Option& option);
void SetDefault(Recipe& recipe, const Option& option);

}  // namespace ttr
