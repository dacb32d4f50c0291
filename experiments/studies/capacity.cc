#include "experiments/studies/capacity.h"

#include <fmt/core.h>

#include <memory>

#include "experiments/report/table.h"
#include "experiments/studies/recall_task.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/statistics.h"

namespace ttr::experiments {
namespace {

constexpr char kCapacity[] = "capacity";
constexpr double kRecalled = .9;  // what counts as held

struct CapacityLayer {
  std::string label;
  std::string recipe;
  bool drawn = false;  // in the picture
};

std::vector<CapacityLayer> Layers(const CapacityOptions& o) {
  const std::string ridge = "ridge: " + report::ExactReal(o.ridge);
  const std::string scale = "scale: " + report::ExactReal(o.scale);
  std::vector<CapacityLayer> layers = {
      {"linear attention", "linear_attention", true},
      {"linear attention, 1 + ELU", "linear_attention{features: elu1}"},
      {"linear attention, ReLU", "linear_attention{features: relu}"},
      {"linear attention, DPFP", "linear_attention{features: dpfp}"},
      {"linear attention, FAVOR+", "linear_attention{features: favor}"},
      {"linear attention, DiJiang", "linear_attention{features: dijiang}"},
      {"linear attention, degree 2", "linear_attention{features: power2}", true},
      {"DeltaNet", "deltanet", true},
      {"NLMS", "nlms", true},
      {"Longhorn", "longhorn"},
      {"EFLA", "efla"},
      {"RLS", "rls{" + ridge + "}", true},
      {"affine RLS", "affine_rls{" + ridge + "}"},
      {"RLS on 1 + ELU", "feature_rls{" + ridge + "}"},
      {"RLS on DPFP", "feature_rls{features: dpfp, " + ridge + "}"},
      {"conjugate gradient, 4 steps",
       "uniform | linear | conjugate_gradient(steps: 4, " + ridge + ")"},
      {"kernel ridge regression", "kernel_ridge{" + scale + ", " + ridge + "}"},
      {"softmax", "softmax{" + scale + "}", true},
      {"softmax, scale 1/sqrt(d)", "softmax"},
      {"Nadaraya-Watson, compact", "nadaraya_watson{kernel: epanechnikov, bandwidth: 1}"},
      {"local linear", "local_linear{" + scale + "}"},
      {"sliding-window softmax", "window_softmax{" + scale + ", window: 64}", true},
  };
  for (const std::string& recipe : o.recipes) layers.push_back({recipe, recipe, true});
  return layers;
}

// P/d up to which at least `kRecalled` is recalled, between two P by a straight line; empty where
// it is so for all P (or for none).
report::Cell Held(const CapacityOptions& o, const std::vector<double>& means) {
  for (std::size_t p = 0; p < means.size(); ++p) {
    if (means[p] >= kRecalled) continue;
    if (p == 0) return {};
    const auto low = static_cast<double>(o.pairs[p - 1]);
    const auto high = static_cast<double>(o.pairs[p]);
    const double part = (means[p - 1] - kRecalled) / (means[p - 1] - means[p]);
    return (low + part * (high - low)) / static_cast<double>(o.dim);
  }
  return {};
}

void CheckOptions(const CapacityOptions& o) {
  RequireOption(o.dim >= 1 && o.dim <= 1024, kCapacity, "dim", "1 to 1024",
                static_cast<double>(o.dim));
  RequireOption(!o.pairs.empty(), kCapacity, "pairs", "one number at least", "none");
  for (std::size_t p = 0; p < o.pairs.size(); ++p) {
    RequireOption(o.pairs[p] >= 2 && o.pairs[p] <= 10000, kCapacity, "pairs", "2 to 10000",
                  static_cast<double>(o.pairs[p]));
    RequireOption(p == 0 || o.pairs[p] > o.pairs[p - 1], kCapacity, "pairs", "in rising order",
                  static_cast<double>(o.pairs[p]));
  }
  RequireOption(o.ridge >= 0, kCapacity, "ridge", "at least 0", o.ridge);
  RequireOption(o.step >= 0, kCapacity, "step", "at least 0", o.step);
}

// Means over seeds, [layer][P].
using Means = std::vector<std::vector<report::Measured>>;

std::vector<Claim> CheckClaims(const CapacityOptions& o, const Means& means,
                               const std::vector<CapacityLayer>& layers) {
  const auto row = [&](std::string_view label) {
    for (std::size_t l = 0; l < layers.size(); ++l) {
      if (layers[l].label == label) return l;
    }
    return std::size_t{0};
  };
  std::vector<Claim> claims;
  const std::size_t rls = row("RLS"), linear = row("linear attention");
  Claim below{"linear attention never recalls more than RLS, and less once P > d", true, ""};
  Claim all{"RLS recalls every pair while P <= d", true, ""};
  for (std::size_t p = 0; p < o.pairs.size(); ++p) {
    const double l = means[linear][p].value, r = means[rls][p].value;
    const double load = static_cast<double>(o.pairs[p]) / static_cast<double>(o.dim);
    below.holds = below.holds && l <= r && (load <= 1.5 || r == 0 || l < r);
    below.evidence += fmt::format("{}P/d {:.2f}: {:.3f}, {:.3f}", p == 0 ? "" : "; ", load, l, r);
    if (load > 1) continue;
    all.holds = all.holds && r == 1;
    all.evidence = fmt::format("{:.4f} up to P/d = {:.2f}", r, load);
  }
  claims.push_back(std::move(below));
  claims.push_back(std::move(all));
  return claims;
}

report::Chart CapacityChart(const CapacityOptions& o, const std::vector<CapacityLayer>& layers,
                            const Means& means, std::size_t seeds) {
  report::Chart chart{.title = "Capacity: recall over the number of pairs",
                      .subtitle = fmt::format(
                          "one pass over P random pairs, d = {}, mean of {} seeds", o.dim, seeds)};
  report::Panel panel{.x = {.label = "P / d", .scale = report::Scale::kLog2},
                      .y = {.label = "accuracy", .min = 0, .max = 1.1}};
  panel.references.push_back({.at = 1, .vertical = true, .label = "P = d"});
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (!layers[l].drawn) continue;
    report::Series series{.name = layers[l].label, .mark = report::Mark::kLinePoints};
    for (std::size_t p = 0; p < o.pairs.size(); ++p) {
      series.x.push_back(static_cast<double>(o.pairs[p]) / static_cast<double>(o.dim));
      series.y.push_back(means[l][p].value);
    }
    panel.series.push_back(std::move(series));
  }
  chart.panels.push_back(std::move(panel));
  return chart;
}

report::Table CapacityTable(const CapacityOptions& given, const std::vector<CapacityLayer>& layers,
                            const PartResults& results, Means& means) {
  report::Table table("Recall of P pairs, written once");
  table.AddText("layer");
  for (const std::int64_t pairs : given.pairs) {
    table.AddMeasured(fmt::format("P = {}", pairs), 3);
  }
  table.AddReal("P/d at .9", 2).AddText("recipe");
  for (std::size_t l = 0; l < layers.size(); ++l) {
    std::vector<report::Cell> row = {layers[l].label};
    std::vector<double> values;
    for (std::size_t p = 0; p < given.pairs.size(); ++p) {
      std::vector<double> accuracies;
      for (const auto& seed : results) accuracies.push_back(seed[p][l]);
      means[l].push_back(MeanOf(accuracies));
      values.push_back(means[l].back().value);
      row.emplace_back(means[l].back());
    }
    row.push_back(Held(given, values));
    row.emplace_back(layers[l].recipe);
    table.AddRow(std::move(row));
  }
  return table;
}

}  // namespace

