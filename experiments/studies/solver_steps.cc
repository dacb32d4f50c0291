#include "experiments/studies/solver_steps.h"

#include <fmt/core.h>

#include <cmath>
#include <cstddef>

#include "experiments/data/regression.h"
#include "experiments/studies/recall_task.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/statistics.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

constexpr const char* kKeys[] = {"online regression", "recall", "correlated channels"};
constexpr double kDecays[] = {.999, .99, .9};
constexpr const char* kPreconditioners[] = {"none", "diagonal", "chunk_factor"};
constexpr std::size_t kWays = std::size(kPreconditioners);
constexpr std::int64_t kTokens = 512;
constexpr double kTolerance = 1e-3, kRidge = .01;

struct Rows {
  std::vector<double> k, q;  // [kTokens, dim]
};

/// Neighbouring channels have a correlation of .9.
std::vector<double> Correlated(std::int64_t dim, CounterRandom random) {
  std::vector<double> rows;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    double x = random.Normal();
    for (std::int64_t i = 0; i < dim; ++i) {
      rows.push_back(x / std::sqrt(static_cast<double>(dim)));
      x = .9 * x + std::sqrt(1 - .81) * random.Normal();
    }
  }
  return rows;
}

/// Unit cues, and each asked for when as many again have been written.
Rows Recall(std::int64_t dim, std::uint64_t seed) {
  MqarOptions mqar;
  mqar.law = MqarLaw::kBalanced;
  mqar.pairs = kTokens;
  mqar.vocabulary = 1 << 15;
  const RecallTask task =
      MakeRecallTask(MakeMqar(mqar, seed, 0), dim, seed, Embedding::kUnit, Memorized::kPairs);
  Rows rows{task.k, {}};
  for (std::int64_t t = 0; t < kTokens; ++t) {
    const auto cue = rows.k.begin() + t / 2 * dim;
    rows.q.insert(rows.q.end(), cue, cue + dim);
  }
  return rows;
}

Rows MakeRows(std::size_t keys, std::int64_t dim, std::uint64_t seed) {
  if (keys == 0) {
    SwitchingProcess process;
    process.tokens = kTokens;
    process.key_dim = dim;
    process.start = KeyStart::kStationary;
    const RegressionData data = MakeRegression(process, seed);
    return {data.k, data.q};
  }
  if (keys == 1) return Recall(dim, seed);
  return {Correlated(dim, CounterRandom(seed, 1)), Correlated(dim, CounterRandom(seed, 2))};
}

/// Mean steps of an answer for every decay and preconditioner; NaN where one did not converge.
Numbers Steps(std::size_t keys, std::int64_t dim, std::uint64_t seed) {
  const Rows rows = MakeRows(keys, dim, seed);
  const Shape shape{1, kTokens, 1, dim};
  Inputs inputs;
  inputs.q = TensorView(rows.q.data(), DType::kFloat64, shape);
  inputs.k = inputs.v = TensorView(rows.k.data(), DType::kFloat64, shape);
  Tensor y(DType::kFloat64, shape);
  Tensor status(DType::kInt8, {1, kTokens, 1}), iterations(DType::kInt64, {1, kTokens, 1});
  Numbers numbers;
  for (const double decay : kDecays) {
    for (const char* preconditioner : kPreconditioners) {
      const Layer layer(ParseRecipe(
          fmt::format("decay({}) | linear | conjugate_gradient(steps: 1000, ridge: {}, ridge_kind: "
                      "constant, tolerance: {}, preconditioner: {})",
                      decay, kRidge, kTolerance, preconditioner)));
      State state;
      layer.Forward(inputs, state, {y.view(), status.view(), iterations.view()},
                    {.executor = &SequentialExecutor(), .scratch = {}});
      double sum = 0;
      for (std::int64_t t = 0; t < kTokens; ++t) {
        const bool converged = status.view().At({0, t, 0}) == 0;
        sum += converged ? iterations.view().At({0, t, 0}) : std::nan("");
      }
      numbers.push_back(sum / static_cast<double>(kTokens));
    }
  }
  return numbers;
}

}  // namespace

report::Table SolverSteps(std::int64_t dim, const StudyRun& run, std::int64_t default_seeds) {
  const PartResults results = RunParts(run, "solver-steps", default_seeds, {{"dim", &dim, ""}},
                                       static_cast<std::int64_t>(std::size(kKeys)),
                                       [&](std::uint64_t seed, std::int64_t part) {
                                         return Steps(static_cast<std::size_t>(part), dim, seed);
                                       });
  report::Table table(fmt::format(
      "Conjugate gradients to {} beside a constant ridge of {}: mean steps of an answer",
      kTolerance, kRidge));
  table.AddText("keys").AddReal("decay", 3);
  for (const char* preconditioner : kPreconditioners) table.AddMeasured(preconditioner, 2);
  for (std::size_t keys = 0; keys < std::size(kKeys); ++keys) {
    for (std::size_t d = 0; d < std::size(kDecays); ++d) {
      std::vector<report::Cell> row = {kKeys[keys], kDecays[d]};
      for (std::size_t way = 0; way < kWays; ++way) {
        std::vector<double> means;
        for (const auto& seed : results) means.push_back(seed[keys][d * kWays + way]);
        row.emplace_back(MeanOf(means));
      }
      table.AddRow(std::move(row));
    }
  }
  table.SetMeta("seeds", SeedRange(run, default_seeds)).SetMeta("dim", dim);
  return table;
}

}  // namespace ttr::experiments
