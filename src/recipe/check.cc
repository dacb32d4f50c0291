// Presence, shapes and dtypes of inputs, and the sizes that follow from them.
#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "src/core/sizes.h"
#include "src/core/view_checks.h"
#include "src/recipe/axes.h"
#include "src/recipe/family.h"
#include "ttr/error.h"
#include "ttr/inputs.h"
#include "ttr/state.h"

namespace ttr {
namespace {

bool IsPerToken(const InputSpec& spec) {
  const Axis second = spec.shapes[0].size() > 1 ? spec.shapes[0][1] : spec.shapes[0][0];
  return second == Axis::kTokens || second == Axis::kRows;
}

/// Heads of keys and values divide the memories; those of queries do, or are a multiple.
void CheckHeads(std::string_view op, const Dims& dims) {
  const auto fail = [&](std::string_view name, std::string_view must, std::int64_t given) {
    throw Error(op, std::string(name) + " heads",
                std::string(must) + " H = " + std::to_string(dims.heads), std::to_string(given));
  };
  if (dims.heads % dims.key_heads != 0) fail("k", "a divisor of", dims.key_heads);
  if (dims.heads % dims.value_heads != 0) fail("v", "a divisor of", dims.value_heads);
  if (dims.heads % dims.query_heads != 0 && dims.query_heads % dims.heads != 0) {
    fail("q", "a divisor or a multiple of", dims.query_heads);
  }
}

/// One call of InferDims.
class Checker {
 public:
  Checker(std::string_view op, const Requirements& requirements, const Inputs& inputs, Needs needs)
      : op_(op),
        requirements_(requirements),
        recipe_(requirements.recipe),
        inputs_(inputs),
        needs_(needs) {
    steps_ = RowsPerToken(recipe_);
    sizes_.Set(Axis::kOne, 1);
    sizes_.Set(Axis::kMiniBatch, recipe_.optimizer.mini_batch);
    sizes_.Set(Axis::kSteps, recipe_.optimizer.steps);
  }

  Dims Check(const State* state) {
    CheckPresence();
    for (const InputField& field : InputFields()) {
      if (!(inputs_.*field.view).defined()) continue;
      if (const InputSpec* spec = Find(field.view)) CheckOne(*spec);
    }
    if (needs_ == Needs::kRead && state != nullptr) TakeSizesOf(*state);
    Dims dims = Derive();
    CheckHeads(op_, dims);
    CheckRest(dims);
    return dims;
  }

 private:
  const InputSpec* Find(TensorView Inputs::* view) const {
    for (const InputSpec& spec : requirements_.inputs) {
      if (spec.view == view) return &spec;
    }
    return nullptr;
  }

  bool IsNeeded(const InputSpec& spec) const {
    if (!spec.required) return false;
    switch (needs_) {
      case Needs::kBoth: return true;
      case Needs::kWrite: return !spec.of_query && spec.name != "bonus";
      case Needs::kRead:
        return IsPerToken(spec) ? spec.of_query : spec.name != "bonus" && spec.name != "a";
    }
    return true;
  }

  void CheckPresence() const {
    for (const InputField& field : InputFields()) {
      const TensorView& view = inputs_.*field.view;
      const InputSpec* spec = Find(field.view);
      if (spec == nullptr) {
        if (view.defined()) {
          throw Error(op_, field.name, "absent, for " + ToString(recipe_) + " does not take it",
                      ShapeText(view.shape()));
        }
        continue;
      }
      if (!view.defined() && IsNeeded(*spec)) {
        throw Error(op_, field.name, AxesText(spec->shapes[0]), "absent");
      }
      const bool unread = needs_ == Needs::kRead && !spec->of_query && field.name != "cu_seqlens" &&
                          IsPerToken(*spec);
      if (view.defined() && unread) {
        throw Error(op_, field.name, "absent where nothing is written", ShapeText(view.shape()));
      }
    }
  }

