#include "src/layer/tokens_of.h"

#include "src/recipe/family.h"

namespace ttr {

Inputs TokensOf(const Requirements& requirements, const Inputs& inputs, std::int64_t begin,
                std::int64_t count) {
  Inputs part = inputs;
  const std::int64_t rows = RowsPerToken(requirements.recipe);
  for (const InputSpec& spec : requirements.inputs) {
    TensorView& view = part.*spec.view;
    if (!view.defined() || spec.shapes.front().size() < 2) continue;
    const Axis axis = spec.shapes.front()[1];
    if (axis == Axis::kTokens) view = view.Slice(1, begin, count);
    if (axis == Axis::kRows) view = view.Slice(1, begin * rows, count * rows);
  }
  return part;
}

Outputs TokensOf(const Outputs& outputs, std::int64_t begin, std::int64_t count) {
  const auto at = [&](const TensorView& view) {
    return view.defined() ? view.Slice(1, begin, count) : view;
  };
  Outputs part{.y = at(outputs.y)};
  for (const ReportField& report : kReports) part.*report.view = at(outputs.*report.view);
  return part;
}

}  // namespace ttr
