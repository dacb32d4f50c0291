// ttr demo: the paper's experiments and real input on one page.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "experiments/data/input.h"
#include "experiments/paper/paper.h"
#include "experiments/real/forecast_report.h"
#include "experiments/real/forecast_table.h"
#include "experiments/real/recall_report.h"
#include "experiments/real/row_clock.h"
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
    section.figures.push_back(report::MakeFigure(chart.chart, chart.caption));
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

std::vector<report::Term> Glossary() {
  return {
      {"memory, layer",
       "what stores pairs of a key and a value while it reads, and answers a "
       "query with a value; a line such as `rls{ridge: 0.1}` describes it"},
      {"least squares, RLS",
       "the memory whose answers had the least squared error on all pairs "
       "so far; a ridge keeps its weights small"},
      {"softmax, p = 0, p = 1",
       "attention: a mean of all stored values, the more alike their keys "
       "the heavier (p = 0), or a line through them (p = 1)"},
      {"forgetting, decay",
       "old pairs count less, token by token: what the memory then follows is "
       "the present"},
      {"naive", "the forecast that all others are measured against: the last value once more"},
  };
}

// The map of the paper, a table a section.
report::Section PaperMap() {
  report::Section section;
  section.title = "The paper, place by place";
  section.text = {
      "What ttr has for every equation, layer, claim and figure of the paper that it is named "
      "after. The document `docs/paper.md` also says what shows each, and what differs."};
  for (const experiments::PaperSection& part : experiments::Paper()) {
    report::Table table;
    table.AddText("place").AddText("what stands there").AddText("recipe");
    for (const experiments::PaperEntry& entry : part.entries) {
      table.AddRow({entry.place, entry.says, entry.recipe});
    }
    section.details.push_back({std::string(part.title), {table}, ""});
  }
  section.command = "ttr zoo --paper";
  return section;
}

// The documents that were read, from the page's folder.
std::vector<report::Link> Links(const DemoArguments& arguments) {
  std::vector<report::Link> links = {{"the paper", "https://arxiv.org/abs/2501.12352"}};
  for (const std::string& text : arguments.texts) {
    const fs::path path = fs::proximate(fs::absolute(text), fs::absolute(arguments.out));
    if (path.is_relative() && path.string().find(':') == std::string::npos) {
      links.push_back({text, path.generic_string()});
    }
  }
  return links;
}

std::vector<experiments::NamedRecipe> Named(std::initializer_list<const char*> texts) {
  std::vector<experiments::NamedRecipe> recipes;
  for (const char* text : texts) recipes.push_back({text, ParseRecipe(text)});
  return recipes;
}

// Methods by name, as code, with commas between.
void List(std::string& text, const std::string& method) {
  text += (text.empty() ? "`" : ", `") + method + "`";
}

// Who names words best, and who is no better than a guess.
std::string RecallCaption(const experiments::RecallRun& run) {
  const auto least = std::min_element(run.results().begin(), run.results().end(),
                                      [](const auto& one, const auto& other) {
                                        return one.bits_per_known() < other.bits_per_known();
                                      });
  const double guess = GuessBits(run);
  std::string worse;
  for (const experiments::RecallResult& result : run.results()) {
    if (result.bits_per_known() > guess) List(worse, result.method);
  }
  return fmt::format(
      "`{}` needs the fewest bits for a word, {:.1f}; `pair_counts` is no memory but counts which "
      "word followed which. A blind guess among all words needs {:.1f} bits{}.",
      least->method, least->bits_per_known(), guess,
      worse.empty() ? "" : ": " + worse + " would have done better to guess");
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
      "Each memory reads the project's own documents once, word by word. Before it reads a word "
      "it is asked which one follows the word before. Words are fixed random unit vectors, nothing "
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
  section.figures.push_back(
      report::MakeFigure(RecallChart(run, options, source), RecallCaption(run)));
  section.tables.push_back(RecallTable(run, options, source));
  return section;
}

// Who has the least error, and who is no better than the naive forecaster.
std::string ForecastCaption(const experiments::ForecastRun& run) {
  const std::vector<experiments::ForecastErrors> errors = run.Errors();
  const auto least =
      std::min_element(errors.begin(), errors.end(), [](const auto& one, const auto& other) {
        return one.root_mean_square < other.root_mean_square;
      });
  std::string worse;
  for (const experiments::ForecastErrors& error : errors) {
    if (error.relative > 1) List(worse, error.method);
  }
  return fmt::format("`{}` has the least error, {:.2f} times that of the naive forecaster. {}",
                     least->method, least->relative,
                     worse.empty() ? "None has more than that forecaster."
                                   : "More than that forecaster have " + worse + ".");
}

// Times of the series, for its axis.
experiments::RowClock ClockOf(const std::string& series) {
  experiments::Input input(series);
  experiments::TableReader table(input.stream(), input.name(), {.columns = {"co2"}});
  std::vector<experiments::TableRow> first;
  experiments::TableRow row;
  while (first.size() < experiments::RowClock::kLooksAt && table.Next(row)) first.push_back(row);
  return {table, first, ""};
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
  experiments::RowClock clock = ClockOf(arguments.series);
  const experiments::ForecastTail tail = experiments::ForecastTable(
      table, run, {.clock = &clock}, [&](std::string_view text) { csv.Write(text); });
  csv.Commit();

  report::Section section;
  section.title = "Forecasting a real series";
  section.text = {
      "Weekly CO2 on Mauna Loa since 1958: each memory reads the series once, row by row, and "
      "forecasts the next row before it reads it. Keys are the last 52 rows, values the next one; "
      "weeks that were "
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
  report::Chart chart = ForecastChart(run, options, tail);
  chart.panels.front().y.label = "CO2, parts per million";
  section.figures.push_back(report::MakeFigure(chart, ForecastCaption(run)));
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
  page.glossary = Glossary();
  page.links = Links(arguments);

  experiments::StudyRun run;
  run.seeds = arguments.seeds;
  run.quiet = arguments.quiet;
  page.sections.push_back(SectionOf(experiments::RunOnlineRegression({}, run)));
  page.sections.push_back(SectionOf(experiments::RunMqar({}, run)));
  const fs::path trained = fs::path(arguments.out) / "mqar-trained.json";
  if (fs::exists(trained)) page.sections.push_back(TrainedSection(trained));
  page.sections.push_back(RecallSection(arguments));
  page.sections.push_back(ForecastSection(arguments));
  page.sections.push_back(PaperMap());
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
