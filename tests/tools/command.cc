#include "tests/tools/command.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace ttr::test {
namespace {

std::string Quoted(const std::string& word) {
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

}  // namespace

std::vector<std::vector<std::string>> Fields(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line + ",");
    rows.emplace_back();
    for (std::string field; std::getline(fields, field, ',');) rows.back().push_back(field);
  }
  return rows;
}

void Write(const std::filesystem::path& path, const std::string& content) {
  std::ofstream(path, std::ios::binary) << content;
}

Outcome Ttr(const std::vector<std::string>& arguments, const std::string& input,
            const std::vector<std::string>& prefix) {
  const TemporaryFolder folder;
  Write(folder / "in", input);
  std::string line;
  for (const std::string& word : prefix) line += Quoted(word) + " ";
  line += Quoted(TTR_COMMAND);
  for (const std::string& argument : arguments) line += " " + Quoted(argument);
  line += " < " + Quoted(folder / "in") + " > " + Quoted(folder / "out") + " 2> " +
          Quoted(folder / "err");
  const int status = std::system(line.c_str());
  return {.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
          .out = ReadAll(folder / "out"),
          .err = ReadAll(folder / "err")};
}

std::string NoRefusal(const Outcome& outcome, int code, const std::string& text) {
  const auto lines = std::count(outcome.err.begin(), outcome.err.end(), '\n');
  if (outcome.code == code && outcome.out.empty() && lines == 1 &&
      outcome.err.starts_with("ttr: ") && outcome.err.find(text) != std::string::npos) {
    return "";
  }
  return "exit code " + std::to_string(outcome.code) + ", standard output '" + outcome.out +
         "', standard error '" + outcome.err + "'";
}

}  // namespace ttr::test
