#include "experiments/real/recall_report.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

namespace ttr::experiments {
namespace {

std::optional<double> Rate(const HitRate& rate) {
  return rate.questions > 0 ? std::optional(rate.rate()) : std::nullopt;
}

// The middle of the positions 2^i .. 2^(i+1) - 1 on a logarithmic axis.
double Middle(int bin) { return std::exp2(bin + .5); }

}  // namespace

report::Table RecallTable(const RecallRun& run, const RecallOptions& options,
                          const std::string& source) {
  report::Table table("Next-token recall of " + source);
  table.AddText("memory").AddInteger("tokens");
  table.AddReal("recall", 4).AddReal("after_seen", 4).AddReal("pair_seen", 4);
  table.AddReal("bits_known", 3).AddReal("bits_per_token", 3);
  for (const RecallResult& result : run.results()) {
    table.AddRow({result.method, result.tokens, Rate(result.all), Rate(result.seen),
                  Rate(result.pair),
                  result.known > 0 ? std::optional(result.bits_per_known()) : std::nullopt,
                  result.tokens > 0 ? std::optional(result.bits_per_token()) : std::nullopt});
  }
  table.SetMeta("source", source);
  table.SetMeta("tokens", run.tokens());
  table.SetMeta("vocabulary", run.vocabulary().size());
  table.SetMeta("kind", options.kind == TokenKind::kBytes ? "bytes" : "words");
  table.SetMeta("dim", options.dim);
  table.SetMetaJson("seed", options.seed);
  table.SetMeta("step", options.gates.step);
  table.SetMeta("decay", options.gates.decay);
  return table;
}

report::Table RecallCurve(const RecallRun& run) {
  report::Table table("Recall against position");
  table.AddText("memory").AddInteger("from").AddInteger("to").AddInteger("questions");
  table.AddReal("after_seen", 4);
  for (const RecallResult& result : run.results()) {
    for (int bin = 0; bin < RecallResult::kBins; ++bin) {
      const HitRate& rate = result.bins[bin];
      if (rate.questions == 0) continue;
      table.AddRow({result.method, std::int64_t{1} << bin, (std::int64_t{2} << bin) - 1,
                    rate.questions, rate.rate()});
    }
  }
  return table;
}

double GuessBits(const RecallRun& run) {
  return std::log2(static_cast<double>(run.vocabulary().size()));
}

report::Chart RecallChart(const RecallRun& run, const RecallOptions& options,
                          const std::string& source) {
  report::Chart chart{
      .title = "Next-token recall of " + source,
      .subtitle =
          fmt::format("{} {}, {} different ones as random unit vectors of {}; one pass",
                      run.tokens(), options.kind == TokenKind::kBytes ? "bytes" : "words and marks",
                      run.vocabulary().size(), options.dim)};
  report::Panel& curve = chart.panels.emplace_back();
  curve.title = "after a token that had a successor before";
  curve.x = {.label = "position in the text", .scale = report::Scale::kLog10};
  curve.y = {.label = "recall: share named right", .min = 0};
  for (const RecallResult& result : run.results()) {
    report::Series series{.name = result.method, .mark = report::Mark::kLinePoints};
    series.muted = &result == &run.results().front();
    for (int bin = 0; bin < RecallResult::kBins; ++bin) {
      // A handful of questions says nothing.
      if (result.bins[bin].questions < 16) continue;
      series.x.push_back(Middle(bin));
      series.y.push_back(result.bins[bin].rate());
    }
    if (!series.x.empty()) curve.series.push_back(std::move(series));
  }

  report::Panel& bars = chart.panels.emplace_back();
  bars.title = "bits to name a known token";
  bars.x = {.label = fmt::format("bits; by a blind guess {:.1f}", GuessBits(run))};
  bars.horizontal = true;
  bars.digits = 2;
  std::vector<std::string> methods;
  report::Series bits{.name = "bits", .mark = report::Mark::kBars};
  for (const RecallResult& result : run.results()) {
    methods.push_back(result.method);
    bits.y.push_back(result.known > 0 ? result.bits_per_known() : std::nan(""));
  }
  bars.categories = ShortNames(methods);
  bars.series.push_back(std::move(bits));
  return chart;
}

}  // namespace ttr::experiments
