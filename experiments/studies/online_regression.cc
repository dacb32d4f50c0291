#include "experiments/studies/online_regression.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "experiments/studies/phases.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/statistics.h"

namespace ttr::experiments {
namespace {

constexpr char kName[] = "online-regression";

// Loss of every seed and token of one layer, and what the phases make of it.
struct LayerLoss {
  RegressionLayer layer;
  std::vector<std::vector<double>> by_seed;  // [seed][token]

  Sample Phase(int phase) const {
    Sample sample{layer.label, {}};
    for (const auto& losses : by_seed) sample.values.push_back(PhaseMean(losses, phase));
    return sample;
  }
};

// Those of `layers`, which are the parts from `first` on.
std::vector<LayerLoss> LossesOf(const std::vector<RegressionLayer>& layers,
                                const PartResults& results, std::size_t first) {
  std::vector<LayerLoss> losses;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    losses.push_back({layers[l], {}});
    for (const auto& seed : results) losses.back().by_seed.push_back(seed[first + l]);
  }
  return losses;
}

report::Table LossTable(std::string title, const std::vector<LayerLoss>& losses) {
  report::Table table(std::move(title));
  table.AddText("layer");
  for (int phase = 0; phase < kPhases; ++phase) table.AddMeasured(PhaseName(phase), 3);
  table.AddText("recipe");
  for (const LayerLoss& loss : losses) {
    std::vector<report::Cell> row = {loss.layer.label};
    for (int phase = 0; phase < kPhases; ++phase)
      row.emplace_back(MeanOf(loss.Phase(phase).values));
    row.emplace_back(RecipeText(loss.layer));
    table.AddRow(std::move(row));
  }
  return table;
}

report::Table CurveTable(const std::vector<LayerLoss>& losses) {
  report::Table table("One-step loss of every token");
  table.AddInteger("token");
  for (const LayerLoss& loss : losses) table.AddMeasured(loss.layer.label, 4);
  for (std::size_t t = 0; t < losses.front().by_seed.front().size(); ++t) {
    std::vector<report::Cell> row = {t + 1};
    for (const LayerLoss& loss : losses) {
      std::vector<double> values;
      for (const auto& seed : loss.by_seed) values.push_back(seed[t]);
      row.emplace_back(MeanOf(values));
    }
    table.AddRow(std::move(row));
  }
  return table;
}

constexpr int kLiteral = 3;

// Is the layer in this panel? The naive forecaster is in all.
bool InPanel(const RegressionLayer& layer, int panel) {
  if (layer.recipe.empty()) return true;
  return panel == kLiteral ? layer.literal : layer.panel == panel;
}

report::Panel LossPanel(const std::vector<LayerLoss>& losses, int number, std::int64_t tokens) {
  const char* titles[] = {"The paper's layers, scale and ridges chosen", "",
                          "The paper's equations as they stand"};
  report::Panel panel{.title = titles[number - 1],
                      .x = {.label = "token"},
                      .y = {.label = "loss: squared error of a forecast of length 1",
                            .scale = report::Scale::kLog10}};
  panel.references.push_back(
      {.at = static_cast<double>(tokens) / 4, .vertical = true, .label = "the law changes"});
  for (const LayerLoss& loss : losses) {
    if (!InPanel(loss.layer, number)) continue;
    const Band band = BandOf(loss.by_seed);
    report::Series series{
        .name = loss.layer.label, .y = band.mean, .muted = loss.layer.recipe.empty()};
    for (std::size_t t = 0; t < band.mean.size(); ++t) {
      series.x.push_back(static_cast<double>(t + 1));
    }
    if (losses.front().by_seed.size() > 1) {
      series.low = band.low;
      series.high = band.high;
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

// Which layers of a panel are the lowest in the end, whoever they are.
std::string LowestOf(const std::vector<LayerLoss>& losses, int panel) {
  std::vector<std::pair<double, std::string>> order;
  for (const LayerLoss& loss : losses) {
    if (!InPanel(loss.layer, panel)) continue;
    order.emplace_back(MeanOf(loss.Phase(2).values).value, loss.layer.label);
  }
  std::sort(order.begin(), order.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 3); ++i) {
    text += fmt::format("{}{} ({:.2g})", i == 0 ? "" : ", then ", order[i].second, order[i].first);
  }
  return text;
}

StudyChart LossChart(std::string stem, std::string title, const std::vector<LayerLoss>& losses,
                     std::initializer_list<int> panels, std::int64_t tokens) {
  StudyChart figure{std::move(stem),
                    {.title = std::move(title),
                     .subtitle = fmt::format("one-step loss, mean of {} seeds, band: two "
                                             "standard errors",
                                             losses.front().by_seed.size())},
                    "Lowest over the last half: "};
  for (const int panel : panels) {
    report::Panel drawn = LossPanel(losses, panel, tokens);
    if (panels.size() > 1) {
      figure.caption += figure.chart.panels.empty() ? "in the first panel " : "; in the second ";
    }
    figure.caption += LowestOf(losses, panel);
    figure.chart.panels.push_back(std::move(drawn));
  }
  figure.caption += ".";
  return figure;
}

// The claim that the first of each pair is below the second; the evidence is the nearest pair. Of
// no pairs nothing holds.
Claim AllBelow(std::string what, const std::vector<std::pair<Sample, Sample>>& pairs) {
  Claim all{std::move(what), !pairs.empty(), ""};
  double nearest = -INFINITY;
  for (const auto& [low, high] : pairs) {
    const Claim pair = Increasing("", {low, high});
    all.holds = all.holds && pair.holds;
    const double ratio = MeanOf(low.values).value / MeanOf(high.values).value;
    if (ratio > nearest) {
      nearest = ratio;
      all.evidence = "nearest: " + pair.evidence;
    }
  }
  return all;
}

// `fits` are those of LocalFits(): degree 0 is followed by degree 1.
Claim SlopesHelp(const std::vector<LayerLoss>& fits) {
  std::vector<std::pair<Sample, Sample>> pairs;
  for (std::size_t f = 0; f + 1 < fits.size(); ++f) {
    const Sample mean = fits[f].Phase(2), slope = fits[f + 1].Phase(2);
    if (mean.name.ends_with("p = 0")) pairs.emplace_back(slope, mean);
  }
  return AllBelow("last half, few channels: p = 1 < p = 0 with every kernel", pairs);
}

// The first ten layers, in the order of RegressionLayers(). Claims of RLS are of one ridge, the
// large one.
enum Place {
  kNaive,
  kLinear,
  kRls,
  kSmallRidge,
  kSoftmax,
  kLocal,
  kWeighted,
  kLiteralRls,
  kLiteralSoftmax,
  kLiteralLocal
};

std::vector<Claim> CheckClaims(const std::vector<LayerLoss>& losses) {
  const auto at = [&](Place place, int phase) {
    return losses[static_cast<std::size_t>(place)].Phase(phase);
  };
  std::vector<Claim> claims;
  claims.push_back(Increasing("first quarter: p = 1 < p = 0 < RLS < linear attention",
                              {at(kLocal, 0), at(kSoftmax, 0), at(kRls, 0), at(kLinear, 0)}));
  claims.push_back(Increasing("second quarter, after the switch: p = 1 < p = 0 < RLS",
                              {at(kLocal, 1), at(kSoftmax, 1), at(kRls, 1)}));
  claims.push_back(Increasing("last half: p = 1 < p = 0 < RLS < linear attention",
                              {at(kLocal, 2), at(kSoftmax, 2), at(kRls, 2), at(kLinear, 2)}));
  claims.push_back(Increasing("second quarter: unweighted RLS does not adapt, weighted RLS does",
                              {at(kWeighted, 1), at(kRls, 1)}));
  claims.push_back(Increasing("last half: weighted RLS < RLS", {at(kWeighted, 2), at(kRls, 2)}));
  claims.push_back(Increasing(
      "the equations as they stand, first quarter, against the paper's order: linear attention < "
      "p = 0 < p = 1 < RLS",
      {at(kLinear, 0), at(kLiteralSoftmax, 0), at(kLiteralLocal, 0), at(kLiteralRls, 0)}));
  claims.push_back(Increasing(
      "the equations as they stand, second quarter, against the paper's order: linear attention < "
      "p = 0 < RLS",
      {at(kLinear, 1), at(kLiteralSoftmax, 1), at(kLiteralRls, 1)}));
  claims.push_back(Increasing(
      "the equations as they stand, last half: p = 1 < RLS < linear attention < p = 0, which is "
      "nearly the mean of all values",
      {at(kLiteralLocal, 2), at(kLiteralRls, 2), at(kLinear, 2), at(kLiteralSoftmax, 2)}));
  for (int phase = 0; phase < kPhases; ++phase) {
    std::vector<std::pair<Sample, Sample>> pairs;
    for (const Place other : {kLinear, kRls, kSmallRidge, kSoftmax, kLocal, kWeighted, kLiteralRls,
                              kLiteralSoftmax, kLiteralLocal}) {
      pairs.emplace_back(at(kNaive, phase), at(other, phase));
    }
    claims.push_back(
        AllBelow(fmt::format("{}: the naive forecaster is below every layer of the figure",
                             PhaseName(phase)),
                 pairs));
  }
  return claims;
}

}  // namespace

OptionFields Fields(OnlineRegressionOptions& o) {
  return {
      {"tokens", &o.process.tokens, "T"},
      {"dim", &o.process.key_dim, "length of keys and values"},
      {"rho", &o.process.rho, "correlation between the channels of the noise"},
      {"noise", &o.process.noise, "size of the noise"},
      {"first-decay", &o.process.first_decay, "of the process, for t < T/4"},
      {"second-decay", &o.process.second_decay, "of the process, after that"},
      {"stationary-start", &o.stationary_start,
       "k_0 from the spread of the first phase; else from rest, k_0 = 0"},
      {"unit-keys", &o.unit_keys, "softmax and p = 1 read keys and queries of unit length"},
      {"scale", &o.scale, "of the queries of softmax and p = 1: the inverse bandwidth"},
      {"local-ridge", &o.local_ridge, "on the slope of p = 1, relative to the sum of weights"},
      {"small-ridge", &o.small_ridge, "of the first RLS"},
      {"large-ridge", &o.large_ridge, "of the second RLS, and of the other least-squares layers"},
      {"decay", &o.decay, "forgetting factor of every layer that forgets"},
      {"step", &o.step, "step size of the delta rules, on unit keys"},
      {"others", &o.others, "beside the paper's layers, all of the zoo that need no learning"},
      {"recipe", &o.recipes, "another layer (may be repeated)"},
  };
}

std::int64_t DefaultSeeds(const OnlineRegressionOptions& options) {
  const std::int64_t seeds = kRegressionSeeds * SwitchingProcess().tokens /
                             std::max<std::int64_t>(options.process.tokens, 1);
  return std::clamp<std::int64_t>(seeds, 2, kRegressionSeeds);
}

StudyResult RunOnlineRegression(const OnlineRegressionOptions& options, const StudyRun& run) {
  OnlineRegressionOptions defaults, given = options;
  CheckRegressionOptions(given);
  OnlineRegressionOptions few_channels = given;
  few_channels.process.key_dim = std::min(given.process.key_dim, kLocalFitDim);
  const std::vector<RegressionLayer> layers = RegressionLayers(given);
  const std::vector<RegressionLayer> fits =
      given.others ? LocalFits(given) : std::vector<RegressionLayer>();
  const RegressionRunner runner(given, layers), fit_runner(few_channels, fits);
  const std::int64_t seeds = DefaultSeeds(given);
  const PartResults results = RunParts(
      run, kName, seeds, Fields(given), static_cast<std::int64_t>(layers.size() + fits.size()),
      [&](std::uint64_t seed, std::int64_t part) {
        const auto l = static_cast<std::size_t>(part);
        return l < layers.size() ? runner.Losses(seed, l)
                                 : fit_runner.Losses(seed, l - layers.size());
      });
  const std::vector<LayerLoss> losses = LossesOf(layers, results, 0);
  const std::vector<LayerLoss> fit_losses = LossesOf(fits, results, layers.size());
  StudyResult result;
  result.name = kName;
  result.title = "Online regression";
  result.sentences = {
      "Each layer reads one sequence once and forecasts the next value; nothing is learned. Local "
      "linear attention (p = 1) forecasts better than softmax attention (p = 0), softmax better "
      "than recursive least squares, and that better than linear attention while the process "
      "changes fast; after the switch, layers that cannot forget stay behind.",
      "A local fit weighs the past by its similarity to the query, and so leaves old keys out by "
      "itself; least squares needs weights that fade. The naive forecaster, which repeats the last "
      "value, is the lowest of the figure: on a process that is nearly a random walk there is "
      "little more to know.",
  };
  result.command = CommandOf(kName, Fields(given), Fields(defaults), run);
  result.claims = CheckClaims(losses);
  if (!fits.empty()) result.claims.push_back(SlopesHelp(fit_losses));
  result.tables.push_back({"online-regression-phases", LossTable("Mean one-step loss", losses)});
  result.tables.push_back({"online-regression-curves", CurveTable(losses)});
  if (!fits.empty()) {
    const std::string title = fmt::format("Kernels and degrees, the same process with {} channels",
                                          few_channels.process.key_dim);
    result.tables.push_back({"online-regression-fits", LossTable(title, fit_losses)});
  }
  for (StudyTable& table : result.tables) {
    SetMeta(table.table, SeedRange(run, seeds), Fields(given));
  }
  const std::int64_t tokens = given.process.tokens;
  result.charts.push_back(LossChart("online-regression",
                                    "Online regression on a process that changes its law", losses,
                                    {1, kLiteral}, tokens));
  result.charts.push_back(
      LossChart("online-regression-others", "The same process, other layers", losses, {2}, tokens));
  return result;
}

}  // namespace ttr::experiments
