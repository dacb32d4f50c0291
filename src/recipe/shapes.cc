// The shapes of what a recipe takes and carries, at given sizes.
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "src/recipe/family.h"
#include "ttr/call.h"
#include "ttr/inputs.h"

namespace ttr {
namespace {

Shape ShapeOf(const std::vector<Axis>& axes, const Recipe& recipe, const Dims& dims,
              std::int64_t pairs) {
  std::array<std::int64_t, kMaxRank> sizes{};
  for (std::size_t i = 0; i < axes.size(); ++i) sizes[i] = SizeOf(axes[i], recipe, dims, pairs);
  return Shape(std::span<const std::int64_t>(sizes).first(axes.size()));
}

}  // namespace

std::int64_t SizeOf(Axis axis, const Recipe& recipe, const Dims& dims, std::int64_t pairs) {
  switch (axis) {
    case Axis::kBatch: return dims.batch;
    case Axis::kTokens: return dims.tokens;
    case Axis::kRows: return dims.tokens * RowsPerToken(recipe);
    case Axis::kQueryHeads: return dims.query_heads;
    case Axis::kKeyHeads: return dims.key_heads;
    case Axis::kValueHeads: return dims.value_heads;
    case Axis::kHeads: return dims.heads;
    case Axis::kKeyDim: return dims.key_dim;
    case Axis::kValueDim: return dims.value_dim;
    case Axis::kPhiDim: return PhiDim(recipe, dims);
    case Axis::kFeatures: return dims.features;
    case Axis::kOne: return 1;
    case Axis::kMiniBatch: return recipe.optimizer.mini_batch;
    case Axis::kSteps: return recipe.optimizer.steps;
    case Axis::kHidden: return dims.hidden;
    case Axis::kGatedHidden: return 2 * dims.hidden;
    case Axis::kSequencesPlus1: return dims.sequences + 1;
    case Axis::kBudget: return recipe.optimizer.budget;
    case Axis::kRank: return recipe.optimizer.rank;
    case Axis::kStates: return dims.states();
    case Axis::kPairs: return pairs;
  }
  return 0;
}

Shape InputShape(const InputSpec& spec, const Recipe& recipe, const Dims& dims) {
  return ShapeOf(spec.shapes.front(), recipe, dims, dims.tokens);
}

Shape StateShape(const StateSpec& spec, const Recipe& recipe, const Dims& dims,
                 std::int64_t pairs) {
  return ShapeOf(spec.shape, recipe, dims, pairs);
}

Shape OutputShape(const Dims& dims) {
  return {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim};
}

Shape ReportShape(const ReportField& report, const Dims& dims) {
  const Shape heads = StatusShape(dims);
  if (!report.of_channels) return heads;
  return {heads[0], heads[1], heads[2], dims.key_dim * dims.value_dim};
}

bool HasReport(const Recipe& recipe, const ReportField& report) {
  const Family family = FamilyOf(recipe);
  const bool mean =
      family == Family::kKernelSmoother && recipe.function.kind == FunctionClass::kConstant;
  const bool exact = recipe.optimizer.solver == Solver::kExact && !HasBudget(recipe);
  if (report.view == &Outputs::slope) return family == Family::kLocalPolynomial;
  if (report.view == &Outputs::effective_pairs) return mean || family == Family::kLocalPolynomial;
  if (report.view == &Outputs::leverage) {
    return exact && (family == Family::kLeastSquares || family == Family::kKernelRegression);
  }
  return true;
}

Shape StatusShape(const Dims& dims) { return {dims.batch, dims.tokens, dims.output_heads()}; }

}  // namespace ttr
