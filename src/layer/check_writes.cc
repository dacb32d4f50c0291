#include "src/layer/check_writes.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

#include "src/core/view_checks.h"
#include "src/layer/memory_ranges.h"
#include "src/recipe/pair_entries.h"
#include "ttr/error.h"

namespace ttr {
namespace {

constexpr std::string_view kDecoderMemory = "the decoder's memory";

std::string Describe(const TensorView& view) {
  if (!view.defined()) return "absent";
  return std::string(Name(view.dtype())) + " " + view.shape().ToString();
}

void CheckShape(std::string_view op, std::string_view name, const TensorView& view,
                const Shape& shape) {
  if (!(view.shape() == shape)) throw Error(op, name, shape.ToString(), Describe(view));
}

/// Checks a report on every output (its status, say), if it is asked for.
void CheckReport(std::string_view op, std::string_view name, const TensorView& view, DType dtype,
                 const Shape& shape) {
  if (!view.defined()) return;
  if (view.dtype() != dtype) {
    throw Error(op, name, std::string(Name(dtype)) + " " + shape.ToString(), Describe(view));
  }
  CheckShape(op, name, view, shape);
  CheckAligned(op, name, view);
}

void CheckOutputShapes(std::string_view op, const Dims& dims, const Outputs& outputs) {
  const Shape shape = OutputShape(dims);
  if (!outputs.y.defined() || !IsFloating(outputs.y.dtype())) {
    throw Error(op, "y",
                "float32, float64, bfloat16 or float16 [B,T,max(H,Hq),Dv] = " + shape.ToString(),
                Describe(outputs.y));
  }
  CheckShape(op, "y", outputs.y, shape);
  CheckRows(op, "y", outputs.y);
  CheckAligned(op, "y", outputs.y);
  for (const ReportField& report : kReports) {
    CheckReport(op, report.name, outputs.*report.view, report.dtype, ReportShape(report, dims));
  }
}

void WriteOutputs(const Outputs& outputs, MemoryRanges& ranges) {
  ranges.Write("", "y", outputs.y);
  for (const ReportField& report : kReports) {
    ranges.Write("", report.name, outputs.*report.view);
  }
}

const StateSpec* FindSpec(const Requirements& requirements, std::string_view name) {
  for (const StateSpec& spec : requirements.state) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

/// An entry of dstate or dinitial, called `d` + its name: of the shape that the state's has, or
/// where that grows, of its rank.
void CheckStateGradient(std::string_view op, const Requirements& requirements, const Dims& dims,
                        const State& initial, const State::Entry& entry, bool of_initial) {
  const std::string name = "d" + entry.name;
  const StateSpec* const spec = FindSpec(requirements, entry.name);
  if (spec == nullptr || (spec->counts() && of_initial)) {
    throw Error(op, name,
                spec == nullptr ? "the gradient of an entry of the state"
                                : "absent, as a count has no gradient",
                "'" + entry.name + "'");
  }
  const TensorView& view = entry.view;
  if (spec->counts()) return;  // a caller may hand it over with the rest; nobody reads it
  const DType dtype = view.dtype();
  const bool of_pairs = spec->role == EntryRole::kPairs, narrow = IsNarrow(dtype);
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64 && !(of_pairs && narrow)) {
    throw Error(op, name, of_pairs ? "float32, float64, bfloat16 or float16" : "float32 or float64",
                Describe(view));
  }
  CheckAligned(op, name, view);
  const TensorView start = initial.Get(entry.name);
  if (of_initial && start.defined()) return CheckShape(op, name, view, start.shape());
  const std::int64_t pairs =
      HasPairRows(*spec) && !of_initial && view.rank() > 1 ? view.size(1) : 0;
  CheckShape(op, name, view, StateShape(*spec, requirements.recipe, dims, pairs));
}

std::string Gigabytes(double bytes) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.3g GB", bytes / 1e9);
  return text;
}

}  // namespace

