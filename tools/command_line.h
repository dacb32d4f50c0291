// The command line as subcommands declare it. CLI11, which parses it, is compiled once, in
// command_line.cc: in every file its headers would cost ten times what the file itself does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace ttr::tools {

// An option that was added to a command, for a chain of what else holds for it.
class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}

  Option Required() const;
  // The default is shown by --help.
  Option ShowDefault() const;
  // What --help calls its value.
  Option Called(const std::string& name) const;
  Option OneOf(const std::vector<std::string>& words) const;
  Option Within(std::int64_t least, std::int64_t most) const;
  // The option may stand without its value.
  Option ValueMayLack() const;
  // Given as often as there are values.
  Option Repeatable() const;
  // A list takes one value a use of the option, though --help shows that there may be more.
  Option OneAtATime() const;
  // A list's values may be separated by this character, too.
  Option Separator(char separator) const;

  bool given() const;

 private:
  CLI::Option* option_;
};

// A command or a subcommand: a handle, as long as its CommandLine lives.
class Command {
 public:
  explicit Command(CLI::App* app) : app_(app) {}

  // A subcommand with its text and an example that works, shown below the options by --help.
  Command AddCommand(const std::string& name, const std::string& what, const std::string& examples);
  // T: std::string, bool, int, std::int64_t, std::uint64_t, double, or a vector of strings, of
  // std::int64_t or of double.
  template <class T>
  Option AddOption(const std::string& name, T& value, const std::string& help);
  Option AddFlag(const std::string& name, bool& value, const std::string& help);
  // What runs when the command is chosen.
  void OnRun(std::function<void()> run);
  // Lets a subcommand of this one be chosen, at most one.
  void MayHaveSubcommand();

  // Was this option of the command given?
  bool Given(const std::string& option) const;
  // Was one of its subcommands chosen?
  bool HasChosen() const;
  // Names and texts.
  std::vector<std::pair<std::string, std::string>> Subcommands() const;

 private:
  CLI::App* app_;
};

class CommandLine {
 public:
  // The program, its text, what --version says, and what --help shows last.
  CommandLine(const std::string& name, const std::string& what, const std::string& version,
              const std::string& footer);
  ~CommandLine();

  Command root() { return Command(app_.get()); }

  // Runs the command that is named; false where --help or --version was all. Throws Error, with a
  // hint where to read on, for wrong usage.
  bool Run(int argc, char** argv);

 private:
  std::unique_ptr<CLI::App> app_;
};

}  // namespace ttr::tools
