// What follows from a recipe's text, and from sizes: no tensor is read.
#include <string>

#include "arguments.h"
#include "dims.h"
#include "layers.h"
#include "operators.h"
#include "ttr/decoder.h"
#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

template <class List, class Text>
std::string Joined(const List& list, const Text& text) {
  std::string joined = "[";
  for (const auto& entry : list) {
    if (joined.size() > 1) joined += ", ";
    joined += text(entry);
  }
  return joined + "]";
}

std::string Axes(const std::vector<Axis>& axes) {
  return Joined(axes, [](Axis axis) { return Quoted(Name(axis)); });
}

std::string Flag(bool is_true) { return is_true ? "true" : "false"; }

std::string InputText(const InputSpec& spec) {
  return "{\"name\": " + Quoted(ArgumentName(spec.name)) +
         ", \"shapes\": " + Joined(spec.shapes, Axes) + ", \"required\": " + Flag(spec.required) +
         ", \"meaning\": " + Quoted(spec.meaning) + "}";
}

std::string StateText(const StateSpec& spec) {
  return "{\"name\": " + Quoted(spec.name) + ", \"shape\": " + Axes(spec.shape) +
         ", \"counts\": " + Flag(spec.counts) + ", \"meaning\": " + Quoted(spec.meaning) + "}";
}

}  // namespace

std::vector<std::int64_t> ListOf(const Dims& dims) {
  return {dims.batch,       dims.tokens, dims.query_heads, dims.key_heads,
          dims.value_heads, dims.heads,  dims.key_dim,     dims.value_dim,
          dims.features,    dims.hidden, dims.sequences};
}

Dims DimsFrom(std::string_view op, const std::vector<std::int64_t>& sizes) {
  if (sizes.size() != 11) {
    throw Error(op, "dims", "11 numbers, as ttr::dims gives them", std::to_string(sizes.size()));
  }
  Dims dims{.batch = sizes[0],
            .tokens = sizes[1],
            .query_heads = sizes[2],
            .key_heads = sizes[3],
            .value_heads = sizes[4],
            .heads = sizes[5],
            .key_dim = sizes[6],
            .value_dim = sizes[7],
            .features = sizes[8],
            .hidden = sizes[9],
            .sequences = sizes[10]};
  CheckDims(op, dims);
  return dims;
}

void Describe(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const auto cached = FindLayer(recipe);
  const Layer& layer = cached->layer;
  const Requirements& requirements = layer.requirements();
  const std::string text = "{\"recipe\": " + Quoted(ToString(layer.recipe())) +
                           ", \"engine\": " + Quoted(layer.plan().engine) +
                           ", \"gradients\": " + Flag(layer.HasGradients()) +
                           ", \"causal\": " + Flag(layer.recipe().reading.causal) +
                           ", \"keeps_pairs\": " + Flag(cached->keeps_pairs) +
                           ", \"keeps_drafts\": " + Flag(Decoder::KeepsDrafts(layer)) +
                           ", \"window\": " + std::to_string(layer.recipe().weights.window) +
                           ", \"expansion\": " + std::to_string(layer.recipe().function.expansion) +
                           ", \"budget\": " + std::to_string(layer.recipe().optimizer.budget) +
                           ", \"inputs\": " + Joined(requirements.inputs, InputText) +
                           ", \"state\": " + Joined(requirements.state, StateText) + "}";
  Return(values, text);
}

void DimsOf(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  ByBits tensors = TakeByBits(stack);
  const auto cached = FindLayer(recipe);
  const Inputs inputs = InputViews("dims", tensors);
  Return(values, ListOf(InferDims("dims", cached->layer.requirements(), inputs)));
}

void InputNamesOf(StableIValue* values) { Return(values, InputNames()); }

void PhiDimOf(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  Dims dims;
  dims.key_dim = stack.Take<std::int64_t>();
  dims.features = stack.Take<std::int64_t>();
  Return(values, PhiDim(FindLayer(recipe)->layer.recipe(), dims));
}

void SavedBytesOf(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const auto sizes = stack.Take<std::vector<std::int64_t>>();
  const bool is_float64 = stack.Take<bool>();
  const std::size_t bytes = FindLayer(recipe)->layer.SavedBytes(
      DimsFrom("saved_bytes", sizes), is_float64 ? DType::kFloat64 : DType::kFloat32);
  Return(values, static_cast<std::int64_t>(bytes));
}

}  // namespace ttr::pytorch
