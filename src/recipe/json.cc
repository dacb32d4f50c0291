#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/recipe/options.h"
#include "src/recipe/text.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMaxBytes = 1 << 16;
constexpr std::string_view kParts[] = {"weights", "similarity", "function", "optimizer", "reading"};

// true, 8, 0.25 or "scalar": as GetOption spells it.
Json ToValue(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  if (const auto integer = ParseInteger(text)) return *integer;
  if (const auto number = ParseNumber(text)) return *number;
  return text;
}

std::string ToText(const std::string& name, const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<std::int64_t>());
  if (value.is_number()) return FormatNumber(value.get<double>());
  throw Error("recipe", name, "a word, a number, true or false", value.type_name());
}

// A callback of the reader that refuses keys said twice, and nesting that no recipe has.
class Watch {
 public:
  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      if (depth >= 2) throw Error("recipe", "JSON", "objects of options", "nested deeper");
      keys_.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys_.pop_back();
    } else if (event == Json::parse_event_t::array_start) {
      throw Error("recipe", "JSON", "objects of options", "an array");
    } else if (event == Json::parse_event_t::key) {
      const std::string key = parsed.get<std::string>();
      if (!keys_.back().insert(key).second) {
        throw Error("recipe", "JSON key " + Quoted(key), "said once", "said twice");
      }
    }
    return true;
  }

 private:
  std::vector<std::set<std::string>> keys_;
};

// A byte-order mark before the text is skipped, by the parser.
Json ReadJson(std::string_view text) {
  if (text.size() > kMaxBytes) {
    throw Error("recipe", "JSON", "at most " + std::to_string(kMaxBytes) + " bytes",
                std::to_string(text.size()) + " bytes");
  }
  try {
    return Json::parse(text, Watch());
  } catch (const Json::parse_error& e) {
    throw Error("recipe", "text", "JSON", "malformed at byte " + std::to_string(e.byte));
  } catch (const Json::exception&) {
    throw Error("recipe", "text", "JSON with numbers in the range of double", "out of it");
  }
}

void ReadPart(Recipe& recipe, const std::string& part, const Json& options) {
  if (!options.is_object()) throw Error("recipe", part, "an object", options.type_name());
  std::vector<std::string_view> names;
  for (const Option& option : Options()) {
    if (option.part == part) names.push_back(option.name);
  }
  for (const auto& [name, value] : options.items()) {
    const Option* option = FindOption(name);
    if (option == nullptr || option->part != part) {
      throw Error("recipe", "JSON key in " + part, "one of " + Joined(names),
                  Quoted(name) + DidYouMean(name, names));
    }
    SetOption(recipe, *option, ToText(name, value), "");
  }
}

}  // namespace

std::string ToJson(const Recipe& recipe, bool every_option) {
  Json json = Json::object();
  for (const Option& option : Options()) {
    const bool names_part = option.name == option.part;
    if (!every_option && !names_part && IsDefault(recipe, option)) continue;
    json[std::string(option.part)][std::string(option.name)] = ToValue(GetOption(recipe, option));
  }
  return json.dump();
}

Recipe RecipeFromJson(std::string_view text) {
  const Json json = ReadJson(text);
  if (!json.is_object()) throw Error("recipe", "JSON", "an object", json.type_name());
  Recipe recipe;
  for (const auto& [part, options] : json.items()) {
    if (std::find(std::begin(kParts), std::end(kParts), part) == std::end(kParts)) {
      throw Error("recipe", "JSON key", "one of " + Joined(kParts),
                  Quoted(part) + DidYouMean(part, kParts));
    }
    ReadPart(recipe, part, options);
  }
  Validate(recipe);
  return recipe;
}

}  // namespace ttr
