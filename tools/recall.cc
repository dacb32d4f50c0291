// ttr recall: memories read a text, one pass, nothing trained.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "experiments/data/input.h"
#include "experiments/data/text.h"
#include "experiments/real/recall_report.h"
#include "experiments/report/atomic_file.h"
#include "experiments/report/progress.h"
#include "tools/command.h"
#include "tools/files.h"
#include "tools/gate_options.h"
#include "tools/long_work.h"
#include "ttr/error.h"
#include "ttr/plan.h"

namespace ttr::tools {
namespace {

using experiments::RecallOptions;

// Those that need nothing learned, from the simplest to the exact.
constexpr const char* kRecallMemories[] = {"linear_attention",
                                           "retnet",
                                           "deltanet",
                                           "gated_deltanet",
                                           "nlms",
                                           "rls",
                                           "softmax{normalise_qk: true, scale: 16}"};

struct RecallArguments {
  std::vector<std::string> files;
  RecallOptions options;
  std::vector<std::string> memories;
  std::int64_t limit = 0;
  std::string out;
  bool bytes = false;
  bool fold_case = false;
  bool json = false;
  bool quiet = false;
};

void ReadTexts(const RecallArguments& arguments, experiments::RecallRun& run) {
  report::Progress progress("recall", arguments.limit, {.quiet = arguments.quiet});
  for (const std::string& file : arguments.files) {
    experiments::Input input(file);
    experiments::TextReader reader(
        input.stream(), input.name(),
        {.kind = arguments.options.kind, .fold_case = arguments.fold_case});
    std::string token;
    while ((arguments.limit == 0 || run.tokens() < arguments.limit) && reader.Next(token)) {
      run.Read(token);
      progress.Advance();
    }
  }
  run.Finish();
}

void WriteReport(const std::string& folder, const experiments::RecallRun& run,
                 const RecallOptions& options, const std::string& source) {
  const std::filesystem::path path(folder);
  report::EnsureFolder(path);
  const report::Table table = experiments::RecallTable(run, options, source);
  table.WriteCsv(path / "recall.csv");
  table.WriteJson(path / "recall.json");
  experiments::RecallCurve(run).WriteCsv(path / "recall_curve.csv");
  report::SaveChart(experiments::RecallChart(run, options, source), path / "recall");
}

// Memories that only the definition runs, and how long they take: over the whole text where its
// length is known, else over so many tokens.
void NoteSlowMemories(const RecallArguments& arguments) {
  const RecallOptions& options = arguments.options;
  if (options.dim < 1 || options.kept < 1) return;  // refused later
  for (const experiments::NamedRecipe& memory : options.memories) {
    Dims dims;
    dims.key_dim = dims.value_dim = options.dim;
    if (MakePlan(memory.recipe, dims).engine != kDefinition) continue;
    dims.tokens = options.kept;
    if (arguments.limit > 0) dims.tokens = std::min(arguments.limit, options.kept);
    NoteLongWork(fmt::format("{}, {} tokens,", memory.text, dims.tokens),
                 DefinitionSeconds(memory.recipe, dims, /*threads=*/1));
  }
}

void Run(const RecallArguments& given) {
  RecallArguments arguments = given;
  if (arguments.files.empty()) arguments.files = {"-"};
  Files files("recall");
  for (const std::string& file : arguments.files) files.Reads("FILE", file);
  for (const std::string& memory : arguments.memories) files.ReadsRecipe("--memory", memory);
  files.WritesInto("--out", arguments.out, [](std::string_view file) {
    return file.starts_with("recall") && IsReport(file);
  });

  RecallOptions& options = arguments.options;
  if (arguments.bytes) options.kind = experiments::TokenKind::kBytes;
  if (arguments.memories.empty()) {
    arguments.memories.assign(std::begin(kRecallMemories), std::end(kRecallMemories));
  }
  for (const std::string& text : arguments.memories) {
    options.memories.push_back({text, RecipeArgument(text)});
  }
  // A file that is not there is said before the first one has been read.
  for (const std::string& file : arguments.files) experiments::Input check(file);

  if (!arguments.quiet) NoteSlowMemories(arguments);
  experiments::RecallRun run(options);
  ReadTexts(arguments, run);
  const std::string source =
      arguments.files.size() > 1 ? fmt::format("{} files", arguments.files.size())
      : arguments.files.front() == "-"
          ? "standard input"
          : std::filesystem::path(arguments.files.front()).filename().string();
  if (run.tokens() == 0) {
    throw Error("recall", source, "a text of one token at least", "empty");
  }
  if (!arguments.out.empty()) WriteReport(arguments.out, run, options, source);
  const report::Table table = experiments::RecallTable(run, options, source);
  if (arguments.json) {
    fmt::print("{}\n", table.ToJsonText());
    return;
  }
  fmt::print("{}", table.ToText({.width = TerminalWidth()}));
  if (arguments.quiet) return;
  Note(
      fmt::format("{} tokens, {} different ones; recall: share of next tokens named right; "
                  "after_seen: of those after a token that had a successor before; pair_seen: of "
                  "those where that successor had followed before; bits_known: bits to name a "
                  "token that had come before, {:.1f} by a blind guess among all; bits_per_token: "
                  "to name any, new ones too",
                  run.tokens(), run.vocabulary().size(), experiments::GuessBits(run)));
  for (const experiments::RecallResult& result : run.results()) {
    if (result.tokens == run.tokens()) continue;
    Note(fmt::format("{} keeps every pair and stopped after {} tokens (--kept)", result.method,
                     result.tokens));
  }
}

}  // namespace

void AddRecall(Command ttr) {
  Command command =
      ttr.AddCommand("recall", "memories read a text and name the next token, nothing trained",
                     "  ttr recall README.md\n"
                     "  ttr recall book.txt --memory rls --memory 'gated_deltanet{step: longhorn}' "
                     "--decay .999 --out recall\n"
                     "  cat *.txt | ttr recall --bytes --limit 20000");
  const auto arguments = std::make_shared<RecallArguments>();
  RecallOptions& options = arguments->options;
  command.AddOption("FILE", arguments->files,
                    "texts, read one after the other; - or none reads "
                    "standard input");
  command.AddFlag("--bytes", arguments->bytes, "tokens are bytes instead of words and marks");
  command.AddFlag("--fold-case", arguments->fold_case, "read A-Z as a-z");
  command
      .AddOption("--memory", arguments->memories,
                 "a recipe; repeatable (default: linear_attention, retnet, deltanet, "
                 "gated_deltanet, nlms, rls, softmax)")
      .Repeatable();
  command.AddOption("--dim", options.dim, "length of the tokens' vectors").ShowDefault();
  command.AddOption("--limit", arguments->limit, "stop after this many tokens")
      .Within(1, std::int64_t{1} << 40);
  command
      .AddOption("--kept", options.kept,
                 "memories that keep every pair stop after this many tokens")
      .ShowDefault();
  command.AddOption("--seed", options.seed, "of the tokens' vectors").ShowDefault();
  AddGateOptions(command, options.gates);
  command.AddOption("--out", arguments->out, "write CSV, JSON, SVG and PNG into this folder");
  command.AddFlag("--json", arguments->json, "print the table as JSON");
  command.AddFlag("--quiet", arguments->quiet, "no progress, no notes");
  command.OnRun([arguments] { Run(*arguments); });
}

}  // namespace ttr::tools
