// What follows from a recipe's text, and from sizes: no number of a tensor is read.
#include <string>

#include "../names.h"
#include "../sizes.h"
#include "arguments.h"
#include "layers.h"
#include "memory.h"
#include "operators.h"

namespace ttr::pytorch {
namespace {

/// "q k v ...": names, one behind the other.
template <class Fields, class Text>
std::string Joined(const Fields& fields, const Text& text) {
  std::string names;
  for (const auto& field : fields) {
    if (!names.empty()) names += ' ';
    names += text(field.name);
  }
  return names;
}

}  // namespace

void DimsOf(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  ByBits tensors = TakeByBits(stack);
  const auto cached = FindLayer(recipe);
  const Inputs inputs = InputViews("dims", tensors);
  Return(values, RecordOf(InferDims("dims", cached->layer.requirements(), inputs)));
}

void InputNames(StableIValue* values) { Return(values, Joined(InputFields(), Keyword)); }

void SizeNames(StableIValue* values) {
  Return(values, Joined(kSizeFields, [](std::string_view name) { return std::string(name); }));
}

void MostDifferences(StableIValue* values) { Return(values, kMostDifferences); }

void SavedBytes(StableIValue* values) {
  Stack stack(values);
  const std::string recipe = stack.TakeText();
  const std::string record = stack.TakeText();
  const auto cached = FindLayer(recipe);
  const Memory memory = MemoryFrom("saved_bytes", cached->layer.recipe(), record);
  const std::size_t bytes = cached->layer.SavedBytes(memory.dims, memory.options.state);
  Return(values, static_cast<std::int64_t>(bytes));
}

}  // namespace ttr::pytorch
