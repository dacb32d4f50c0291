#include "tools/command.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "experiments/report/utf8.h"
#include "ttr/error.h"
#include "ttr/zoo.h"

namespace ttr::tools {
namespace {

// Longer than any recipe; a file without an end is not read to it.
constexpr std::size_t kMostRecipeBytes = (std::size_t{1} << 16) + 8;

std::string ReadRecipeFile(const std::string& path) {
  const auto unreadable = [&](const std::string& given) {
    return Error("recipe", "@" + path, "a file of JSON that can be read", given);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw unreadable("a folder");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw unreadable(errno == ENOENT || errno == ENOTDIR ? "not there"
                                                         : std::generic_category().message(errno));
  }
  std::string content(kMostRecipeBytes, '\0');
  file.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (file.bad()) throw unreadable(std::generic_category().message(errno));
  content.resize(static_cast<std::size_t>(file.gcount()));
  return content;
}

// The recipe line in what `ttr zoo NAME --json` and `ttr plan RECIPE --json` print; nothing in the
// JSON of a recipe itself, or in what is none.
std::string RecipeLineOf(const std::string& content) {
  const auto json = nlohmann::json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("recipe")) return "";
  const nlohmann::json& recipe = json.at("recipe");
  return recipe.is_string() ? recipe.get<std::string>() : "";
}

}  // namespace

Recipe RecipeArgument(const std::string& text) {
  if (text.empty() || text.front() != '@') return ParseRecipe(text);
  const std::string path = text.substr(1);
  const std::string content = ReadRecipeFile(path);
  try {
    const std::string line = RecipeLineOf(content);
    return line.empty() ? RecipeFromJson(content) : ParseRecipe(line);
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

void Note(std::string_view text) { fmt::print(stderr, "ttr: {}\n", report::Printable(text)); }

int TerminalWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace ttr::tools
