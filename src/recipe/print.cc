#include <initializer_list>

#include "src/recipe/options.h"

namespace ttr {
namespace {

bool IsDefault(const Recipe& recipe, std::string_view name) {
  return IsDefault(recipe, *FindOption(name));
}

void Append(std::string& list, std::string_view separator, std::string_view item) {
  if (!list.empty()) list += separator;
  list += item;
}

std::string Named(const Recipe& recipe, const Option& option) {
  return std::string(option.name) + ": " + GetOption(recipe, option);
}

// "kernel, bandwidth: B"
std::string KernelAndBandwidth(const Recipe& recipe) {
  std::string list = GetOption(recipe, "kernel");
  if (!IsDefault(recipe, "bandwidth")) Append(list, ", ", Named(recipe, *FindOption("bandwidth")));
  return list;
}

// Appends the options of a part that differ from their default; `head` is the one whose value names
// the part.
void AppendChanged(std::string& list, const Recipe& recipe, std::string_view part,
                   std::string_view head) {
  const bool polynomial = recipe.function.kind == FunctionClass::kPolynomial;
  for (const Option& option : Options()) {
    if (option.part != part || option.name == head) continue;
    const bool always = polynomial && option.name == "degree";
    if (always || !IsDefault(recipe, option)) Append(list, ", ", Named(recipe, option));
  }
}

std::string Parenthesised(std::string_view name, const std::string& list) {
  return std::string(name) + (list.empty() ? "" : "(" + list + ")");
}

std::string WeightsText(const Recipe& recipe) {
  std::string terms;
  if (!IsDefault(recipe, "decay") || recipe.weights.phase) {
    Append(terms, " x ",
           "decay(" + GetOption(recipe, "decay") + (recipe.weights.phase ? ", phase)" : ")"));
  }
  for (const std::string_view name : {"importance", "window"}) {
    if (!IsDefault(recipe, name)) {
      Append(terms, " x ", Parenthesised(name, GetOption(recipe, name)));
    }
  }
  std::string bias = IsDefault(recipe, "pair_bias") ? "" : GetOption(recipe, "pair_bias");
  for (const std::string_view name : {"extent", "exponent"}) {
    if (IsDefault(recipe, name)) continue;
    if (bias.empty()) bias = GetOption(recipe, "pair_bias");
    Append(bias, ", ", Named(recipe, *FindOption(name)));
  }
  if (!bias.empty()) Append(terms, " x ", Parenthesised("pair_bias", bias));
  const bool similarity = !IsDefault(recipe, "kernel") || !IsDefault(recipe, "bandwidth");
  if (similarity && recipe.function.kind != FunctionClass::kKernel) {
    Append(terms, " x ", Parenthesised("similarity", KernelAndBandwidth(recipe)));
  }
  return terms.empty() ? "uniform" : terms;
}

std::string FunctionText(const Recipe& recipe) {
  std::string list;
  if (recipe.function.kind == FunctionClass::kKernel) list = KernelAndBandwidth(recipe);
  AppendChanged(list, recipe, "function", "function");
  return Parenthesised(GetOption(recipe, "function"), list);
}

}  // namespace

std::string ToString(const Recipe& recipe) {
  std::string optimizer;
  AppendChanged(optimizer, recipe, "optimizer", "optimizer");
  std::string reading;
  AppendChanged(reading, recipe, "reading", "");
  return WeightsText(recipe) + " | " + FunctionText(recipe) + " | " +
         Parenthesised(GetOption(recipe, "optimizer"), optimizer) +
         (reading.empty() ? "" : " | " + Parenthesised("reading", reading));
}

}  // namespace ttr
