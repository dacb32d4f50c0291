// Which recipes have a meaning: the rules, each with its reason and the smallest change that fixes
// it.
//
// Two tables. An option has a *scope*: the recipes in which it does something; elsewhere it would
// be ignored in silence, so it is refused. And some *pairs* of choices contradict each other.
#include "src/recipe/validate.h"

#include <algorithm>
#include <string>

#include "src/recipe/family.h"
#include "src/recipe/rules.h"
#include "ttr/error.h"

namespace ttr {
namespace {

// Every fix takes an option to its default or a pair to one of its members, so few are needed.
constexpr int kMaxFixes = 200;

struct Fault {
  std::string reason;
  const Rule* rule = nullptr;      // fixed by its own function
  const Option* option = nullptr;  // fixed by its default
};

Fault FirstFault(const Recipe& recipe) {
  for (const Option& option : Options()) {
    const std::string required = OutOfRange(recipe, option);
    if (!required.empty()) {
      return {std::string(option.name) + " must be " + required, nullptr, &option};
    }
  }
  for (const Rule& rule : PairRules()) {
    if (rule.broken(recipe)) return {std::string(rule.reason), &rule, nullptr};
  }
  for (const OptionScope& scope : OptionScopes()) {
    const Option* option = FindOption(scope.option);
    if (!scope.has_effect(recipe) && !IsDefault(recipe, *option)) {
      return {std::string(scope.reason), nullptr, option};
    }
  }
  return {};
}

bool IsFault(const Fault& fault) { return fault.rule != nullptr || fault.option != nullptr; }

void Mend(Recipe& recipe, const Fault& fault) {
  if (fault.rule != nullptr) {
    fault.rule->fix(recipe);
  } else if (fault.option->name == "scale") {
    recipe.reading.scale = 1;  // in both of its forms
    recipe.reading.scale_rsqrt = false;
  } else {
    SetDefault(recipe, *fault.option);
  }
}

}  // namespace

void DropWithoutEffect(Recipe& recipe, std::span<const Option* const> said) {
  for (const OptionScope& scope : OptionScopes()) {
    const Option* option = FindOption(scope.option);
    const bool was_said = std::find(said.begin(), said.end(), option) != said.end();
    if (!was_said && !scope.has_effect(recipe)) SetDefault(recipe, *option);
  }
}

Recipe NearestValid(Recipe recipe) {
  for (int i = 0; i < kMaxFixes; ++i) {
    const Fault fault = FirstFault(recipe);
    if (!IsFault(fault)) break;
    Mend(recipe, fault);
  }
  return recipe;
}

void Validate(const Recipe& recipe) {
  const Fault fault = FirstFault(recipe);
  if (!IsFault(fault)) return;
  throw Error("[recipe] " + ToString(recipe) + " has no meaning: " + fault.reason +
              "; the nearest that has one is " + ToString(NearestValid(recipe)));
}

}  // namespace ttr
