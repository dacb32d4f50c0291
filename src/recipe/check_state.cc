// Names, shapes and dtypes of a given state, and the counts in it.
#include <algorithm>
#include <string>

#include "src/core/view_checks.h"
#include "src/recipe/axes.h"
#include "src/recipe/family.h"
#include "src/recipe/pair_entries.h"
#include "ttr/error.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {
namespace {

// Names that the state of a recipe may have, for the error about another one.
std::string NamesOf(const std::vector<StateSpec>& specs) {
  std::string names;
  for (const StateSpec& spec : specs) names += (names.empty() ? "" : ", ") + spec.name;
  return names.empty() ? "empty (nothing is carried)" : "one of " + names;
}

AxisSizes SizesOf(const Recipe& recipe, const Dims& dims) {
  AxisSizes sizes;
  for (const Axis axis :
       {Axis::kStates, Axis::kHeads, Axis::kPhiDim, Axis::kKeyDim, Axis::kValueDim, Axis::kHidden,
        Axis::kGatedHidden, Axis::kBudget, Axis::kRank}) {
    sizes.Set(axis, SizeOf(axis, recipe, dims));
  }
  return sizes;
}

std::string_view DTypesOf(const StateSpec& spec) {
  if (spec.counts()) return "int64";
  switch (spec.role) {
    case EntryRole::kWrittenMatrix:
    case EntryRole::kPairs: return "float32, float64, bfloat16 or float16";
    default: return "float32 or float64";
  }
}

bool MayBe(const StateSpec& spec, DType dtype) {
  if (spec.counts() || dtype == DType::kInt64) return spec.counts() && dtype == DType::kInt64;
  if (!IsNarrow(dtype)) return IsFloating(dtype);
  return spec.role == EntryRole::kWrittenMatrix || spec.role == EntryRole::kPairs;
}

void CheckEntry(std::string_view op, const StateSpec& spec, const TensorView& view,
                AxisSizes& sizes) {
  if (!MayBe(spec, view.dtype())) {
    throw Error(op, spec.name, DTypesOf(spec), Name(view.dtype()));
  }
  std::span<const Axis> axes = spec.shape;
  const int rank = static_cast<int>(axes.size());
  if (spec.role == EntryRole::kParameters && view.rank() == rank - 1) axes = axes.subspan(1);
  bool fits = view.rank() == static_cast<int>(axes.size());
  for (int i = 0; fits && i < view.rank(); ++i) {
    fits = view.size(i) >= 0 && sizes.Bind(axes[static_cast<std::size_t>(i)], view.size(i));
  }
  if (!fits) {
    throw Error(op, spec.name, AxesText(axes) + " = " + sizes.Text(axes, view.shape()),
                ShapeText(view.shape()));
  }
  if (!spec.counts()) CheckRows(op, spec.name, view);
  CheckAligned(op, spec.name, view);
}

// The entry without which another one means nothing; null where there is none.
const StateSpec* NeededBy(const StateSpec& spec, const Requirements& requirements) {
  if (spec.role == EntryRole::kMiniBatch) return SpecOf(requirements, EntryRole::kPosition);
  const StateSpec* const keys = SpecOf(requirements, EntryRole::kPairs);
  return keys == nullptr || &spec != keys ? keys : keys + 1;  // values follow keys
}

// The most that a count can be.
std::int64_t MostOf(const StateSpec& spec, const Recipe& recipe, const AxisSizes& sizes) {
  if (spec.role == EntryRole::kPairCount) return sizes.Or(Axis::kPairs, 0);
  if (spec.role == EntryRole::kKeyCount) return recipe.optimizer.budget;
  const bool network = FamilyOf(recipe) == Family::kNetwork;
  return network ? recipe.optimizer.mini_batch - 1 : std::int64_t{1} << 53;
}

// A tensor [N, H] of numbers in 0 .. most: they say how much of other memory is read.
void CheckCounts(std::string_view op, std::string_view name, const TensorView& counts,
                 std::int64_t most) {
  for (std::int64_t n = 0; n < counts.size(0); ++n) {
    for (std::int64_t h = 0; h < counts.size(1); ++h) {
      const std::int64_t count =
          counts.as<const std::int64_t>()[n * counts.stride(0) + h * counts.stride(1)];
      if (count >= 0 && count <= most) continue;
      throw Error(
          op, name, "a whole number from 0 to " + std::to_string(most),
          std::to_string(count) + " at [" + std::to_string(n) + "," + std::to_string(h) + "]");
    }
  }
}

}  // namespace

void CheckState(std::string_view op, const Requirements& requirements, const Dims& dims,
                const State& state) {
  if (state.empty()) return;
  const Recipe& recipe = requirements.recipe;
  const std::vector<StateSpec>& specs = requirements.state;
  AxisSizes sizes = SizesOf(recipe, dims);
  for (const State::Entry& entry : state.entries()) {
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const StateSpec& candidate) {
      return candidate.name == entry.name;
    });
    if (spec == specs.end()) throw Error(op, "state", NamesOf(specs), "'" + entry.name + "'");
    if (!entry.view.defined()) throw Error(op, entry.name, "a tensor", "absent");
    CheckEntry(op, *spec, entry.view, sizes);
  }

  for (const StateSpec& spec : specs) {
    if (HasBudget(recipe) && !state.Get(spec.name).defined()) {
      throw Error(op, spec.name, "given with " + state.entries().front().name, "absent");
    }
    const StateSpec* const needed = NeededBy(spec, requirements);
    if (needed == nullptr || state.Get(needed->name).defined()) continue;
    if (state.Get(spec.name).defined()) {
      throw Error(op, needed->name, "given with " + spec.name, "absent");
    }
  }
  for (const StateSpec& spec : specs) {
    const TensorView counts = spec.counts() ? state.Get(spec.name) : TensorView();
    if (counts.defined()) CheckCounts(op, spec.name, counts, MostOf(spec, recipe, sizes));
  }
}

}  // namespace ttr
