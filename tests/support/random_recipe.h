/// Random recipes, from the table of options: any combination, with a meaning or not.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "src/recipe/options.h"

namespace ttr {

class RandomRecipes {
 public:
  /// `usual`: numbers between .1 and 1.5 and integers up to 5 instead of all that are allowed.
  explicit RandomRecipes(std::uint64_t seed, bool usual = false) : random_(seed), usual_(usual) {}

  /// Every option is changed with the same probability, which itself varies.
  Recipe Next() {
    Recipe recipe;
    const double share = Uniform(0, 1);
    for (const Option& option : Options()) {
      if (Uniform(0, 1) < share) SetOption(recipe, option, Value(option), "");
    }
    return recipe;
  }

  /// A value of this option within its range, as text.
  std::string Value(const Option& option) {
    if (const auto* word = std::get_if<WordOption>(&option.value)) return Any(word->words);
    if (std::holds_alternative<FlagOption>(option.value)) return Integer(0, 1) ? "true" : "false";
    if (const auto* integer = std::get_if<IntegerOption>(&option.value)) {
      const std::int64_t most = !usual_ && Integer(0, 1) != 0
                                    ? integer->most
                                    : std::min<std::int64_t>(integer->most, usual_ ? 5 : 9);
      return std::to_string(Integer(integer->least, most));
    }
    if (const auto* number = std::get_if<NumberOption>(&option.value)) return Number(*number);
    const auto& either = std::get<WordOrNumberOption>(option.value);
    const std::string word = Any(either.word.words);
    return word == either.word.words[static_cast<std::size_t>(either.number_place)]
               ? Number(either.number)
               : word;
  }

  std::int64_t Integer(std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random_);
  }

 private:
  double Uniform(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random_);
  }

  std::string Any(std::span<const std::string_view> words) {
    return std::string(
        words[static_cast<std::size_t>(Integer(0, static_cast<std::int64_t>(words.size()) - 1))]);
  }

  // All magnitudes, many digits.
  std::string Number(const NumberOption& number) {
    double x = std::exp2(Uniform(-60, number.most <= 1 ? 0 : 60));
    if (usual_) x = Uniform(std::max(0.1, number.least), std::min(1.5, number.most));
    if (number.least < 0 && Integer(0, 1)) x = -x;
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", x);
    return text;
  }

  std::mt19937_64 random_;
  bool usual_;
};

}  // namespace ttr
