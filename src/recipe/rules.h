#pragma once

#include <span>
#include <string_view>

#include "ttr/recipe.h"

namespace ttr {

/// Two choices that contradict each other.
struct Rule {
  bool (*broken)(const Recipe&);
  std::string_view reason;
  void (*fix)(Recipe&);
};
std::span<const Rule> PairRules();
/// The rules that are about networks alone.
std::span<const Rule> NetworkRules();

/// Where an option does something.
struct OptionScope {
  std::string_view option;
  bool (*has_effect)(const Recipe&);
  std::string_view reason;
};
std::span<const OptionScope> OptionScopes();

}  // namespace ttr