  // The sizes bound so far, and behind them what the other inputs say, so that an error names all
  // that is known. Heads without a word of any gate are those of keys and values.
  AxisSizes LikelySizes(const InputSpec& failing) const {
    AxisSizes sizes = sizes_;
    for (const InputSpec& spec : requirements_.inputs) {
      const TensorView& view = inputs_.*spec.view;
      const std::vector<Axis>& axes = spec.shapes.front();
      if (spec.view == failing.view || static_cast<int>(axes.size()) != view.rank()) continue;
      for (int i = 0; i < view.rank(); ++i) {
        const Axis axis = axes[static_cast<std::size_t>(i)];
        if (!sizes.Known(axis) && view.size(i) > 0) sizes.Set(axis, view.size(i));
      }
    }
    const std::int64_t heads =
        std::max(sizes.Or(Axis::kKeyHeads, 0), sizes.Or(Axis::kValueHeads, 0));
    if (!sizes.Known(Axis::kHeads) && heads > 0) sizes.Set(Axis::kHeads, heads);
    return sizes;
  }

  [[noreturn]] void FailShape(const InputSpec& spec, const TensorView& view) const {
    const AxisSizes sizes = LikelySizes(spec);
    std::string required;
    for (const std::vector<Axis>& axes : spec.shapes) {
      if (!required.empty()) required += " or ";
      required += AxesText(axes) + " = " + sizes.Text(axes, view.shape());
    }
    throw Error(op_, spec.name, required, ShapeText(view.shape()));
  }

  void CheckOne(const InputSpec& spec) {
    const TensorView& view = inputs_.*spec.view;
    const bool is_integer = spec.name == "cu_seqlens";
    if (is_integer ? view.dtype() != DType::kInt64 : !IsFloating(view.dtype())) {
      throw Error(op_, spec.name, is_integer ? "int64" : "float32, float64, bfloat16 or float16",
                  Name(view.dtype()));
    }
    const auto axes = std::find_if(
        spec.shapes.begin(), spec.shapes.end(),
        [&](const std::vector<Axis>& a) { return static_cast<int>(a.size()) == view.rank(); });
    if (axes == spec.shapes.end()) FailShape(spec, view);
    for (int i = 0; i < view.rank(); ++i) {
      if (!Bind((*axes)[static_cast<std::size_t>(i)], view.size(i))) FailShape(spec, view);
    }
    if (is_integer && view.size(0) < 2) {
      throw Error(op_, spec.name, "[N+1] with N >= 1", ShapeText(view.shape()));
    }
    CheckRows(op_, spec.name, view);
    CheckAligned(op_, spec.name, view);
  }

  // A size of an axis is what the first input says; it may then not change.
  bool Bind(Axis axis, std::int64_t size) {
    if (axis == Axis::kRows) {
      if (size % steps_ != 0) return false;
      return Bind(Axis::kTokens, size / steps_) && sizes_.Bind(axis, size);
    }
    const bool may_be_empty = axis == Axis::kBatch || axis == Axis::kTokens ||
                              axis == Axis::kSequencesPlus1 || axis == Axis::kPairs;
    if (size < (may_be_empty ? 0 : 1)) return false;
    if (axis == Axis::kTokens) sizes_.Set(Axis::kRows, Product({size, steps_}));
    return sizes_.Bind(axis, size);
  }

  // Reading has neither values nor gates: their sizes are those of the memory.
  void TakeSizesOf(const State& state) {
    for (const StateSpec& spec : requirements_.state) {
      const TensorView view = state.Get(spec.name);
      if (!view.defined() || view.rank() != static_cast<int>(spec.shape.size())) continue;
      for (int i = 0; i < view.rank(); ++i) {
        const Axis axis = spec.shape[static_cast<std::size_t>(i)];
        const bool lacking = axis == Axis::kHeads || axis == Axis::kValueDim;
        if (lacking && !sizes_.Known(axis)) sizes_.Set(axis, view.size(i));
      }
    }
  }

