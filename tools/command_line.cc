#include "tools/command_line.h"

#include <CLI/CLI.hpp>

#include "ttr/error.h"

namespace ttr::tools {
namespace {

bool All(const CLI::App*) { return true; }

// The subcommand that was named, for the hint.
std::string Chosen(const CLI::App& app) {
  std::string words = app.get_name();
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return words;
}

// What went wrong on the command line, and where to read on.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const bool misnamed = argc > 1 && argv[1][0] != '-' && app.get_subcommands().empty();
  if (!misnamed) return std::string(error.what()) + " (see " + Chosen(app) + " --help)";
  std::string names;
  for (const CLI::App* command : app.get_subcommands(All)) {
    names += (names.empty() ? "" : ", ") + command->get_name();
  }
  return "there is no command '" + std::string(argv[1]) + "'; there are " + names;
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
    throw Error(UsageError(*app_, error, argc, argv));
  }
  return true;
}

}  // namespace ttr::tools