OptionFields Fields(CapacityOptions& o) {
  return {
      {"dim", &o.dim, "d, dimension of the embeddings"},
      {"pairs", &o.pairs, "P, numbers of pairs, rising"},
      {"ridge", &o.ridge, "of the least-squares layers"},
      {"step", &o.step, "step size of the delta rules; with 1 DeltaNet is NLMS, on unit keys"},
      {"scale", &o.scale, "of the softmax family"},
      {"recipe", &o.recipes, "another layer (may be repeated)"},
  };
}

StudyResult RunCapacity(const CapacityOptions& options, const StudyRun& run) {
  CapacityOptions defaults, given = options;
  CheckOptions(given);
  const std::vector<CapacityLayer> layers = Layers(given);
  std::vector<std::unique_ptr<StudyLayer>> made;
  for (const CapacityLayer& layer : layers) {
    made.push_back(std::make_unique<StudyLayer>(layer.recipe, ConstantGates{.step = given.step}));
  }
  const PartResults results = RunParts(
      run, kCapacity, kCapacitySeeds, Fields(given), static_cast<std::int64_t>(given.pairs.size()),
      [&](std::uint64_t seed, std::int64_t part) {
        MqarOptions mqar;
        mqar.law = MqarLaw::kBalanced;
        mqar.pairs = given.pairs[static_cast<std::size_t>(part)];
        mqar.vocabulary = 1 << 15;
        const RecallTask task = MakeRecallTask(MakeMqar(mqar, seed, 0), given.dim, seed,
                                               Embedding::kUnit, Memorized::kPairs);
        Numbers accuracies;
        for (const auto& layer : made) {
          accuracies.push_back(Accuracy(task, layer->Recall(task.rows())));
        }
        return accuracies;
      });

  Means means(layers.size());
  report::Table table = CapacityTable(given, layers, results, means);
  SetMeta(table, SeedRange(run, kCapacitySeeds), Fields(given));

  StudyResult result;
  result.name = kCapacity;
  result.title = "Capacity";
  result.sentences = {
      "Linear attention recalls nearly all of up to about two pairs a dimension, least squares "
      "more, "
      "a delta rule less: written once, each pair overwrites part of those before it. Memories "
      "that "
      "keep their pairs under a sharp kernel lose none, under a flat one all.",
      "A linear map of d dimensions has room for d arbitrary associations; to point at the right "
      "one "
      "of P responses takes less than to return it exactly, and so all of them go beyond P = d. "
      "A feature map widens the keys and with them the room.",
  };
  result.command = CommandOf(kCapacity, Fields(given), Fields(defaults), run);
  result.claims = CheckClaims(given, means, layers);
  result.tables.push_back({"capacity-accuracy", std::move(table)});
  result.charts.push_back({"capacity", CapacityChart(given, layers, means, results.size())});
  return result;
}

}  // namespace ttr::experiments
