#include "experiments/studies/dials.h"

#include <fmt/core.h>

#include <cmath>

#include "experiments/report/table.h"
#include "experiments/studies/recall_task.h"
#include "experiments/studies/run_parts.h"
#include "experiments/studies/solver_steps.h"
#include "experiments/studies/statistics.h"
#include "experiments/studies/sweeps.h"

namespace ttr::experiments {
namespace {

constexpr char kDials[] = "dials";

// What a dial is turned through.
enum class Turns {
  kSteps,   // of the solver
  kPasses,  // of a delta rule over the pairs, the memory carried on
  kSweeps,  // of Gauss and Seidel over the pairs
};

// One line of the pictures: a dial turned through its settings.
struct Dial {
  std::string label;
  std::int64_t pairs;
  Turns turns;
  std::string recipe;  // {n} stands for the number of steps
  double ridge = 0;    // of the least squares that it is turned towards

  bool steps() const { return turns == Turns::kSteps; }
};

std::vector<Dial> Dials(const DialsOptions& o) {
  const double load = static_cast<double>(o.pairs) / static_cast<double>(o.dim);
  // Half of what converges: lambda_max of P random unit keys is close to (1 + sqrt(P/d))^2.
  const double eta = o.eta > 0 ? o.eta : 1 / std::pow(1 + std::sqrt(load), 2);
  std::vector<Dial> dials = {
      {"gradient descent", o.pairs, Turns::kSteps,
       fmt::format("batch_gd{{steps: {{n}}, eta_kind: constant, eta: {}}}",
                   report::ExactReal(eta))},
      {"conjugate gradient", o.pairs, Turns::kSteps,
       "uniform | linear | conjugate_gradient(steps: {n})"},
      {"gradient descent, 8 eigenvalues inverted", o.pairs, Turns::kSteps,
       "quasi_newton{steps: {n}, preconditioner: low_rank, rank: 8, ridge: 0}"},
  };
  for (const std::int64_t pairs : {o.few_pairs, o.pairs}) {
    dials.push_back({fmt::format("NLMS, P = {}", pairs), pairs, Turns::kPasses, "nlms"});
    dials.push_back({fmt::format("DeltaNet, P = {}", pairs), pairs, Turns::kPasses, "deltanet"});
    // On unit keys the first sweep with this ridge is DeltaNet; from step 1 on there is none.
    if (o.step > 0 && o.step < 1) {
      dials.push_back(
          {fmt::format("Gauss-Seidel, P = {}", pairs), pairs, Turns::kSweeps, "", 1 / o.step - 1});
    }
  }
  return dials;
}

RecallTask MakeTask(const DialsOptions& o, std::int64_t pairs, std::uint64_t seed) {
  MqarOptions mqar;
  mqar.law = MqarLaw::kBalanced;
  mqar.pairs = pairs;
  mqar.vocabulary = 1 << 15;
  return MakeRecallTask(MakeMqar(mqar, seed, 0), o.dim, seed, Embedding::kUnit, Memorized::kPairs);
}

double Norm(const std::vector<double>& x) {
  double squares = 0;
  for (const double e : x) squares += e * e;
  return std::sqrt(squares);
}

double Distance(const std::vector<double>& y, const std::vector<double>& exact) {
  std::vector<double> difference;
  for (std::size_t i = 0; i < y.size(); ++i) difference.push_back(y[i] - exact[i]);
  return Norm(difference) / Norm(exact);
}

// Distance to least squares and accuracy at every setting, one behind the other; last those of
// least squares itself (distance 0).
Numbers Turn(const DialsOptions& o, const Dial& dial, std::uint64_t seed) {
  const RecallTask task = MakeTask(o, dial.pairs, seed);
  const std::string least_squares = fmt::format("rls{{ridge: {}}}", report::ExactReal(dial.ridge));
  const std::vector<double> exact =
      StudyLayer(least_squares, {}, Runs::kLeastSquaresEngine).Recall(task.rows());
  const ConstantGates gates{.step = o.step};
  Numbers numbers;
  const auto add = [&](const std::vector<double>& y) {
    numbers.push_back(Distance(y, exact));
    numbers.push_back(Accuracy(task, y));
  };
  if (dial.turns == Turns::kSweeps) {
    DualSweeps sweeps(task.rows(), RidgesOfStep(task.rows(), o.step));
    std::int64_t done = 0;
    for (const std::int64_t n : o.passes) {
      for (; done < n; ++done) sweeps.Sweep();
      add(sweeps.Retrieve(task.q));
    }
  } else if (dial.turns == Turns::kPasses) {
    const StudyLayer layer(dial.recipe, gates);
    State state;
    std::int64_t done = 0;
    for (const std::int64_t n : o.passes) {
      for (; done < n; ++done) layer.Memorize(task.rows(), state);
      add(layer.Retrieve(task.q, o.dim, o.dim, state));
    }
  } else {
    for (const std::int64_t n : o.steps) {
      std::string recipe = dial.recipe;
      recipe.replace(recipe.find("{n}"), 3, std::to_string(n));
      add(StudyLayer(recipe, gates, Runs::kLeastSquaresEngine).Recall(task.rows()));
    }
  }
  add(exact);
  return numbers;
}

const std::vector<std::int64_t>& Settings(const DialsOptions& o, const Dial& dial) {
  return dial.steps() ? o.steps : o.passes;
}

std::vector<double> Column(const PartResults& results, std::size_t dial, std::size_t place) {
  std::vector<double> values;
  for (const auto& seed : results) values.push_back(seed[dial][place]);
  return values;
}

report::Chart DialChart(const DialsOptions& o, const std::vector<Dial>& dials,
                        const PartResults& results, bool passes) {
  report::Chart chart{
      .title = passes ? "From the delta rule to least squares: passes over the pairs"
                      : "From linear attention to least squares: steps of the solver",
      .subtitle = fmt::format("d = {}, {}mean of {} seeds", o.dim,
                              passes ? "" : fmt::format("P = {}, ", o.pairs), results.size())};
  for (const std::size_t number : {0, 1}) {
    report::Panel panel{
        .title = number == 0 ? "distance to least squares" : "recall",
        .x = {.label = passes ? "passes" : "steps", .scale = report::Scale::kLog2},
        .y = {.label = number == 0 ? "relative distance" : "accuracy",
              .scale = number == 0 ? report::Scale::kLog10 : report::Scale::kLinear}};
    for (std::size_t d = 0; d < dials.size(); ++d) {
      if (dials[d].steps() == passes) continue;
      report::Series series{.name = dials[d].label, .mark = report::Mark::kLinePoints};
      const auto& settings = Settings(o, dials[d]);
      for (std::size_t i = 0; i < settings.size(); ++i) {
        series.x.push_back(static_cast<double>(settings[i]));
        series.y.push_back(MeanOf(Column(results, d, 2 * i + number)).value);
      }
      panel.series.push_back(std::move(series));
    }
    chart.panels.push_back(std::move(panel));
  }
  return chart;
}

report::Table DialTable(const DialsOptions& o, const std::vector<Dial>& dials,
                        const PartResults& results) {
  report::Table table("The two dials, turned towards least squares");
  table.AddText("dial").AddInteger("P").AddReal("ridge", 2).AddInteger("steps or passes");
  table.AddMeasured("distance to least squares", 2, "", report::RealFormat::kScientific);
  table.AddMeasured("recall", 3);
  for (std::size_t d = 0; d < dials.size(); ++d) {
    const auto& settings = Settings(o, dials[d]);
    for (std::size_t i = 0; i <= settings.size(); ++i) {
      const bool exact = i == settings.size();
      std::vector<report::Cell> row = {exact ? "least squares" : dials[d].label, dials[d].pairs,
                                       dials[d].ridge};
      row.push_back(exact ? report::Cell() : report::Cell(settings[i]));
      row.emplace_back(MeanOf(Column(results, d, 2 * i)));
      row.emplace_back(MeanOf(Column(results, d, 2 * i + 1)));
      // Least squares once for each P and ridge.
      const bool repeated = d + 1 < dials.size() && dials[d + 1].pairs == dials[d].pairs &&
                            dials[d + 1].ridge == dials[d].ridge;
      if (!exact || !repeated) table.AddRow(std::move(row));
    }
  }
  return table;
}

std::vector<Claim> CheckClaims(const DialsOptions& o, const std::vector<Dial>& dials,
                               const PartResults& results) {
  std::vector<Claim> claims;
  const auto distance = [&](std::size_t dial, std::size_t i) {
    return MeanOf(Column(results, dial, 2 * i)).value;
  };
  for (std::size_t d = 0; d < dials.size(); ++d) {
    const bool fits = dials[d].pairs <= o.dim;
    if (dials[d].turns == Turns::kPasses && !fits) continue;
    constexpr const char* kTurn[] = {"step", "pass", "sweep"};
    Claim claim{
        fmt::format("{}: nearer to least squares{} with every further {}", dials[d].label,
                    dials[d].ridge > 0 ? fmt::format(" of ridge {:.3g}", dials[d].ridge) : "",
                    kTurn[static_cast<int>(dials[d].turns)]),
        true, ""};
    const std::size_t last = Settings(o, dials[d]).size() - 1;
    for (std::size_t i = 1; i <= last; ++i) {
      // Once there, rounding is all that is left.
      claim.holds = claim.holds && (distance(d, i) < distance(d, i - 1) || distance(d, i) < 1e-9);
    }
    claim.evidence =
        fmt::format("{:.3g} at first, {:.3g} at last", distance(d, 0), distance(d, last));
    claims.push_back(std::move(claim));
  }
  for (std::size_t d = 0; d < dials.size(); ++d) {
    if (dials[d].turns != Turns::kPasses || dials[d].pairs <= o.dim) continue;
    const std::size_t last = Settings(o, dials[d]).size() - 1;
    claims.push_back(
        {fmt::format("{}: more pairs than dimensions, no map fits all, and passes with a "
                     "constant step size do not arrive",
                     dials[d].label),
         distance(d, last) > .01, fmt::format("{:.3g} at last", distance(d, last))});
  }
  return claims;
}

void CheckOptions(const DialsOptions& o) {
  RequireOption(o.dim >= 1 && o.dim <= 1024, kDials, "dim", "1 to 1024",
                static_cast<double>(o.dim));
  RequireOption(o.pairs >= 2 && o.pairs <= 10000, kDials, "pairs", "2 to 10000",
                static_cast<double>(o.pairs));
  RequireOption(o.few_pairs >= 2 && o.few_pairs <= 10000, kDials, "few-pairs", "2 to 10000",
                static_cast<double>(o.few_pairs));
  RequireOption(o.eta >= 0, kDials, "eta", "at least 0", o.eta);
  RequireOption(o.step >= 0, kDials, "step", "at least 0", o.step);
  for (const auto& [name, list] : {std::pair{"steps", &o.steps}, std::pair{"passes", &o.passes}}) {
    RequireOption(!list->empty(), kDials, name, "one number at least", "none");
    std::int64_t before = 0;
    for (const std::int64_t n : *list) {
      RequireOption(n > before && n <= 100000, kDials, name, "rising numbers from 1 to 100000",
                    static_cast<double>(n));
      before = n;
    }
  }
}

}  // namespace

OptionFields Fields(DialsOptions& o) {
  return {
      {"dim", &o.dim, "d, dimension of the embeddings"},
      {"pairs", &o.pairs, "P of the first dial, and of the second where no map fits all"},
      {"few-pairs", &o.few_pairs, "P of the second dial where a map fits all"},
      {"steps", &o.steps, "steps of the solver, rising"},
      {"passes", &o.passes, "passes over the pairs, rising"},
      {"eta", &o.eta, "step size of gradient descent; 0: 1 / (1 + sqrt(P/d))^2"},
      {"step", &o.step, "step size of DeltaNet; with 1 it is NLMS, on unit keys"},
  };
}

StudyResult RunDials(const DialsOptions& options, const StudyRun& run) {
  DialsOptions defaults, given = options;
  CheckOptions(given);
  const std::vector<Dial> dials = Dials(given);
  const PartResults results =
      RunParts(run, kDials, kDialsSeeds, Fields(given), static_cast<std::int64_t>(dials.size()),
               [&](std::uint64_t seed, std::int64_t part) {
                 return Turn(given, dials[static_cast<std::size_t>(part)], seed);
               });
  StudyResult result;
  result.name = kDials;
  result.title = "Two dials";
  result.sentences = {
      "More steps of the solver turn linear attention into recursive least squares, and more "
      "passes "
      "over the same pairs turn the delta rule into it: the layers are points on a line, not "
      "different things.",
      "Gradient descent needs as many steps as the condition of the keys asks for, conjugate "
      "gradients the root of that, and with the largest eigenvalues inverted (a preconditioner of "
      "low rank) what is left of the condition counts. Passes of a delta rule are sweeps of the "
      "dual system without a ridge: they arrive where a map fits all pairs, and circle around the "
      "solution where none does. The sweep whose first pass is the same delta rule, and which "
      "knows the ridge that the rule's step stands for, arrives everywhere.",
  };
  result.command = CommandOf(kDials, Fields(given), Fields(defaults), run);
  result.claims = CheckClaims(given, dials, results);
  report::Table table = DialTable(given, dials, results);
  SetMeta(table, SeedRange(run, kDialsSeeds), Fields(given));
  result.tables.push_back({"dials-distance", std::move(table)});
  result.tables.push_back({"dials-solver-steps", SolverSteps(given.dim, run, kDialsSeeds)});
  result.charts.push_back({"dials-steps", DialChart(given, dials, results, false)});
  result.charts.push_back({"dials-passes", DialChart(given, dials, results, true)});
  return result;
}

}  // namespace ttr::experiments
