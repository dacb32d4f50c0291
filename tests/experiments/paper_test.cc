// The map of the paper names nothing that is not there.
#include "experiments/paper/paper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <set>
#include <sstream>

#include "experiments/studies/identities.h"
#include "tests/experiments/report_support.h"
#include "ttr/plan.h"

namespace ttr::experiments {
namespace {

using report::ReadAll;

template <class Check>
void ForEachEntry(Check check) {
  for (const PaperSection& section : Paper()) {
    for (const PaperEntry& entry : section.entries) {
      SCOPED_TRACE(std::string(section.title) + ", " + std::string(entry.place) + ": " +
                   std::string(entry.says));
      check(entry);
    }
  }
}

TEST(Paper, RecipesHaveAMeaningAndAnEngine) {
  ForEachEntry([](const PaperEntry& entry) {
    if (entry.recipe.empty()) return;
    const Recipe recipe = ParseRecipe(entry.recipe);  // throws where it has none
    Validate(recipe);
    const bool says_so = entry.differs.find("the definition runs it") != std::string_view::npos;
    EXPECT_EQ(MakePlan(recipe).engine == kDefinition, says_so);
  });
}

TEST(Paper, IdentitiesAreThoseOfTheExperiment) {
  std::set<std::string> names;
  for (const Identity& identity : Identities({})) {
    EXPECT_TRUE(names.insert(Name(identity)).second) << Name(identity);
  }
  ForEachEntry([&](const PaperEntry& entry) {
    EXPECT_TRUE(entry.identity.empty() || names.contains(std::string(entry.identity)));
  });
}

// "TEST(Suite, Name)" of all programs.
std::string AllTests() {
  std::string text;
  const std::filesystem::path tests = TTR_SOURCE_DIR "/tests";
  for (const auto& file : std::filesystem::recursive_directory_iterator(tests)) {
    if (file.path().extension() == ".cc") text += ReadAll(file.path());
  }
  return text;
}

TEST(Paper, TestsExist) {
  const std::string tests = AllTests();
  ForEachEntry([&](const PaperEntry& entry) {
    if (entry.test.empty()) return;
    const auto dot = entry.test.find('.');
    ASSERT_NE(dot, std::string_view::npos);
    const std::string arguments = "(" + std::string(entry.test.substr(0, dot)) + ", " +
                                  std::string(entry.test.substr(dot + 1)) + ")";
    EXPECT_TRUE(tests.find("TEST" + arguments) != std::string::npos ||
                tests.find("TEST_P" + arguments) != std::string::npos)
        << entry.test;
  });
}

// The anchors of a document's headings, as Git hosts make them:
// "#why-the-state-is-not-the-inverse".
std::set<std::string> Anchors(const std::string& document) {
  std::set<std::string> anchors;
  std::istringstream lines(document);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#")) continue;
    std::string anchor = "#";
    for (const char c : line.substr(line.find(' ') + 1)) {
      const auto letter = static_cast<unsigned char>(c);
      if (c == ' ') anchor += '-';
      if (std::isalnum(letter) != 0 || c == '-' || c == '_') {
        anchor += static_cast<char>(std::tolower(letter));
      }
    }
    anchors.insert(anchor);
  }
  return anchors;
}

TEST(Paper, DocumentsHaveTheSections) {
  ForEachEntry([](const PaperEntry& entry) {
    if (entry.document.empty()) return;
    const std::size_t at = std::min(entry.document.find('#'), entry.document.size());
    const std::string name(entry.document.substr(0, at)), anchor(entry.document.substr(at));
    const std::string text = ReadAll(std::filesystem::path(TTR_SOURCE_DIR "/docs") / name);
    EXPECT_FALSE(text.empty()) << name;
    EXPECT_TRUE(anchor.empty() || Anchors(text).contains(anchor)) << entry.document;
  });
}

TEST(Paper, EveryEntrySaysSomething) {
  ForEachEntry([](const PaperEntry& entry) {
    EXPECT_FALSE(entry.place.empty() || entry.says.empty());
    const bool shown =
        entry.computed || !entry.identity.empty() || !entry.test.empty() || !entry.command.empty();
    EXPECT_TRUE(shown ||
                (entry.recipe.empty() && entry.differs.find("not here") != std::string::npos));
    EXPECT_TRUE(!entry.computed || !entry.recipe.empty());
  });
}

// "eq. 20-23" is 20, 21, 22 and 23; "eq. 10, 11" both.
std::set<int> Numbers(std::string place) {
  std::set<int> numbers;
  if (!place.starts_with("eq. ")) return numbers;
  std::istringstream parts(place.substr(4));
  for (std::string part; std::getline(parts, part, ',');) {
    const auto dash = part.find('-');
    const int first = std::stoi(part);
    const int last = dash == std::string::npos ? first : std::stoi(part.substr(dash + 1));
    for (int n = first; n <= last; ++n) numbers.insert(n);
  }
  return numbers;
}

TEST(Paper, EveryEquationIsThere) {
  std::set<int> numbers;
  ForEachEntry([&](const PaperEntry& entry) { numbers.merge(Numbers(std::string(entry.place))); });
  constexpr int kEquations = 67;
  for (int n = 1; n <= kEquations; ++n) EXPECT_TRUE(numbers.contains(n)) << n;
  EXPECT_EQ(numbers.size(), std::size_t{kEquations});
}

}  // namespace
}  // namespace ttr::experiments