void CheckOutputs(std::string_view op, const Dims& dims, const Inputs& inputs,
                  const CallMemory& memory, const Outputs& outputs, const CallOptions& options,
                  Needs needs) {
  if (needs != Needs::kWrite) CheckOutputShapes(op, dims, outputs);
  MemoryRanges ranges(op);
  ranges.Read(inputs);
  WriteOutputs(outputs, ranges);
  if (memory.initial != nullptr) ranges.Read("initial ", *memory.initial);
  if (needs == Needs::kRead) {
    ranges.Read("", memory.state);
    ranges.Read(kDecoderMemory, memory.before);
    ranges.Read(kDecoderMemory, memory.behind);
  } else {
    ranges.Write("", memory.state);
    ranges.Write(kDecoderMemory, memory.before);
    ranges.Write(kDecoderMemory, memory.behind);
  }
  ranges.Write("scratch", options.scratch);
  ranges.Write("saved", options.saved);
  ranges.Check();
}

void CheckGradients(std::string_view op, const Requirements& requirements, const Dims& dims,
                    const Inputs& inputs, const State& initial, const GradientViews& gradients,
                    const CallOptions& options) {
  const TensorView& dy = gradients.dy;
  const Shape shape = OutputShape(dims);
  if (!dy.defined() || !IsFloating(dy.dtype())) {
    throw Error(op, "dy",
                "float32, float64, bfloat16 or float16 [B,T,max(H,Hq),Dv] = " + shape.ToString(),
                Describe(dy));
  }
  CheckShape(op, "dy", dy, shape);
  CheckAligned(op, "dy", dy);
  for (const State::Entry& entry : gradients.dstate.entries()) {
    CheckStateGradient(op, requirements, dims, initial, entry, false);
  }
  for (const State::Entry& entry : gradients.dinitial.entries()) {
    CheckStateGradient(op, requirements, dims, initial, entry, true);
    CheckRows(op, "d" + entry.name, entry.view);
  }
  MemoryRanges ranges(op);
  for (const InputField& field : InputFields()) {
    const TensorView& gradient = gradients.dinputs.*field.view;
    if (!gradient.defined()) continue;
    const std::string name = "d" + std::string(field.name);
    const TensorView& input = inputs.*field.view;
    if (!input.defined() || !IsFloating(input.dtype())) {
      throw Error(op, name, "absent, as " + std::string(field.name) + " has no gradient here",
                  Describe(gradient));
    }
    if (!IsFloating(gradient.dtype())) {
      throw Error(op, name, "a floating-point tensor", Describe(gradient));
    }
    CheckShape(op, name, gradient, input.shape());
    CheckRows(op, name, gradient);
    CheckAligned(op, name, gradient);
    ranges.Write("d", field.name, gradient);
  }
  ranges.Write("d", gradients.dinitial);
  ranges.Read(inputs);
  ranges.Read("", initial);
  ranges.Read("", "dy", dy);
  ranges.Read("dstate ", gradients.dstate);
  ranges.Write("scratch", options.scratch);
  ranges.Write("saved", options.saved);  // read, and nothing else may be written there
  ranges.Check();
}

void CheckFits(std::string_view op, const Requirements& requirements, const Dims& dims,
               const State& state, const Engine* engine, bool backward) {
  static const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  const Recipe& recipe = requirements.recipe;
  std::int64_t pairs = dims.tokens + PairCapacity(requirements, state);
  if (recipe.weights.window > 0) pairs = std::min(pairs, 2 * recipe.weights.window);
  double numbers = 0;
  for (const StateSpec& spec : requirements.state) {
    double size = 1;
    for (const Axis axis : spec.shape) {
      size *= static_cast<double>(SizeOf(axis, recipe, dims, pairs));
    }
    numbers += size;
  }
  const double needed =
      4 * numbers + (engine != nullptr ? engine->WorkBytes(recipe, dims, pairs, backward) : 0);
  if (needed <= memory) return;
  throw Error(op,
              "what this recipe forms at Dk = " + std::to_string(dims.key_dim) +
                  ", Dv = " + std::to_string(dims.value_dim) + " and " +
                  std::to_string(dims.tokens) + " tokens",
              "at most the " + Gigabytes(memory) + " of memory here", Gigabytes(needed));
}

}  // namespace ttr
