// The grammar. Words are letters, digits and any of "_.+-".
//
//   recipe    = name [ "{" [pair {"," pair}] "}" ]
//             | weights "|" function "|" optimizer [ "|" "reading" pairs ]
//   weights   = "uniform" | term { "x" term }
//   term      = "decay" "(" value ["," "phase"] ")" | "importance" "(" value ")"
//             | "window" "(" value ")" | "pair_bias" "(" value {"," pair} ")"
//             | "similarity" "(" kernel ["," "bandwidth" ":" value] ")"
//   function  = word [pairs], where "kernel" takes the kernel's word first
//   optimizer = word [pairs]
//   pairs     = "(" [pair {"," pair}] ")"
//   pair      = name ":" value
#include "src/recipe/parse.h"

#include <algorithm>
#include <string>
#include <vector>

#include "src/recipe/options.h"
#include "src/recipe/other_names.h"
#include "src/recipe/text.h"
#include "src/recipe/validate.h"
#include "ttr/error.h"
#include "ttr/zoo.h"

namespace ttr {
namespace {

constexpr std::size_t kMaxLength = 4096;

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '+' || c == '-';
}

bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

struct Token {
  std::string_view text;  // a word, one character of punctuation, or empty at the end
  std::size_t place = 0;
  bool word = false;

  std::string At() const { return " at character " + std::to_string(place + 1); }
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) { Next(); }

  Recipe Parse() {
    if (text_.size() > kMaxLength) {
      throw Error("recipe", "text", "at most " + std::to_string(kMaxLength) + " characters",
                  std::to_string(text_.size()) + " characters");
    }
    if (text_.find('|') == std::string_view::npos) return ParseNamed();
    Recipe recipe;
    ParseWeights(recipe);
    Take("|");
    ParseFunction(recipe);
    Take("|");
    ParseHead(recipe, "optimizer");
    if (token_.text == "|") {
      Next();
      ParseReading(recipe);
    }
    if (!token_.text.empty()) Fail("the end");
    return recipe;
  }

 private:
  [[noreturn]] void Fail(const std::string& required,
                         std::span<const std::string_view> known = {}) {
    if (token_.text.empty()) throw Error("recipe", "text", required, "at its end");
    throw Error("recipe", "text" + token_.At(), required,
                Quoted(token_.text) + DidYouMean(token_.text, known));
  }

  void Next() {
    while (at_ < text_.size() && IsSpace(text_[at_])) ++at_;
    const std::size_t begin = at_;
    while (at_ < text_.size() && IsWordCharacter(text_[at_])) ++at_;
    const bool word = at_ > begin;
    if (!word && at_ < text_.size()) ++at_;
    token_ = {text_.substr(begin, at_ - begin), begin, word};
  }

  void Take(std::string_view punctuation) {
    if (token_.text != punctuation) Fail("'" + std::string(punctuation) + "'");
    Next();
  }

  Token TakeWord(const std::string& required) {
    if (!token_.word) Fail(required);
    const Token word = token_;
    Next();
    return word;
  }

  // Sets an option that may be said only once.
  void Set(Recipe& recipe, std::string_view name, const Token& value) {
    const Option& option = *FindOption(name);
    if (std::find(said_.begin(), said_.end(), &option) != said_.end()) {
      throw Error("recipe", std::string(name) + value.At(), "said once", "said twice");
    }
    SetOption(recipe, option, value.text, value.At());
    said_.push_back(&option);
  }

  void ParseValue(Recipe& recipe, std::string_view name) {
    const Token value = TakeWord("a value of " + std::string(name));
    Set(recipe, name, value);
  }

  // name ":" value; the option belongs to `part` where one is given.
  void ParsePair(Recipe& recipe, std::string_view part) {
    std::vector<std::string_view> names;
    for (const Option& option : Options()) {
      if ((part.empty() || option.part == part) && option.name != part)
        names.push_back(option.name);
    }
    if (std::find(names.begin(), names.end(), token_.text) == names.end()) {
      Fail(part.empty() ? "the name of an option" : "one of " + Joined(names), names);
    }
    const std::string_view name = TakeWord("").text;
    Take(":");
    ParseValue(recipe, name);
  }

