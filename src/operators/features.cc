// Feature maps as recipes name them, done by the row-wise engine.

#include "ttr/features.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "src/core/view_checks.h"
#include "src/engines/rows/features.h"
#include "src/operators/check.h"
#include "src/operators/feature_options.h"
#include "src/recipe/family.h"
#include "src/recipe/feature_maps.h"
#include "ttr/error.h"

namespace ttr {
namespace {

using operators::Named;

bool NeedsWeights(FeatureMap map) {
  return map == FeatureMap::kT2r || map == FeatureMap::kHedgehogExp ||
         map == FeatureMap::kHedgehogSoftmax;
}

bool TakesBias(FeatureMap map) {
  return map == FeatureMap::kT2r || map == FeatureMap::kDijiang || map == FeatureMap::kRebased;
}

/// One call, checked, as the engine takes it.
struct Checked {
  rows::FeatureOptions options;
  rows::FeatureCall call;
  Shape phi_shape;
  Tensor drawn;
};

void CheckNumber(std::string_view op, std::string_view name, std::int64_t number) {
  if (number < 1) throw Error(op, name, "1 or more", std::to_string(number));
}

Checked Check(std::string_view op, const Function& function, const FeatureInputs& in) {
  CheckNumber(op, "nu", function.nu);
  CheckNumber(op, "feature_dim", function.feature_dim);
  CheckNumber(op, "max_length", function.max_length);
  const FeatureMap map = function.features;
  operators::CheckRows(op, {"x", in.x}, "[B,T,H,D]");
  const std::int64_t batch = in.x.size(0), tokens = in.x.size(1);
  const std::int64_t heads = in.x.size(2), dim = in.x.size(3);
  const bool rebased = map == FeatureMap::kRebased;

  Checked checked;
  checked.options = FeatureOptionsOf(function);
  checked.call.x = in.x;
  std::int64_t features = rebased ? 1 : function.feature_dim;
  if (NeedsWeights(map) || IsRandom(map) || rebased) {
    if (in.w.defined()) {
      if (!rebased && in.w.rank() == 3 && in.w.size(1) > 0) features = in.w.size(1);
      operators::CheckParameter(op, {"w", in.w}, rebased ? "[H or 1,1,D]" : "[H or 1,F,D]",
                                {heads, features, dim});
      checked.call.w = in.w;
    } else if (NeedsWeights(map)) {
      throw Error(op, "w", "[H or 1,F,D]", "absent");
    } else if (IsRandom(map)) {
      checked.drawn = DrawFeatureWeights(function, heads, dim);
      checked.call.w = checked.drawn.view();
    }
  } else {
    operators::CheckAbsent(op, {"w", in.w}, "this map takes none");
  }
  if (!TakesBias(map)) {
    operators::CheckAbsent(op, {"b", in.b}, "this map takes none");
  } else if (in.b.defined()) {
    operators::CheckParameter(op, {"b", in.b}, rebased ? "[H or 1,D]" : "[H or 1,F]",
                              {heads, rebased ? dim : features});
    checked.call.b = in.b;
  }
  checked.call.cu_seqlens = operators::CheckSequences(op, in.cu_seqlens, batch, tokens);
  if (in.positions.defined()) {
    const std::int64_t sequences = in.cu_seqlens.defined() ? in.cu_seqlens.size(0) - 1 : batch;
    const TensorView& positions = in.positions;
    CheckAligned(op, "positions", positions);
    if (positions.dtype() != DType::kInt64 || !(positions.shape() == Shape{sequences}) ||
        !positions.contiguous()) {
      throw Error(op, "positions", "contiguous int64 [B or N] = " + Shape{sequences}.ToString(),
                  std::string(Name(positions.dtype())) + " " + positions.shape().ToString());
    }
    checked.call.positions = {positions.as<const std::int64_t>(),
                              static_cast<std::size_t>(sequences)};
  }
  checked.phi_shape = {batch, tokens, heads, rows::FeatureDim(checked.options, dim, features)};
  return checked;
}

}  // namespace

std::int64_t FeatureLength(const Function& function, std::int64_t dim, std::int64_t rows) {
  return FeatureDim(function, dim, rows);
}

Tensor DrawFeatureWeights(const Function& function, std::int64_t heads, std::int64_t dim) {
  constexpr std::string_view kOp = "draw_feature_weights";
  if (!IsRandom(function.features)) {
    throw Error(kOp, "features", "rfa, favor or dijiang", "a map that draws nothing");
  }
  CheckNumber(kOp, "feature_dim", function.feature_dim);
  CheckNumber(kOp, "heads", heads);
  CheckNumber(kOp, "dim", dim);
  Tensor w(DType::kFloat64, {heads, function.feature_dim, dim});
  double* to = w.as<double>().data();
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::vector<double> head = DrawFeatureRows(function, dim, static_cast<std::uint64_t>(h));
    to = std::copy(head.begin(), head.end(), to);
  }
  return w;
}

void ApplyFeatures(const Function& function, const FeatureInputs& inputs, const TensorView& y,
                   Executor& executor) {
  constexpr std::string_view kOp = "apply_features";
  const Checked checked = Check(kOp, function, inputs);
  operators::CheckTensor(kOp, {"y", y}, "[B,T,H,Dphi]", checked.phi_shape);
  operators::CheckApart(kOp, {"y", y}, {{"x", inputs.x}, {"w", inputs.w}, {"b", inputs.b}});
  rows::MapFeatures(checked.options, checked.call, y, executor);
}

void ApplyFeaturesGradient(const Function& function, const FeatureInputs& inputs,
                           const TensorView& dy, const FeatureGradients& gradients,
                           Executor& executor) {
  constexpr std::string_view kOp = "apply_features_gradient";
  const Checked checked = Check(kOp, function, inputs);
  operators::CheckTensor(kOp, {"dy", dy}, "[B,T,H,Dphi]", checked.phi_shape);
  struct Pair {
    std::string_view name;
    const TensorView& gradient;
    const TensorView& input;
  };
  const Pair pairs[] = {{"dx", gradients.dx, inputs.x},
                        {"dw", gradients.dw, inputs.w},
                        {"db", gradients.db, inputs.b}};
  for (const Pair& pair : pairs) {
    if (!pair.gradient.defined()) continue;
    if (!pair.input.defined()) {
      operators::CheckAbsent(kOp, {pair.name, pair.gradient}, "its input is absent");
    }
    operators::CheckTensor(kOp, {pair.name, pair.gradient}, "as its input", pair.input.shape());
    operators::CheckApart(kOp, {pair.name, pair.gradient},
                          {{"x", inputs.x}, {"w", inputs.w}, {"b", inputs.b}, {"dy", dy}});
  }
  operators::CheckApart(kOp, {"dx", gradients.dx}, {{"dw", gradients.dw}, {"db", gradients.db}});
  operators::CheckApart(kOp, {"dw", gradients.dw}, {{"db", gradients.db}});
  rows::MapFeaturesGradient(checked.options, checked.call, dy,
                            {gradients.dx, gradients.dw, gradients.db}, executor);
}

}  // namespace ttr