  Dims Derive() const {
    Dims dims;
    dims.batch = sizes_.Or(Axis::kBatch, 1);
    dims.tokens = sizes_.Or(Axis::kTokens, 0);
    const std::int64_t key_heads = sizes_.Or(Axis::kKeyHeads, 1);
    const std::int64_t value_heads = sizes_.Or(Axis::kValueHeads, 1);
    std::int64_t heads = std::max(key_heads, value_heads);
    if (needs_ == Needs::kRead) heads = sizes_.Or(Axis::kQueryHeads, 1);
    dims.heads = sizes_.Or(Axis::kHeads, heads);
    dims.key_heads = sizes_.Or(Axis::kKeyHeads, dims.heads);
    dims.value_heads = sizes_.Or(Axis::kValueHeads, dims.heads);
    dims.query_heads = sizes_.Or(Axis::kQueryHeads, dims.heads);
    dims.value_dim = sizes_.Or(Axis::kValueDim, 1);
    const bool keyless = FamilyOf(recipe_) == Family::kGatedVector;
    dims.key_dim = keyless ? dims.value_dim : sizes_.Or(Axis::kKeyDim, 1);
    dims.features = sizes_.Or(Axis::kFeatures, 0);
    const bool hidden = FamilyOf(recipe_) == Family::kNetwork && recipe_.function.depth > 1;
    dims.hidden = hidden ? Product({recipe_.function.expansion, dims.key_dim}) : 0;
    const std::int64_t bounds = sizes_.Or(Axis::kSequencesPlus1, 1);
    dims.sequences = bounds - 1;
    return dims;
  }

  void CheckRest(const Dims& dims) const {
    const bool adds_input = FamilyOf(recipe_) == Family::kNetwork && recipe_.function.residual;
    if (adds_input && needs_ != Needs::kRead && dims.value_dim != dims.key_dim) {
      throw Error(op_, "v",
                  "as long as k under residual: true, Dv = Dk = " + std::to_string(dims.key_dim),
                  "Dv = " + std::to_string(dims.value_dim));
    }
    // Directions that are drawn are as many as the recipe says.
    const Function& function = recipe_.function;
    const TensorView& shifts = inputs_.features_b;
    if (IsRandom(function.features) && !inputs_.features_w.defined() && shifts.defined() &&
        dims.features != function.feature_dim) {
      throw Error(op_, "features.b",
                  "[H,F] with F = feature_dim = " + std::to_string(function.feature_dim) +
                      " where features.w is absent",
                  ShapeText(shifts.shape()));
    }
  }

  std::string_view op_;
  const Requirements& requirements_;
  const Recipe& recipe_;
  const Inputs& inputs_;
  Needs needs_;
  std::int64_t steps_ = 1;
  AxisSizes sizes_;
};

}  // namespace

Dims InferDims(std::string_view op, const Requirements& requirements, const Inputs& inputs,
               Needs needs, const State* state) {
  return Checker(op, requirements, inputs, needs).Check(state);
}

void CheckSequences(std::string_view op, const Dims& dims, const Inputs& inputs) {
  const TensorView& bounds = inputs.cu_seqlens;
  if (!bounds.defined()) return;
  if (dims.batch != 1) {
    throw Error(op, "B", "1 beside cu_seqlens", std::to_string(dims.batch));
  }
  const std::int64_t stride = bounds.stride(0);
  const auto* values = bounds.as<const std::int64_t>();
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < bounds.size(0); ++i) {
    const std::int64_t value = values[i * stride];
    const bool last = i + 1 == bounds.size(0);
    if ((i == 0 && value != 0) || value < before || (last && value != dims.tokens)) {
      throw Error(op, "cu_seqlens",
                  "from 0 to T = " + std::to_string(dims.tokens) + " without falling",
                  std::to_string(value) + " at " + std::to_string(i));
    }
    before = value;
  }
}

Dims CheckInputs(std::string_view op, const Requirements& requirements, const Inputs& inputs,
                 Needs needs, const State* state) {
  const Dims dims = InferDims(op, requirements, inputs, needs, state);
  CheckSequences(op, dims, inputs);
  return dims;
}

void CheckDims(std::string_view op, const Dims& dims) {
  // No memory holds more.
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  const auto check = [&](std::string_view name, std::int64_t size, std::int64_t least) {
    if (size >= least && size <= kMost) return;
    throw Error(op, name, "from " + std::to_string(least) + " to 2^40", std::to_string(size));
  };
  check("B", dims.batch, 0);
  check("T", dims.tokens, 0);
  check("N", dims.sequences, 0);
  check("H", dims.heads, 1);
  check("Hq", dims.query_heads, 1);
  check("Hk", dims.key_heads, 1);
  check("Hv", dims.value_heads, 1);
  check("Dk", dims.key_dim, 1);
  check("Dv", dims.value_dim, 1);
  check("F", dims.features, 0);
  check("hidden width", dims.hidden, 0);
  CheckHeads(op, dims);
}

}  // namespace ttr
