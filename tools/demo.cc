// ttr demo: the paper's experiments and real input on one page.
#include <fmt/core.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "experiments/data/input.h"
#include "experiments/real/forecast_report.h"
#include "experiments/real/forecast_table.h"
#include "experiments/real/recall_report.h"
#include "experiments/report/atomic_file.h"
#include "experiments/report/page.h"
#include "experiments/report/progress.h"
#include "experiments/studies/mqar.h"
#include "experiments/studies/online_regression.h"
#include "tools/command.h"
#include "tools/demo_trained.h"
#include "tools/files.h"
#include "ttr/version.h"
#include "ttr/zoo.h"

namespace ttr::tools {
namespace {

namespace fs = std::filesystem;

struct DemoArguments {
  std::string out = "ttr-demo";
  std::string series;  // a CSV with a column co2
  std::vector<std::string> texts;
  std::int64_t seeds = 0;
  bool quiet = false;
};

report::Section SectionOf(const experiments::StudyResult& study) {
  report::Section section;
  section.title = study.title;
  section.text = study.sentences;
  section.command = study.command;
  for (const experiments::StudyChart& chart : study.charts) {
    section.figures.push_back(report::MakeFigure(chart.chart));
  }
  if (!study.claims.empty()) {
    report::Table verdicts;
    verdicts.AddText("on this run").AddText("");
    for (const experiments::Claim& claim : study.claims) {
      verdicts.AddRow({claim.what, claim.holds ? "holds" : "does not hold"});
    }
    section.tables.push_back(verdicts);
    section.details.push_back({"The figures behind it", {ClaimsTable(study.claims)}, ""});
  }
  for (const experiments::StudyTable& table : study.tables) {
    // Longer ones belong into the files that the command writes.
    constexpr std::size_t kMostRows = 100;
    if (table.table.rows().size() > kMostRows) continue;
    section.details.push_back({table.table.title(), {table.table}, ""});
  }
  return section;
}

std::vector<experiments::NamedRecipe> Named(std::initializer_list<const char*> texts) {
  std::vector<experiments::NamedRecipe> recipes;
  for (const char* text : texts) recipes.push_back({text, ParseRecipe(text)});
  return recipes;
}

// The documents of the project itself, one pass.
report::Section RecallSection(const DemoArguments& arguments) {
  experiments::RecallOptions options;
  options.memories = Named({"linear_attention", "deltanet", "nlms", "rls", "softmax{scale: 32}"});
  experiments::RecallRun run(options);
  report::Progress progress("recall", 0, {.quiet = arguments.quiet});
  std::string files;
  for (const std::string& text : arguments.texts) {
    files += " " + text;
    experiments::Input input(text);
    experiments::TextReader reader(input.stream(), input.name(), {.kind = options.kind});
    std::string token;
    while (reader.Next(token)) {
      run.Read(token);
      progress.Advance();
    }
  }
  run.Finish();

  const std::string source = fmt::format("{} documents", arguments.texts.size());
  report::Section section;
  section.title = "Recall in a real text";
  section.text = {
      "Each memory reads the project's own documents once, word by word; before every word it is "
      "asked "
      "which one follows the word before, then it is told. Words are fixed random unit vectors, "
      "nothing "
      "is trained: what is recalled was learned in the reading.",
      "A memory of 64 x 64 numbers can keep some 64 associations apart: `linear_attention` drowns "
      "in "
      "the overlap of its keys, layers that correct their errors (`deltanet`, `nlms`) or solve the "
      "regression (`rls`) hold on longer, and `softmax`, which keeps every pair, follows the "
      "counts."};
  section.command = "ttr recall" + files;
  for (const experiments::NamedRecipe& memory : options.memories) {
    section.command += " --memory '" + memory.text + "'";
  }
  section.figures.push_back(report::MakeFigure(RecallChart(run, options, source)));
  section.tables.push_back(RecallTable(run, options, source));
  return section;
}

// Weekly carbon dioxide on Mauna Loa, one week ahead.
report::Section ForecastSection(const DemoArguments& arguments) {
  experiments::ForecastOptions options;
  options.columns = {"co2"};
  options.lags = 52;
  options.season = 52;
  options.memories = Named({"rls{ridge: 0.1}", "weighted_rls{decay: 0.999, ridge: 0.1}",
                            "local_linear", "deltanet", "nlms"});
  experiments::Input input(arguments.series);
  experiments::TableReader table(input.stream(), input.name(), {.columns = options.columns});
  experiments::ForecastRun run(options);
  report::AtomicFile csv(fs::path(arguments.out) / "forecast.csv");
  const experiments::ForecastTail tail =
      experiments::ForecastTable(table, run, {}, [&](std::string_view text) { csv.Write(text); });
  csv.Commit();

  report::Section section;
  section.title = "Forecasting a real series";
  section.text = {
      "Weekly CO2 on Mauna Loa since 1958: each memory reads the series once, row by row, and says "
      "the "
      "next row before it sees it. Keys are the last 52 rows, values the next one; weeks that were "
      "never measured are forecast too.",
      "A memory that solves its regression (`rls`) finds season and trend by itself and is well "
      "below the forecaster that repeats the last row; one that only corrects its latest error "
      "(`deltanet`, `nlms`) does not get below it."};
  section.command =
      fmt::format("ttr forecast {} --column co2 --lags 52 --season 52", arguments.series);
  for (const experiments::NamedRecipe& memory : options.memories) {
    section.command += " --memory '" + memory.text + "'";
  }
  section.command += " --out forecast.csv";
  section.figures.push_back(report::MakeFigure(ForecastChart(run, options, tail)));
  section.tables.push_back(ErrorTable(run, options));
  return section;
}

void Run(const DemoArguments& arguments) {
  Files files("demo");
  files.Reads("--series", arguments.series);
  for (const std::string& text : arguments.texts) files.Reads("TEXT", text);
  files.WritesInto("--out", arguments.out, [](std::string_view file) {
    return file == "index.html" || file == "forecast.csv";
  });

  report::EnsureFolder(arguments.out);
  report::Page page;
  page.title = "ttr: memories that regress while they read";
  page.lead = fmt::format(
      "A sequence layer that recalls is a regression solved while reading. Three choices make a "
      "layer: "
      "which associations count, which functions are allowed, how the minimum is approached. ttr "
      "has "
      "{} published layers and new ones as one line each; here they are, run by the library on "
      "this "
      "machine, with nothing trained unless it is said.",
      Zoo().size());

  experiments::StudyRun run;
  run.seeds = arguments.seeds;
  run.quiet = arguments.quiet;
  page.sections.push_back(SectionOf(experiments::RunOnlineRegression({}, run)));
  page.sections.push_back(SectionOf(experiments::RunMqar({}, run)));
  const fs::path trained = fs::path(arguments.out) / "mqar-trained.json";
  if (fs::exists(trained)) page.sections.push_back(TrainedSection(trained));
  page.sections.push_back(RecallSection(arguments));
  page.sections.push_back(ForecastSection(arguments));
  page.footer = fmt::format("ttr {}. Wang, Shi, Fox: Test-time regression (2025).", Version());

  const fs::path path = fs::path(arguments.out) / "index.html";
  report::WritePage(page, path);
  fmt::print("{}\n", path.string());
}

}  // namespace

void AddDemo(Command ttr) {
  Command command =
      ttr.AddCommand("demo", "the paper's experiments and real input, on one page",
                     "  ttr demo --out demo --series data/co2_weekly.csv README.md DESIGN.md\n"
                     "What python -m ttr.experiments mqar --out demo has trained joins the page.");
  const auto arguments = std::make_shared<DemoArguments>();
  command.AddOption("--out", arguments->out, "folder that receives index.html").ShowDefault();
  command.AddOption("--series", arguments->series, "a CSV with a weekly column co2").Required();
  command.AddOption("TEXT", arguments->texts, "text files that the memories read").Required();
  command.AddOption("--seeds", arguments->seeds, "seeds of the experiments (default: their own)")
      .Within(1, 1000);
  command.AddFlag("--quiet", arguments->quiet, "no progress");
  command.OnRun([arguments] { Run(*arguments); });
}

}  // namespace ttr::tools
