#include "src/recipe/options.h"

#include <cmath>
#include <vector>

#include "src/recipe/text.h"
#include "ttr/error.h"

namespace ttr {
namespace {

[[noreturn]] void Fail(const Option& option, std::string_view place, std::string_view text) {
  std::string given = Quoted(text);
  if (const auto* word = std::get_if<WordOption>(&option.value)) {
    given += DidYouMean(text, word->words);
  } else if (const auto* either = std::get_if<WordOrNumberOption>(&option.value)) {
    given += DidYouMean(text, either->word.words);
  }
  throw Error("recipe", std::string(option.name) + std::string(place), Values(option), given);
}

int PlaceOf(std::string_view text, std::span<const std::string_view> words) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == text) return static_cast<int>(i);
  }
  return -1;
}

std::string RangeOf(const NumberOption& number) {
  std::string range = "a number";
  if (number.least > -kInfinity) {
    range += (number.open ? " > " : " >= ") + FormatNumber(number.least);
  }
  if (number.most < kInfinity) {
    range += (number.least > -kInfinity ? " and <= " : " <= ") + FormatNumber(number.most);
  }
  return range;
}

bool Within(const NumberOption& number, double x) {
  return std::isfinite(x) && x <= number.most &&
         (number.open ? x > number.least : x >= number.least);
}

// The words that a person writes: the place that stands for a number is written as that number.
std::vector<std::string_view> WordsOf(const WordOrNumberOption& option) {
  std::vector<std::string_view> words;
  for (std::size_t i = 0; i < option.word.words.size(); ++i) {
    if (static_cast<int>(i) != option.number_place) words.push_back(option.word.words[i]);
  }
  return words;
}

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

const Option& Find(std::string_view name) {
  if (const Option* option = FindOption(name)) return *option;
  std::vector<std::string_view> names;
  for (const Option& option : Options()) names.push_back(option.name);
  throw Error("recipe", "text", "the name of an option", Quoted(name) + DidYouMean(name, names));
}

const Recipe& DefaultRecipe() {
  static const Recipe recipe;
  return recipe;
}

}  // namespace

const Option* FindOption(std::string_view name) {
  for (const Option& option : Options()) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

void SetOption(Recipe& recipe, const Option& option, std::string_view text,
               std::string_view place) {
  const bool known = std::visit(Overloaded{
                                    [&](const WordOption& word) {
                                      const int found = PlaceOf(text, word.words);
                                      if (found >= 0) word.set(recipe, found);
                                      return found >= 0;
                                    },
                                    [&](const FlagOption& flag) {
                                      const bool is_true = text == "true";
                                      if (is_true || text == "false") flag.set(recipe, is_true);
                                      return is_true || text == "false";
                                    },
                                    [&](const IntegerOption& integer) {
                                      const auto value = ParseInteger(text);
                                      if (value) integer.set(recipe, *value);
                                      return value.has_value();
                                    },
                                    [&](const NumberOption& number) {
                                      const auto value = ParseNumber(text);
                                      if (value) number.set(recipe, *value);
                                      return value.has_value();
                                    },
                                    [&](const WordOrNumberOption& either) {
                                      const auto value = ParseNumber(text);
                                      const int found = value ? either.number_place
                                                              : PlaceOf(text, either.word.words);
                                      if (found < 0 || (!value && found == either.number_place))
                                        return false;
                                      either.word.set(recipe, found);
                                      if (value) either.number.set(recipe, *value);
                                      return true;
                                    },
                                },
                                option.value);
  if (!known) Fail(option, place, text);
}

std::string GetOption(const Recipe& recipe, const Option& option) {
  const auto spell = [&recipe](const WordOption& word) {
    const auto found = static_cast<std::size_t>(word.get(recipe));
    return std::string(found < word.words.size() ? word.words[found] : "?");
  };
  return std::visit(
      Overloaded{
          spell,
          [&](const FlagOption& flag) -> std::string {
            return flag.get(recipe) ? "true" : "false";
          },
          [&](const IntegerOption& integer) { return std::to_string(integer.get(recipe)); },
          [&](const NumberOption& number) { return FormatNumber(number.get(recipe)); },
          [&](const WordOrNumberOption& either) {
            return either.word.get(recipe) == either.number_place
                       ? FormatNumber(either.number.get(recipe))
                       : spell(either.word);
          },
      },
      option.value);
}

std::string Values(const Option& option) {
  return std::visit(Overloaded{
                        [](const WordOption& word) { return "one of " + Joined(word.words); },
                        [](const FlagOption&) { return std::string("true or false"); },
                        [](const IntegerOption& integer) {
                          std::string range = "a whole number >= " + std::to_string(integer.least);
                          if (integer.most < kMaxInt)
                            range += " and <= " + std::to_string(integer.most);
                          return range;
                        },
                        [](const NumberOption& number) { return RangeOf(number); },
                        [](const WordOrNumberOption& either) {
                          return "one of " + Joined(WordsOf(either)) + ", or " +
                                 RangeOf(either.number);
                        },
                    },
                    option.value);
}

std::string OutOfRange(const Recipe& recipe, const Option& option) {
  const bool inside = std::visit(
      Overloaded{
          [](const FlagOption&) { return true; },
          [&](const WordOption& word) {
            return word.get(recipe) < static_cast<int>(word.words.size());
          },
          [&](const IntegerOption& integer) {
            const std::int64_t value = integer.get(recipe);
            return value >= integer.least && value <= integer.most;
          },
          [&](const NumberOption& number) { return Within(number, number.get(recipe)); },
          [&](const WordOrNumberOption& either) {
            const double value = either.number.get(recipe);
            return either.word.get(recipe) == either.number_place ? Within(either.number, value)
                                                                  : value == 1;
          },
      },
      option.value);
  return inside ? "" : Values(option);
}

bool IsDefault(const Recipe& recipe, const Option& option) {
  const auto same = [&recipe](const auto& value) {
    return value.get(recipe) == value.get(DefaultRecipe());
  };
  return std::visit(Overloaded{same,
                               [&](const WordOrNumberOption& either) {
                                 return same(either.word) && same(either.number);
                               }},
                    option.value);
}

void SetDefault(Recipe& recipe, const Option& option) {
  SetOption(recipe, option, GetOption(DefaultRecipe(), option), "");
}

void SetOption(Recipe& recipe, std::string_view name, std::string_view value) {
  SetOption(recipe, Find(name), value, "");
}

std::string GetOption(const Recipe& recipe, std::string_view name) {
  return GetOption(recipe, Find(name));
}

std::vector<OptionInfo> RecipeOptions() {
  std::vector<OptionInfo> infos;
  for (const Option& option : Options()) {
    infos.push_back({option.name, option.part, GetOption(DefaultRecipe(), option), Values(option),
                     option.meaning});
  }
  return infos;
}

}  // namespace ttr
