#include "tools/command.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "ttr/error.h"

namespace ttr::tools {

CLI::App* AddCommand(CLI::App& app, const std::string& name, const std::string& what,
                     const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer("Examples:\n" + examples);
  return command;
}

Recipe RecipeArgument(const std::string& text) {
  if (text.empty() || text.front() != '@') return ParseRecipe(text);
  const std::string path = text.substr(1);
  std::ifstream file(path, std::ios::binary);
  if (!file) throw SystemError("cannot read " + path);
  std::ostringstream content;
  content << file.rdbuf();
  try {
    return RecipeFromJson(content.str());
  } catch (const Error& error) {
    throw Error(path + ": " + error.what());
  }
}

void Note(std::string_view text) { fmt::print(stderr, "ttr: {}\n", text); }

int TerminalWidth() {
  winsize size{};
  if (isatty(STDOUT_FILENO) == 0 || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return 0;
  return size.ws_col;
}

}  // namespace ttr::tools
