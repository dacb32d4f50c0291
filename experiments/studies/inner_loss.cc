#include "experiments/studies/inner_loss.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "experiments/report/table.h"
#include "experiments/studies/inner_pairs.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/statistics.h"

namespace ttr::experiments {
namespace {

constexpr char kName[] = "inner-loss";
// What has diverged: more than any memory that has not.
constexpr double kDiverged = 1e6;

enum class Dial { kScale, kStep, kRidge };

struct InnerMemory {
  std::string label;
  std::string recipe;  // {x} stands for a scale or a ridge
  Dial dial = Dial::kStep;
  std::vector<double> values{};
  bool text_only = false;  // its answers are as long as its keys
};

std::vector<double> Powers(double first, int count) {
  std::vector<double> values;
  for (int i = 0; i < count; ++i) values.push_back(first * std::pow(4, i));
  return values;
}

std::vector<InnerMemory> Memories() {
  const std::string plain = "{norm: false, residual: false, row_factor: one}";
  return {
      {"linear attention", "linear_attention{scale: {x}}", Dial::kScale, Powers(1. / 4096, 7)},
      {"DeltaNet", "deltanet", Dial::kStep, Powers(1. / 256, 5)},
      {"RLS", "rls{ridge: {x}}", Dial::kRidge, Powers(1. / 1024, 10)},
      {"one matrix, mini-batch 16", "ttt_linear" + plain, Dial::kStep, Powers(1. / 1024, 6)},
      {"two layers, mini-batch 16", "ttt_mlp" + plain, Dial::kStep, Powers(1. / 1024, 6)},
      {"Titans", "titans", Dial::kStep, Powers(1. / 1024, 6)},
      {"TTT-Linear", "ttt_linear", Dial::kStep, Powers(1. / 1024, 8), true},
      {"TTT-MLP", "ttt_mlp", Dial::kStep, Powers(1. / 1024, 8), true},
  };
}

const char* NameOf(Dial dial) {
  return dial == Dial::kScale ? "scale" : dial == Dial::kStep ? "step" : "ridge";
}

std::string RecipeOf(const InnerMemory& memory, double value) {
  std::string recipe = memory.recipe;
  if (const std::size_t at = recipe.find("{x}"); at != std::string::npos) {
    recipe.replace(at, 3, report::ExactReal(value));
  }
  return recipe;
}

// One memory on one input, with one value of its dial.
struct Trial {
  std::size_t memory;
  bool text;
  double value;
};

std::vector<Trial> Trials(const InnerLossOptions& o, const std::vector<InnerMemory>& memories) {
  std::vector<Trial> trials;
  for (const bool text : {true, false}) {
    if ((text ? o.text : o.table).empty()) continue;
    for (std::size_t m = 0; m < memories.size(); ++m) {
      if (memories[m].text_only && !text) continue;
      for (const double value : memories[m].values) trials.push_back({m, text, value});
    }
  }
  return trials;
}

PairStream PairsOf(const InnerLossOptions& o, bool text, std::uint64_t seed) {
  return text ? PairsOfText(o.text.front(), o.dim, seed, o.tokens)
              : PairsOfSeries(o.table.front(), o.column.front(), o.lags, o.tokens);
}

// The share of |v|^2 that is left: of all, of the last half, then of t = 2^i .. 2^(i+1) - 1.
Numbers SharesOf(const InnerLosses& found) {
  double loss = 0, size = 0;
  Numbers shares(2);
  const auto share = [](double of, double all) {
    return std::isfinite(of) && of < kDiverged * all ? of / all : kDiverged;
  };
  for (std::size_t i = 0; i < found.losses.size(); ++i) {
    loss += found.losses[i];
    size += found.sizes[i];
    shares.push_back(share(found.losses[i], found.sizes[i]));
  }
  shares[0] = share(loss, size);
  shares[1] = share(found.last_loss, found.last_size);
  return shares;
}

Numbers RunTrial(const InnerLossOptions& o, const InnerMemory& memory, const Trial& trial,
                 std::uint64_t seed) {
  const PairStream pairs = PairsOf(o, trial.text, seed);
  ConstantGates gates;
  if (memory.dial == Dial::kStep) gates.step = trial.value;
  // Values have length 1: with a weight of 1 a norm would answer with sqrt(d).
  gates.ln_weight = 1 / std::sqrt(static_cast<double>(pairs.value_dim));
  const StudyLayer layer(RecipeOf(memory, trial.value), gates, Runs::kPlanned);
  return SharesOf(LossesOf(layer, pairs));
}

// A memory on an input with the best value of its dial.
struct Chosen {
  Trial trial;
  std::vector<std::vector<double>> shares;  // [seed], as SharesOf() has them

