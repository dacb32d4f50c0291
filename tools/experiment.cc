// ttr experiment: the paper's experiments, each a table, a picture, and claims checked on the data.
#include <fmt/core.h>

#include <functional>
#include <memory>
#include <sstream>
#include <type_traits>

#include "experiments/report/table.h"
#include "experiments/studies/capacity.h"
#include "experiments/studies/dials.h"
#include "experiments/studies/identities.h"
#include "experiments/studies/inner_loss.h"
#include "experiments/studies/mqar.h"
#include "experiments/studies/online_regression.h"
#include "experiments/studies/options.h"
#include "experiments/studies/stability.h"
#include "tools/command.h"
#include "tools/files.h"
#include "ttr/error.h"
#include "ttr/executor.h"

namespace ttr::tools {
namespace {

using namespace ttr::experiments;  // NOLINT: what this file is about

constexpr int kTextWidth = 100;

// What all experiments take.
struct Common {
  std::int64_t seeds = 0;
  std::uint64_t first_seed = StudyRun().first_seed;
  std::string out;
  int threads = 0;
  bool json = false;
  bool quick = false;
  bool quiet = false;
  bool resume = false;
};

void AddCommon(Command command, Common& common, const std::string& default_seeds) {
  command
      .AddOption("--seeds", common.seeds,
                 fmt::format("how many seeds [{}; with --quick 2]", default_seeds))
      .Within(1, 1000000);
  command.AddOption("--seed", common.first_seed, "the first seed").ShowDefault();
  command.AddOption("--out", common.out,
                    "folder for CSV, JSON, SVG and PNG; results of each seed go to its cache/");
  command.AddFlag("--resume", common.resume,
                  "take the seeds that --out's cache/ has of the same options");
  command.AddOption("--threads", common.threads, "threads (default: all, or TTR_THREADS)")
      .Within(1, 4096);
  command.AddFlag("--json", common.json, "print JSON");
  command.AddFlag("--quick", common.quick, "a smaller version, in seconds");
  command.AddFlag("--quiet", common.quiet, "no progress and no notes");
}

// The smaller versions of --quick; an option that is given stays.
void MakeQuick(OnlineRegressionOptions& o) { o.others = false; }
void MakeQuick(MqarStudyOptions& o) {
  o.tokens = {256, 512, 1024};
  o.orthonormal = o.zoology = false;
}
void MakeQuick(CapacityOptions& o) { o.pairs = {32, 64, 128}; }
void MakeQuick(StabilityOptions& o) { o.tokens = 256; }
void MakeQuick(IdentitiesOptions&) {}
void MakeQuick(InnerLossOptions& o) {
  o.dim = 16;
  o.tokens = 512;
}
void MakeQuick(DialsOptions& o) {
  o.steps = {1, 4, 16, 64};
  o.passes = {1, 4, 16};
}

// An option of the command for a field.
Option AddField(Command command, const OptionField& field) {
  return std::visit(
      [&](auto* value) {
        using T = std::remove_pointer_t<decltype(value)>;
        const Option option = command.AddOption("--" + field.name, *value, field.help);
        if constexpr (std::is_same_v<T, std::vector<std::string>>) {
          return option.OneAtATime();  // recipes hold commas and blanks
        } else if constexpr (std::is_same_v<T, std::vector<std::int64_t>> ||
                             std::is_same_v<T, std::vector<double>>) {
          return option.Separator(',').ShowDefault();
        } else {
          return option.ShowDefault();
        }
      },
      field.value);
}

std::string Wrapped(const std::string& text, int width) {
  std::istringstream words(text);
  std::string word, line, all;
  while (words >> word) {
    if (!line.empty() && static_cast<int>(line.size() + word.size()) >= width) {
      all += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return all + line;
}

void Print(const StudyResult& result) {
  const int width = TerminalWidth();
  fmt::print("{}, seeds {}\n\n", result.title, SeedsOf(result));
  for (const StudyTable& table : result.tables) {
    if (table.table.rows().size() > 100) continue;  // curves are for files
    fmt::print("{}\n{}\n", table.table.title(),
               table.table.ToText({.width = width, .wrap_last = false, .indent = 0}));
  }
  const int text_width = width > 0 && width < kTextWidth ? width : kTextWidth;
  for (const std::string& sentence : result.sentences) {
    fmt::print("{}\n", Wrapped(sentence, text_width));
  }
  if (!result.claims.empty()) fmt::print("\n");
  for (const Claim& claim : result.claims) {
    fmt::print("{}  {}\n", claim.holds ? "holds        " : "does not hold", claim.what);
    fmt::print("               {}\n", claim.evidence);
  }
  fmt::print("\nmade again by: {}\n", result.command);
}

// A study reads texts and tables beside its options.
void CheckFiles(const std::string& study, const OptionFields& fields, const std::string& out) {
  Files files("experiment");
  for (const OptionField& field : fields) {
    if (field.name != "text" && field.name != "table") continue;
    const auto* const paths = std::get_if<std::vector<std::string>*>(&field.value);
    if (paths == nullptr) continue;
    for (const std::string& path : **paths) files.Reads("--" + field.name, path);
  }
  if (out.empty()) return;
  const auto receives = [&](std::string_view file) {
    return file.starts_with(study) && IsReport(file);
  };
  files.WritesInto("--out", out, receives);
  files.WritesInto("--out", (std::filesystem::path(out) / "cache").string(), receives);
}

template <class Options>
using StudyFunction = StudyResult (*)(const Options&, const StudyRun&);

void Execute(const Common& common, const std::function<StudyResult(const StudyRun&)>& study) {
  if (common.resume && common.out.empty()) {
    throw Error("experiment", "--resume", "given together with --out", "given alone");
  }
  const std::unique_ptr<Executor> executor =
      common.threads > 0 ? MakeExecutor(common.threads) : nullptr;
  StudyRun run;
  run.seeds = common.seeds == 0 && common.quick ? 2 : common.seeds;
  run.first_seed = common.first_seed;
  run.executor = executor.get();
  run.quiet = common.quiet;
  run.resume = common.resume;
  if (!common.out.empty()) run.cache = std::filesystem::path(common.out) / "cache";
  if (!common.quiet) run.note = [](const std::string& text) { Note(text); };

  const StudyResult result = study(run);
  if (common.json) {
    fmt::print("{}\n", ToJsonText(result));
  } else {
    Print(result);
  }
  if (common.out.empty()) return;
  Save(result, common.out);
  if (!common.quiet)
    Note(
        fmt::format("written to {}: {}.json and its tables and pictures", common.out, result.name));
}

template <class Options>
void AddStudy(Command experiment, const std::string& name, const std::string& what,
              const std::string& examples, const std::string& default_seeds,
              StudyFunction<Options> study, StudyFunction<Options> sweep = nullptr) {
  Command command = experiment.AddCommand(name, what, examples);
  const auto options = std::make_shared<Options>();
  const auto common = std::make_shared<Common>();
  const auto sweeps = std::make_shared<bool>(false);
  std::vector<Option> given;
  for (const OptionField& field : Fields(*options)) given.push_back(AddField(command, field));
  if (sweep != nullptr) {
    command.AddFlag("--sweep", *sweeps, "instead: what scale and ridge do");
  }
  AddCommon(command, *common, default_seeds);
  command.OnRun([=] {
    if (common->quick) {
      Options quick;
      MakeQuick(quick);
      const OptionFields from = Fields(quick), to = Fields(*options);
      for (std::size_t i = 0; i < to.size(); ++i) {
        if (given[i].given()) continue;
        std::visit([&](auto* value) { *value = *std::get<decltype(value)>(from[i].value); },
                   to[i].value);
      }
    }
    CheckFiles(name, Fields(*options), common->out);
    Execute(*common, [&](const StudyRun& run) {
      return *sweeps ? sweep(*options, run) : study(*options, run);
    });
  });
}

void List(const Command& experiment) {
  report::Table table("experiments");
  table.AddText("name").AddText("what one sees");
  for (const auto& [name, what] : experiment.Subcommands()) table.AddRow({name, what});
  fmt::print("{}\nttr experiment NAME --help\n",
             table.ToText({.width = TerminalWidth(), .wrap_last = true, .indent = 0}));
}

}  // namespace

void AddExperiment(Command ttr) {
  Command experiment = ttr.AddCommand(
      "experiment", "the paper's experiments: tables, pictures, and claims checked on the data",
      "  ttr experiment\n"
      "  ttr experiment online-regression --out results\n"
      "  ttr experiment mqar --quick");
  experiment.MayHaveSubcommand();
  AddStudy<OnlineRegressionOptions>(
      experiment, "online-regression",
      "the paper's figure 2: which layers forecast a process that changes its law",
      "  ttr experiment online-regression --seeds 20 --out results\n"
      "  ttr experiment online-regression --rho 0.2 --recipe 'mesa{decay: 0.9, ridge: 1e-3}'\n"
      "  ttr experiment online-regression --sweep",
      fmt::format("{}, of more than {} tokens fewer", kRegressionSeeds, SwitchingProcess().tokens),
      &RunOnlineRegression, &RunOnlineRegressionSweep);
  AddStudy<MqarStudyOptions>(
      experiment, "mqar",
      "the paper's figure 3 without training: recall is limited by capacity, not by length",
      "  ttr experiment mqar --out results\n"
      "  ttr experiment mqar --pairs 64,128,256 --tokens 512,2048,8192 --recipe longhorn",
      std::to_string(kMqarSeeds), &RunMqar);
  AddStudy<CapacityOptions>(experiment, "capacity",
                            "how many pairs each memory recalls, for its number of dimensions",
                            "  ttr experiment capacity --dim 32 --pairs 16,32,64,128",
                            std::to_string(kCapacitySeeds), &RunCapacity);
  AddStudy<StabilityOptions>(
      experiment, "stability",
      "the norm of the output: linear attention grows, least squares stays below the paper's bound",
      "  ttr experiment stability --rho 0.9", std::to_string(kStabilitySeeds), &RunStability);
  AddStudy<IdentitiesOptions>(
      experiment, "identities", "which layers are one and the same, and how far they differ",
      "  ttr experiment identities --seeds 10", std::to_string(kIdentitySeeds), &RunIdentities);
  AddStudy<DialsOptions>(
      experiment, "dials",
      "from linear attention to least squares by solver steps, from the delta rule by passes",
      "  ttr experiment dials --pairs 96 --steps 1,10,100", std::to_string(kDialsSeeds), &RunDials);
  AddStudy<InnerLossOptions>(
      experiment, "inner-loss",
      "what a nonlinear memory buys: the loss of the inner regression against position",
      "  ttr experiment inner-loss --out results\n"
      "  ttr experiment inner-loss --text book.txt --table data/co2_weekly.csv --column co2",
      std::to_string(kInnerLossSeeds), &RunInnerLoss);
  experiment.OnRun([experiment] {
    if (!experiment.HasChosen()) List(experiment);
  });
}

}  // namespace ttr::tools
