#include "experiments/studies/identities.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "experiments/studies/run_parts.h"
#include "experiments/studies/statistics.h"
#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

constexpr char kIdentities[] = "identities";
// A stream of random numbers that no generator of data/streams.h has.
constexpr std::uint64_t kStream = 17;

struct Sequence {
  std::vector<double> k, v, q;
};

Sequence MakeSequence(const IdentitiesOptions& o, bool unit_keys, std::uint64_t seed) {
  CounterRandom random(seed, kStream);
  Sequence sequence;
  const auto dim = static_cast<std::size_t>(o.dim);
  const auto draw = [&](std::vector<double>& rows, bool unit) {
    double squares = 0;
    for (std::size_t i = 0; i < dim; ++i) {
      rows.push_back(random.Normal());
      squares += rows.back() * rows.back();
    }
    const double size = unit ? std::sqrt(squares) : std::sqrt(static_cast<double>(dim));
    for (std::size_t i = rows.size() - dim; i < rows.size(); ++i) rows[i] /= size;
  };
  for (std::int64_t t = 0; t < o.tokens; ++t) {
    draw(sequence.k, unit_keys);
    draw(sequence.v, false);
    draw(sequence.q, unit_keys);
  }
  return sequence;
}

std::vector<double> Output(const IdentitiesOptions& o, const std::string& recipe,
                           const ConstantGates& gates, const Sequence& sequence) {
  return StudyLayer(recipe, gates)
      .Forward({.key_dim = o.dim,
                .value_dim = o.dim,
                .k = sequence.k,
                .v = sequence.v,
                .q = sequence.q});
}

// The greatest difference, relative to the greatest output of the right side.
double Difference(const IdentitiesOptions& o, const Identity& identity, std::uint64_t seed) {
  Sequence left = MakeSequence(o, identity.unit_keys, seed);
  Sequence right = left;
  for (double& v : left.v) v *= identity.left_values;
  if (identity.right_reads_constant) {
    std::fill(right.k.begin(), right.k.end(), 1 - identity.right_gates.decay);
  }
  const std::vector<double> a = Output(o, identity.left, identity.left_gates, left);
  const std::vector<double> b = Output(o, identity.right, identity.right_gates, right);
  std::int64_t first = 0;
  if (identity.compared == Compared::kLast) first = o.tokens - 1;
  if (identity.compared == Compared::kDetermined) first = std::min(o.dim + 2, o.tokens - 1);
  double difference = 0, size = 0;
  for (auto i = static_cast<std::size_t>(first * o.dim); i < b.size(); ++i) {
    // A NaN on one side stays: no comparison with it is true.
    difference = std::fabs(a[i] - b[i]) <= difference ? difference : std::fabs(a[i] - b[i]);
    size = std::max(size, std::fabs(b[i]));
  }
  return difference / size;
}

const char* Scope(Compared compared) {
  switch (compared) {
    case Compared::kAll: return "all tokens";
    case Compared::kLast: return "last token";
    case Compared::kDetermined: return "after Dk + 2";
  }
  return "";
}

}  // namespace

std::string Name(const Identity& identity) { return identity.left + " = " + identity.right; }

OptionFields Fields(IdentitiesOptions& o) {
  return {
      {"tokens", &o.tokens, "length of the sequences"},
      {"dim", &o.dim, "length of keys and values"},
  };
}

StudyResult RunIdentities(const IdentitiesOptions& options, const StudyRun& run) {
  IdentitiesOptions defaults, given = options;
  RequireOption(given.dim >= 1 && given.dim <= 64, kIdentities, "dim", "1 to 64",
                static_cast<double>(given.dim));
  RequireOption(given.tokens >= 4 * given.dim && given.tokens <= 1024, kIdentities, "tokens",
                fmt::format("4 * dim to 1024, here at least {}", 4 * given.dim),
                static_cast<double>(given.tokens));
  const std::vector<Identity> identities = Identities(given);
  const PartResults results = RunParts(
      run, kIdentities, kIdentitySeeds, Fields(given), static_cast<std::int64_t>(identities.size()),
      [&](std::uint64_t seed, std::int64_t part) -> Numbers {
        return {Difference(given, identities[static_cast<std::size_t>(part)], seed)};
      });

  report::Table table("Identities between layers");
  table.AddText("left").AddText("right");
  table.AddReal("difference", 1, "", report::RealFormat::kScientific);
  table.AddReal("bound", 0, "", report::RealFormat::kScientific);
  table.AddText("verdict").AddText("compared").AddText("because");
  Claim all{"every identity holds to its bound", true, ""};
  std::string failed;
  for (std::size_t i = 0; i < identities.size(); ++i) {
    const Identity& identity = identities[i];
    double worst = 0;
    for (const auto& seed : results) {
      worst = seed[i].front() <= worst ? worst : seed[i].front();
    }
    const bool holds = worst <= identity.bound;
    if (!holds) failed += (failed.empty() ? "" : "; ") + Name(identity);
    all.holds = all.holds && holds;
    table.AddRow({identity.left, identity.right, worst, identity.bound,
                  holds ? "equal" : "not equal", Scope(identity.compared), identity.why});
  }
  all.evidence = all.holds
                     ? fmt::format("{} identities, {} seeds", identities.size(), results.size())
                     : "not so: " + failed;
  SetMeta(table, SeedRange(run, kIdentitySeeds), Fields(given));

  StudyResult result;
  result.name = kIdentities;
  result.title = "Identities between layers";
  result.sentences = {
      "Each line is two published layers that give the same outputs on the same sequence, with the "
      "constant gates that make them one; what differs is rounding, or the distance to a limit.",
      "They are equal because a layer is its three choices: what distinguishes two names is often "
      "a "
      "constant, a solver run to its end, or a weight that does nothing.",
  };
  result.command = CommandOf(kIdentities, Fields(given), Fields(defaults), run);
  result.claims.push_back(std::move(all));
  result.tables.push_back({"identities-differences", std::move(table)});
  return result;
}

}  // namespace ttr::experiments