  std::vector<double> Column(std::size_t i) const {
    std::vector<double> column;
    for (const auto& seed : shares) column.push_back(seed[i]);
    return column;
  }
};

std::vector<Chosen> ChooseDials(const std::vector<Trial>& trials, const PartResults& results) {
  std::vector<Chosen> chosen;
  for (std::size_t i = 0; i < trials.size(); ++i) {
    Chosen one{trials[i], {}};
    for (const auto& seed : results) one.shares.push_back(seed[i]);
    const bool same = !chosen.empty() && chosen.back().trial.memory == one.trial.memory &&
                      chosen.back().trial.text == one.trial.text;
    if (!same) {
      chosen.push_back(std::move(one));
    } else if (MeanOf(one.Column(0)).value < MeanOf(chosen.back().Column(0)).value) {
      chosen.back() = std::move(one);
    }
  }
  return chosen;
}

const char* SourceOf(bool text) { return text ? "text" : "series"; }

report::Table LossTable(const std::vector<InnerMemory>& memories,
                        const std::vector<Chosen>& chosen) {
  report::Table table("Loss of the inner regression, as a share of |v|^2");
  table.AddText("input").AddText("memory").AddText("with");
  table.AddMeasured("t = 16 to 31", 3).AddMeasured("t = 256 to 511", 3);
  table.AddMeasured("last half", 3).AddMeasured("all", 3).AddText("recipe");
  for (const Chosen& one : chosen) {
    const InnerMemory& memory = memories[one.trial.memory];
    const auto bin = [&](std::size_t i) {
      const std::size_t column = 2 + i;
      return column < one.shares.front().size() ? report::Cell(MeanOf(one.Column(column)))
                                                : report::Cell();
    };
    table.AddRow({SourceOf(one.trial.text), memory.label,
                  fmt::format("{} {}", NameOf(memory.dial), report::ShowReal(one.trial.value, 4)),
                  bin(4), bin(8), MeanOf(one.Column(1)), MeanOf(one.Column(0)),
                  RecipeOf(memory, one.trial.value)});
  }
  return table;
}

report::Chart LossChart(const InnerLossOptions& o, const std::vector<InnerMemory>& memories,
                        const std::vector<Chosen>& chosen) {
  report::Chart chart{.title = "Loss of the inner regression against position",
                      .subtitle =
                          "as a share of |v|^2; nothing trained, one dial a memory chosen "
                          "afterwards"};
  for (const bool text : {true, false}) {
    if ((text ? o.text : o.table).empty()) continue;
    report::Panel panel{.title = text ? o.text.front() : o.table.front(),
                        .x = {.label = text ? "word" : "row", .scale = report::Scale::kLog2},
                        .y = {.label = "loss", .scale = report::Scale::kLog10}};
    for (const Chosen& one : chosen) {
      if (one.trial.text != text) continue;
      report::Series series{.name = memories[one.trial.memory].label,
                            .mark = report::Mark::kLinePoints};
      for (std::size_t i = 2; i < one.shares.front().size(); ++i) {
        series.x.push_back(std::exp2(static_cast<double>(i) - 1.5));  // the middle
        series.y.push_back(MeanOf(one.Column(i)).value);
      }
      panel.series.push_back(std::move(series));
    }
    chart.panels.push_back(std::move(panel));
  }
  return chart;
}

std::vector<Claim> CheckClaims(const InnerLossOptions& o, const std::vector<InnerMemory>& memories,
                               const std::vector<Chosen>& chosen) {
  std::vector<Claim> claims;
  for (const bool text : {true, false}) {
    if ((text ? o.text : o.table).empty()) continue;
    const auto sample = [&](std::string_view label) {
      const auto of = std::ranges::find_if(chosen, [&](const Chosen& one) {
        return one.trial.text == text && memories[one.trial.memory].label == label;
      });
      return Sample{std::string(label), of->Column(1)};
    };
    const std::string where = text ? "text" : "series";
    claims.push_back(Increasing(
        where + ": a hidden layer lowers the loss of what gradient descent trains (last half)",
        {sample("two layers, mini-batch 16"), sample("one matrix, mini-batch 16")}));
    claims.push_back(Increasing(
        where + ": least squares leaves less than two layers trained by gradient descent",
        {sample("RLS"), sample("two layers, mini-batch 16")}));
    claims.push_back(Increasing(where + ": the delta rule leaves less than linear attention",
                                {sample("DeltaNet"), sample("linear attention")}));
  }
  return claims;
}

void CheckOptions(const InnerLossOptions& o) {
  RequireOption(o.dim >= 2 && o.dim <= 1024, kName, "dim", "2 to 1024", static_cast<double>(o.dim));
  RequireOption(o.lags >= 2 && o.lags <= 1024, kName, "lags", "2 to 1024",
                static_cast<double>(o.lags));
  RequireOption(o.tokens >= 64, kName, "tokens", "at least 64", static_cast<double>(o.tokens));
  RequireOption(o.text.size() <= 1, kName, "text", "one file", "several");
  RequireOption(o.table.size() <= 1, kName, "table", "one file", "several");
  RequireOption(!o.text.empty() || !o.table.empty(), kName, "text or table", "given", "absent");
  RequireOption(o.table.empty() || o.column.size() == 1, kName, "column", "one", "another number");
}

}  // namespace

OptionFields Fields(InnerLossOptions& o) {
  return {
      {"text", &o.text, "a text, read word by word"},
      {"table", &o.table, "a table, of which one column is read row by row"},
      {"column", &o.column, "that column"},
      {"dim", &o.dim, "d, dimension of the words' random unit vectors"},
      {"lags", &o.lags, "rows of a window"},
      {"tokens", &o.tokens, "words, and rows, that are read at the most"},
  };
}

StudyResult RunInnerLoss(const InnerLossOptions& options, const StudyRun& run) {
  InnerLossOptions defaults, given = options;
  CheckOptions(given);
  const std::vector<InnerMemory> memories = Memories();
  const std::vector<Trial> trials = Trials(given, memories);
  // What cannot be read is said before anything is.
  if (!given.text.empty()) PairsOf(given, true, run.first_seed);
  if (!given.table.empty()) PairsOf(given, false, run.first_seed);
  const PartResults results =
      RunParts(run, kName, kInnerLossSeeds, Fields(given), static_cast<std::int64_t>(trials.size()),
               [&](std::uint64_t seed, std::int64_t part) {
                 const Trial& trial = trials[static_cast<std::size_t>(part)];
                 return RunTrial(given, memories[trial.memory], trial, seed);
               });
  const std::vector<Chosen> chosen = ChooseDials(trials, results);

  StudyResult result;
  result.name = kName;
  result.title = "Loss of the inner regression";
  result.sentences = {
      "A memory answers for every key before it sees the value; the share of the value's square "
      "that its answer leaves falls as it reads, by how much depends on what it can represent and "
      "on how well its optimizer gets there.",
      "Words are random vectors, so that no function of a word is smoother than another: a hidden "
      "layer has nothing to use but its width. A window of a series goes over into the next row by "
      "a map that is nearly linear, and what counts is how fast an optimizer finds it.",
  };
  result.command = CommandOf(kName, Fields(given), Fields(defaults), run);
  result.claims = CheckClaims(given, memories, chosen);
  report::Table table = LossTable(memories, chosen);
  SetMeta(table, SeedRange(run, kInnerLossSeeds), Fields(given));
  result.tables.push_back({"inner-loss", std::move(table)});
  result.charts.push_back({"inner-loss", LossChart(given, memories, chosen)});
  return result;
}

}  // namespace ttr::experiments
