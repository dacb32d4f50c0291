#include "experiments/studies/mqar.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>

#include "experiments/studies/recall_task.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/statistics.h"

namespace ttr::experiments {
namespace {

constexpr char kMqar[] = "mqar";

struct Setting {
  const char* name;
  const char* short_name;  // as the title of a panel
  MqarLaw law;
  Embedding embedding;
  Memorized memorized;
};
constexpr Setting kBalanced{"balanced", "balanced", MqarLaw::kBalanced, Embedding::kUnit,
                            Memorized::kPairs};
constexpr Setting kOrthonormal{"balanced, orthonormal", "orthonormal", MqarLaw::kBalanced,
                               Embedding::kOrthonormal, Memorized::kPairs};
constexpr Setting kReplacement{"with replacement", "drawn, pairs", MqarLaw::kWithReplacement,
                               Embedding::kUnit, Memorized::kPairs};
constexpr Setting kBigrams{"balanced, all bigrams", "balanced, bigrams", MqarLaw::kBalanced,
                           Embedding::kUnit, Memorized::kAllBigrams};
constexpr Setting kPaper{"with replacement, all bigrams", "drawn, bigrams",
                         MqarLaw::kWithReplacement, Embedding::kUnit, Memorized::kAllBigrams};
constexpr Setting kZoology{"Zoology, all bigrams", "Zoology, bigrams", MqarLaw::kZoology,
                           Embedding::kUnit, Memorized::kAllBigrams};

// A memory is read at every labelled position in turn there, which takes long for those that keep
// their pairs.
constexpr std::int64_t kLongestZoology = 1024;

struct MqarLayer {
  std::string label;
  std::string recipe;
};

std::vector<MqarLayer> Layers(const MqarStudyOptions& o) {
  std::vector<MqarLayer> layers = {
      {"linear attention", "linear_attention"},
      {"RLS", fmt::format("rls{{ridge: {}}}", o.ridge)},
      {"NLMS", "nlms"},
      {"DeltaNet", "deltanet"},
      {"softmax", fmt::format("softmax{{scale: {}}}", o.scale)},
  };
  for (const std::string& recipe : o.recipes) layers.push_back({recipe, recipe});
  return layers;
}

// One example of the study, read by all layers.
struct Cell {
  Setting setting;
  std::int64_t pairs;
  std::size_t length;  // index of T
};

std::vector<Setting> Settings(const MqarStudyOptions& o) {
  std::vector<Setting> settings = {kBalanced};
  if (o.orthonormal) settings.push_back(kOrthonormal);
  if (o.replacement) settings.push_back(kReplacement);
  if (o.all_bigrams) settings.push_back(kBigrams);
  if (o.all_bigrams && o.replacement) settings.push_back(kPaper);
  if (o.zoology) settings.push_back(kZoology);
  return settings;
}

// The least length at which a law has an example.
std::int64_t LeastTokens(MqarLaw law, std::int64_t pairs) {
  if (law == MqarLaw::kWithReplacement) return 2;
  return law == MqarLaw::kBalanced ? 2 * pairs : 4 * pairs;
}

std::vector<Cell> Cells(const MqarStudyOptions& o) {
  std::vector<Cell> cells;
  for (const Setting& setting : Settings(o)) {
    for (const std::int64_t pairs : o.pairs) {
      for (std::size_t t = 0; t < o.tokens.size(); ++t) {
        if (o.tokens[t] < LeastTokens(setting.law, pairs)) continue;
        if (setting.law == MqarLaw::kZoology && o.tokens[t] > kLongestZoology) continue;
        cells.push_back({setting, pairs, t});
      }
    }
  }
  return cells;
}

using LayerList = std::vector<std::unique_ptr<StudyLayer>>;

// Accuracy of every layer.
Numbers Run(const MqarStudyOptions& o, const LayerList& layers, const Cell& cell,
            std::uint64_t seed) {
  MqarOptions options;
  options.law = cell.setting.law;
  options.pairs = cell.pairs;
  options.tokens = o.tokens[cell.length];
  options.vocabulary = std::max<std::int64_t>(options.vocabulary, 2 * cell.pairs + 2);
  if (options.law == MqarLaw::kBalanced) options.passes = options.tokens / (2 * cell.pairs);
  // Another example at every length: what is flat in T is so over independent draws.
  const MqarExample example = MakeMqar(options, seed, cell.length);
  const std::int64_t dim =
      cell.setting.embedding == Embedding::kOrthonormal ? 2 * cell.pairs : o.dim;
  const RecallTask task = MakeRecallTask(example, dim, seed, cell.setting.embedding,
                                         cell.setting.memorized, o.decode_cues);
  Numbers accuracies;
  for (const auto& layer : layers) {
    accuracies.push_back(Accuracy(task, options.law == MqarLaw::kZoology
                                            ? AskInPlace(*layer, task)
                                            : layer->Recall(task.rows())));
  }
  return accuracies;
}

// Accuracies by what they are of.
class Accuracies {
 public:
  Accuracies(const std::vector<Cell>& cells, const PartResults& results) {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      for (std::size_t l = 0; l < results.front()[c].size(); ++l) {
        Sample& sample = samples_[Key(cells[c].setting, cells[c].pairs, cells[c].length, l)];
        for (const auto& seed : results) sample.values.push_back(seed[c][l]);
      }
    }
  }

