#include "tools/command_line.h"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "src/recipe/text.h"
#include "ttr/error.h"

namespace ttr::tools {
namespace {

bool All(const CLI::App*) { return true; }

// The command that was named, with those above it.
struct Chosen {
  const CLI::App* command;
  std::string words;
};

Chosen ChosenOf(const CLI::App& app) {
  Chosen chosen{&app, app.get_name()};
  while (!chosen.command->get_subcommands().empty()) {
    chosen.command = chosen.command->get_subcommands().front();
    chosen.words += " " + chosen.command->get_name();
  }
  return chosen;
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(All)) names.push_back(command->get_name());
  return names;
}

std::string Nearest(const std::string& word, const std::vector<std::string>& known) {
  return DidYouMean(word, std::vector<std::string_view>(known.begin(), known.end()));
}

// What went wrong on the command line, and where to read on.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const Chosen chosen = ChosenOf(app);
  const std::string help = " (see " + chosen.words + " --help)";
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return std::string(error.what()) + help;
  const std::string& word = extras.front();
  std::vector<std::string> known = CommandsOf(*chosen.command);
  if (!word.starts_with('-') && !known.empty()) {
    std::string names;
    for (const std::string& name : known) names += (names.empty() ? "" : ", ") + name;
    return chosen.words + " has no command '" + word + "'" + Nearest(word, known) + "; there are " +
           names;
  }
  if (!word.starts_with('-')) return "'" + word + "' was not expected" + help;
  known.clear();
  for (const CLI::Option* option : chosen.command->get_options()) {
    known.push_back(option->get_name());
  }
  return chosen.words + " has no option " + word + Nearest(word, known) + help;
}

}  // namespace

Option Option::Required() const { return Option(option_->required()); }

Option Option::ShowDefault() const { return Option(option_->capture_default_str()); }

Option Option::Called(const std::string& name) const { return Option(option_->type_name(name)); }

Option Option::OneOf(const std::vector<std::string>& words) const {
  return Option(option_->check(CLI::IsMember(words)));
}

Option Option::Within(std::int64_t least, std::int64_t most) const {
  return Option(option_->check(CLI::Range(least, most)));
}

Option Option::ValueMayLack() const { return Option(option_->expected(0, 1)); }

Option Option::Repeatable() const {
  return Option(option_->expected(1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Option Option::OneAtATime() const { return Option(option_->allow_extra_args(false)); }

Option Option::Separator(char separator) const { return Option(option_->delimiter(separator)); }

bool Option::given() const { return option_->count() > 0; }

Command Command::AddCommand(const std::string& name, const std::string& what,
                            const std::string& examples) {
  CLI::App* command = app_->add_subcommand(name, what);
  command->footer("Examples:\n" + examples);
  return Command(command);
}

template <class T>
Option Command::AddOption(const std::string& name, T& value, const std::string& help) {
  return Option(app_->add_option(name, value, help));
}

template Option Command::AddOption(const std::string&, std::string&, const std::string&);
template Option Command::AddOption(const std::string&, bool&, const std::string&);
template Option Command::AddOption(const std::string&, int&, const std::string&);
template Option Command::AddOption(const std::string&, std::int64_t&, const std::string&);
template Option Command::AddOption(const std::string&, std::uint64_t&, const std::string&);
template Option Command::AddOption(const std::string&, double&, const std::string&);
template Option Command::AddOption(const std::string&, std::vector<std::string>&,
                                   const std::string&);
template Option Command::AddOption(const std::string&, std::vector<std::int64_t>&,
                                   const std::string&);
template Option Command::AddOption(const std::string&, std::vector<double>&, const std::string&);

Option Command::AddFlag(const std::string& name, bool& value, const std::string& help) {
  return Option(app_->add_flag(name, value, help));
}

void Command::OnRun(std::function<void()> run) { app_->callback(std::move(run)); }

void Command::MayHaveSubcommand() { app_->require_subcommand(0, 1); }

bool Command::Given(const std::string& option) const { return app_->count(option) > 0; }

bool Command::HasChosen() const { return !app_->get_subcommands().empty(); }

std::vector<std::pair<std::string, std::string>> Command::Subcommands() const {
  std::vector<std::pair<std::string, std::string>> commands;
  for (const CLI::App* command : app_->get_subcommands(All)) {
    commands.emplace_back(command->get_name(), command->get_description());
  }
  return commands;
}

CommandLine::CommandLine(const std::string& name, const std::string& what,
                         const std::string& version, const std::string& footer)
    : app_(std::make_unique<CLI::App>(what)) {
  app_->name(name);
  app_->set_version_flag("--version", version);
  app_->require_subcommand(1);
  app_->footer(footer);
}

CommandLine::~CommandLine() = default;

bool CommandLine::Run(int argc, char** argv) {
  try {
    app_->parse(argc, argv);
  } catch (const CLI::Success& success) {
    app_->exit(success);
    return false;
  } catch (const CLI::ParseError& error) {
    throw Error(UsageError(*app_, error));
  }
  return true;
}

}  // namespace ttr::tools