  // {"," pair} close
  void ParseMorePairs(Recipe& recipe, std::string_view part, std::string_view close) {
    while (token_.text == ",") {
      Next();
      ParsePair(recipe, part);
    }
    if (token_.text != close) Fail("',' or '" + std::string(close) + "'");
    Next();
  }

  void ParsePairs(Recipe& recipe, std::string_view part, std::string_view close) {
    if (token_.text == close) return Next();
    ParsePair(recipe, part);
    ParseMorePairs(recipe, part, close);
  }

  // The words of an option whose value names a part, with its pairs.
  void ParseHead(Recipe& recipe, std::string_view part) {
    const bool word = token_.word;
    ParseValue(recipe, part);
    if (word && token_.text == "(") {
      Next();
      ParsePairs(recipe, part, ")");
    }
  }

  void ParseFunction(Recipe& recipe) {
    if (token_.text != "kernel") return ParseHead(recipe, "function");
    ParseValue(recipe, "function");
    Take("(");
    ParseKernel(recipe);
    while (token_.text == ",") {
      Next();
      ParsePair(recipe, token_.text == "bandwidth" ? "similarity" : "function");
    }
    Take(")");
  }

  void ParseKernel(Recipe& recipe) { ParseValue(recipe, "kernel"); }

  void ParseWeights(Recipe& recipe) {
    static constexpr std::string_view kTerms[] = {"uniform", "decay",     "importance",
                                                  "window",  "pair_bias", "similarity"};
    if (token_.text == "uniform") return Next();
    while (true) {
      if (std::find(std::begin(kTerms) + 1, std::end(kTerms), token_.text) == std::end(kTerms)) {
        Fail("one of " + Joined(kTerms), kTerms);
      }
      const std::string_view term = token_.text;
      Next();
      Take("(");
      ParseValue(recipe, term == "similarity" ? "kernel" : term);
      if (term == "decay" && token_.text == ",") {
        Next();
        if (token_.text != "phase") Fail("'phase'");
        Next();
        recipe.weights.phase = true;
      }
      while ((term == "similarity" || term == "pair_bias") && token_.text == ",") {
        Next();
        ParsePair(recipe, term == "similarity" ? "similarity" : "weights");
      }
      Take(")");
      if (token_.text != "x") return;
      Next();
    }
  }

  void ParseReading(Recipe& recipe) {
    static constexpr std::string_view kReading[] = {"reading"};
    if (token_.text != "reading") Fail("'reading'", kReading);
    Next();
    Take("(");
    ParsePairs(recipe, "reading", ")");
  }

  // Throws where a layer is called by a name that it has elsewhere.
  void SuggestAnotherName() const {
    std::string_view name = text_.substr(0, text_.find('{'));
    name.remove_prefix(std::min(token_.place, name.size()));
    while (!name.empty() && IsSpace(name.back())) name.remove_suffix(1);
    const std::string meant = MeantBy(name);
    if (!meant.empty()) {
      throw Error("recipe", "layer", "a name of the zoo", Quoted(name) + ": try " + meant);
    }
  }

  Recipe ParseNamed() {
    const ZooEntry* entry = FindInZoo(token_.text);
    if (entry == nullptr) {
      SuggestAnotherName();
      std::vector<std::string_view> names;
      for (const ZooEntry& other : Zoo()) names.push_back(other.name);
      Fail("a name of the zoo, or weights | function | optimizer", names);
    }
    Next();
    Recipe recipe = Parser(entry->recipe).Parse();
    if (token_.text.empty()) return recipe;
    Take("{");
    ParsePairs(recipe, "", "}");
    if (!token_.text.empty()) Fail("the end");
    DropWithoutEffect(recipe, said_);
    return recipe;
  }

  std::string_view text_;
  std::size_t at_ = 0;
  Token token_;
  std::vector<const Option*> said_;
};

}  // namespace

Recipe ParseUnchecked(std::string_view text) { return Parser(text).Parse(); }

Recipe ParseRecipe(std::string_view text) {
  const Recipe recipe = ParseUnchecked(text);
  Validate(recipe);
  return recipe;
}

}  // namespace ttr