  // Null where the length is too short for the setting.
  const Sample* Find(const Setting& setting, std::int64_t pairs, std::size_t length,
                     std::size_t layer) const {
    const auto found = samples_.find(Key(setting, pairs, length, layer));
    return found == samples_.end() ? nullptr : &found->second;
  }

 private:
  static std::string Key(const Setting& setting, std::int64_t pairs, std::size_t length,
                         std::size_t layer) {
    return fmt::format("{}/{}/{}/{}", setting.name, pairs, length, layer);
  }
  std::map<std::string, Sample> samples_;
};

report::Table AccuracyTable(const MqarStudyOptions& o, const std::vector<MqarLayer>& layers,
                            const Accuracies& accuracies) {
  report::Table table("Recall without training: share of cues answered rightly");
  table.AddText("law and memory").AddInteger("P").AddText("layer");
  for (const std::int64_t tokens : o.tokens) table.AddMeasured(fmt::format("T = {}", tokens), 3);
  for (const Setting& setting : Settings(o)) {
    for (const std::int64_t pairs : o.pairs) {
      for (std::size_t l = 0; l < layers.size(); ++l) {
        std::vector<report::Cell> row = {setting.name, pairs, layers[l].label};
        for (std::size_t t = 0; t < o.tokens.size(); ++t) {
          const Sample* sample = accuracies.Find(setting, pairs, t, l);
          if (sample != nullptr) {
            row.emplace_back(MeanOf(sample->values));
          } else {
            row.emplace_back();
          }
        }
        table.AddRow(std::move(row));
      }
    }
  }
  return table;
}

report::Panel AccuracyPanel(const MqarStudyOptions& o, const std::vector<MqarLayer>& layers,
                            const Accuracies& accuracies, const Setting& setting,
                            std::int64_t pairs, const std::string& title) {
  report::Panel panel{.title = title,
                      .x = {.label = "T, tokens", .scale = report::Scale::kLog2},
                      .y = {.label = "share of cues answered right", .min = 0, .max = 1.02}};
  for (std::size_t l = 0; l < layers.size(); ++l) {
    report::Series series{.name = layers[l].label, .mark = report::Mark::kLinePoints};
    for (std::size_t t = 0; t < o.tokens.size(); ++t) {
      const Sample* sample = accuracies.Find(setting, pairs, t, l);
      if (sample == nullptr) continue;
      series.x.push_back(static_cast<double>(o.tokens[t]));
      series.y.push_back(MeanOf(sample->values).value);
    }
    panel.series.push_back(std::move(series));
  }
  return panel;
}

// The lowest point of each panel, whoever's it is.
std::string LowestOf(const report::Chart& chart) {
  std::string text = "Lowest: ";
  for (const report::Panel& panel : chart.panels) {
    double least = INFINITY;
    std::string name;
    for (const report::Series& series : panel.series) {
      for (const double y : series.y) {
        if (y < least) name = series.name;
        least = std::min(least, y);
      }
    }
    text +=
        fmt::format("{}{} ({}, {:.2f})", text.ends_with(' ') ? "" : "; ", name, panel.title, least);
  }
  return text + ".";
}

// The means of one layer over all lengths.
struct OverLengths {
  std::vector<double> means;
  double least = INFINITY, greatest = -INFINITY;
  std::string shown;
};

OverLengths Over(const Accuracies& accuracies, const Setting& setting, std::int64_t pairs,
                 std::size_t lengths, std::size_t layer) {
  OverLengths over;
  for (std::size_t t = 0; t < lengths; ++t) {
    const Sample* sample = accuracies.Find(setting, pairs, t, layer);
    if (sample == nullptr) continue;
    const double mean = MeanOf(sample->values).value;
    over.means.push_back(mean);
    over.least = std::min(over.least, mean);
    over.greatest = std::max(over.greatest, mean);
  }
  over.shown = fmt::format("{:.4f} to {:.4f}", over.least, over.greatest);
  return over;
}

enum { kLinear, kRls, kNlms };

// The targets are those of 64 dimensions; other options get no claims.
std::vector<Claim> CheckClaims(const MqarStudyOptions& o, const Accuracies& accuracies,
                               std::size_t layers) {
  std::vector<Claim> claims;
  const auto has = [&](std::int64_t p) {
    return std::find(o.pairs.begin(), o.pairs.end(), p) != o.pairs.end();
  };
  if (o.dim != 64 || !has(64) || !has(128) || o.tokens.empty()) return claims;
  const auto over = [&](const Setting& setting, std::int64_t pairs, std::size_t layer) {
    return Over(accuracies, setting, pairs, o.tokens.size(), layer);
  };
  const OverLengths linear64 = over(kBalanced, 64, kLinear);
  const OverLengths linear128 = over(kBalanced, 128, kLinear);
  const OverLengths rls128 = over(kBalanced, 128, kRls);
  claims.push_back({"P = 64: linear attention recalls at least .995 at every length",
                    linear64.least >= .995, linear64.shown});
  claims.push_back(
      {"P = 128: RLS recalls at least .998 at every length", rls128.least >= .998, rls128.shown});
  claims.push_back({"P = 128: linear attention is lower than RLS, by .01 or more at every length",
                    linear128.greatest <= rls128.least - .01, linear128.shown});
  const double spread =
      std::max({linear64.greatest - linear64.least, linear128.greatest - linear128.least,
                rls128.greatest - rls128.least});
  claims.push_back({"flat in T: of these, none changes by more than .02 from one length to another",
                    spread <= .02, fmt::format("greatest change {:.4f}", spread)});
  if (o.orthonormal) {
    double least = 1;
    for (const std::int64_t pairs : o.pairs) {
      for (std::size_t l = 0; l < layers; ++l) {
        least = std::min(least, over(kOrthonormal, pairs, l).least);
      }
    }
    claims.push_back({"orthonormal embeddings: every layer recalls all, at every length",
                      least == 1, fmt::format("least {:.4f}", least)});
  }
  if (o.replacement && o.tokens.size() >= 3) {
    const OverLengths drawn = over(kReplacement, 128, kLinear);
    claims.push_back(
        {"P = 128 with replacement: linear attention is worst at a length between the "
         "shortest and the longest, where counts differ most",
         drawn.least < drawn.means.front() && drawn.least < drawn.means.back(),
         fmt::format("{:.3f} at first, least {:.3f}, {:.3f} at last", drawn.means.front(),
                     drawn.least, drawn.means.back())});
  }
  if (o.all_bigrams && o.replacement) {
    const OverLengths all = over(kPaper, 128, kRls);
    const OverLengths alone = over(kReplacement, 128, kRls);
    claims.push_back(
        {"P = 128 with replacement: a memory of all bigrams, twice the keys, costs RLS "
         "more than .1 at its worst length",
         all.least < alone.least - .1,
         fmt::format("least {:.3f}, with the pairs alone {:.3f}", all.least, alone.least)});
  }
  return claims;
}

void CheckOptions(const MqarStudyOptions& o) {
  RequireOption(o.dim >= 1 && o.dim <= 4096, kMqar, "dim", "1 to 4096", static_cast<double>(o.dim));
  RequireOption(!o.pairs.empty(), kMqar, "pairs", "one number at least", "none");
  RequireOption(!o.tokens.empty(), kMqar, "tokens", "one number at least", "none");
  for (const std::int64_t p : o.pairs) {
    RequireOption(p >= 2 && p <= 100000, kMqar, "pairs", "2 to 100000", static_cast<double>(p));
    const std::int64_t longest = *std::max_element(o.tokens.begin(), o.tokens.end());
    RequireOption(longest >= 2 * p, kMqar, "tokens",
                  fmt::format("at least 2 * pairs = {} once", 2 * p), static_cast<double>(longest));
  }
  for (const std::int64_t t : o.tokens) {
    RequireOption(t >= 2 && t % 2 == 0 && t <= 1 << 24, kMqar, "tokens", "even, 2 to 2^24",
                  static_cast<double>(t));
  }
  RequireOption(o.ridge >= 0, kMqar, "ridge", "at least 0", o.ridge);
  RequireOption(o.step >= 0, kMqar, "step", "at least 0", o.step);
}

}  // namespace

OptionFields Fields(MqarStudyOptions& o) {
  return {
      {"dim", &o.dim, "dimension of the embeddings, and of the memory"},
      {"pairs", &o.pairs, "P, numbers of pairs"},
      {"tokens", &o.tokens, "T, lengths"},
      {"ridge", &o.ridge, "of RLS"},
      {"step", &o.step, "step size of DeltaNet; with 1 it is NLMS, on unit keys"},
      {"scale", &o.scale, "of softmax"},
      {"recipe", &o.recipes, "another layer (may be repeated)"},
      {"decode-cues", &o.decode_cues,
       "look for an answer among the cues too, 2 P tokens; else among the P responses"},
      {"orthonormal", &o.orthonormal, "also orthonormal embeddings, in 2 P dimensions"},
      {"replacement", &o.replacement, "also pairs drawn with replacement, the paper's law"},
      {"all-bigrams", &o.all_bigrams, "also a memory of all bigrams, the paper's construction"},
      {"zoology", &o.zoology,
       "also Zoology's law, asked at the labelled positions of its text; up to T = 1024"},
  };
}

StudyResult RunMqar(const MqarStudyOptions& options, const StudyRun& run) {
  MqarStudyOptions defaults, given = options;
  CheckOptions(given);
  const std::vector<MqarLayer> layers = Layers(given);
  LayerList made;
  for (const MqarLayer& layer : layers) {
    made.push_back(std::make_unique<StudyLayer>(layer.recipe, ConstantGates{.step = given.step}));
  }
  const std::vector<Cell> cells = Cells(given);
  const PartResults results =
      RunParts(run, kMqar, kMqarSeeds, Fields(given), static_cast<std::int64_t>(cells.size()),
               [&](std::uint64_t seed, std::int64_t part) {
                 return Run(given, made, cells[static_cast<std::size_t>(part)], seed);
               });
  const Accuracies accuracies(cells, results);

  StudyResult result;
  result.name = kMqar;
  result.title = "Associative recall: capacity, not length";
  result.sentences = {
      "Nothing is trained: cues and responses are random vectors, the memory writes each pair, and "
      "then every cue is asked. Accuracy depends on how many pairs there are, not on how long the "
      "text is: linear attention holds 64 pairs in 64 dimensions and loses some of 128, recursive "
      "least squares holds both.",
      "Linear attention takes the keys for orthonormal, which 128 vectors in 64 dimensions cannot "
      "be; least squares accounts for their overlaps, and with orthonormal embeddings all layers "
      "are perfect. What hurts at some lengths is an uneven count of the pairs, drawn with "
      "replacement, and what hurts at all is to memorize response -> next cue as well.",
  };
  result.command = CommandOf(kMqar, Fields(given), Fields(defaults), run);
  result.claims = CheckClaims(given, accuracies, layers.size());
  report::Table table = AccuracyTable(given, layers, accuracies);
  SetMeta(table, SeedRange(run, kMqarSeeds), Fields(given));
  result.tables.push_back({"mqar-accuracy", std::move(table)});

  const std::string subtitle = fmt::format("recall of every cue, {} dimensions, mean of {} seeds",
                                           given.dim, results.size());
  report::Chart balanced{.title = "Recall over length, nothing trained", .subtitle = subtitle};
  for (const std::int64_t pairs : given.pairs) {
    balanced.panels.push_back(AccuracyPanel(given, layers, accuracies, kBalanced, pairs,
                                            fmt::format("balanced, P = {}", pairs)));
  }
  result.charts.push_back(
      {"mqar", balanced,
       "P pairs of a cue and a response, each as often as the others. " + LowestOf(balanced)});
  const std::int64_t most = given.pairs.back();
  report::Chart others{.title = "What does depend on length",
                       .subtitle = fmt::format("P = {}, {}", most, subtitle)};
  for (const Setting& setting : Settings(given)) {
    if (setting.law == MqarLaw::kBalanced) continue;
    others.panels.push_back(
        AccuracyPanel(given, layers, accuracies, setting, most, setting.short_name));
  }
  if (others.panels.empty()) return result;
  result.charts.push_back(
      {"mqar-laws", others,
       "Drawn: with replacement, so that some pairs come more often. Bigrams: each response with "
       "the next cue is stored, too. Zoology: as in that benchmark. " +
           LowestOf(others)});
  return result;
}

}  // namespace ttr::experiments
