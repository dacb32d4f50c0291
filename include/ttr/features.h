/// Feature maps as an operator of their own: y = phi(x), row by row.
///
///     ttr::Function function;
///     function.features = ttr::FeatureMap::kHedgehogExp;
///     ttr::ApplyFeatures(function, {.x = k, .w = w}, phi_k);
///
/// The equation of every map stands in FeatureMaps() (zoo.h); of a Function only
/// `features`, `nu`, `feature_dim`, `max_length` and `seed` take part.
///
/// | argument   | shape           | dtype    | meaning                                            |
/// |------------|-----------------|----------|----------------------------------------------------|
/// | x          | [B, T, H, D]    | floating | rows                                               |
/// | w          | [H or 1, F, D]  | floating | W: required by t2r and hedgehog; by rfa, favor and |
/// |            |                 |          | dijiang drawn from the seed where absent; rebased: |
/// |            |                 |          | F = 1, the scale, 1 where absent                   |
/// | b          | [H or 1, F]     | floating | t2r, dijiang: bias, 0 where absent; rebased:       |
/// |            |                 |          | [H or 1, D]                                        |
/// | cu_seqlens | [N + 1]         | int64    | packed sequences, B = 1                            |
/// | positions  | [B or N]        | int64    | cosformer: the position of the first row of every  |
/// |            |                 |          | sequence; absent: 0                                |
/// | y          | [B, T, H, Dphi] | floating | phi(x)                                             |
///
/// Floating: float32, float64 or bfloat16, each by itself. Any strides but a contiguous last axis.
/// Arithmetic in double where x is float64, else in float. NaN and infinities stay in their row.
/// Bits do not depend on the number of threads.
///
/// Gradients: `dy` is that of y; those of `gradients` that are defined are written (dw and db
/// summed over all rows), shaped as what they belong to. Where a map has a corner (ReLU at 0) its
/// slope is 0. What the seed draws is a constant.
///
/// Cost a row: 2 F D flops for the maps of W x, Dphi products for the quadratic ones, one
/// exponential (or sine and cosine) a feature; backward three times that. Directions drawn from the
/// seed are drawn at every call: whoever calls often draws them once, with DrawFeatureWeights().
///
/// Errors (ttr::Error, before any work): shapes, dtypes or strides other than those above; w or b
/// given to a map that takes none; y that shares memory with an input.
#pragma once

#include <cstdint>

#include "ttr/executor.h"
#include "ttr/recipe.h"
#include "ttr/tensor.h"

namespace ttr {

struct FeatureInputs {
  TensorView x{};
  TensorView w{};
  TensorView b{};
  TensorView cu_seqlens{};
  TensorView positions{};
};

struct FeatureGradients {
  TensorView dx{};
  TensorView dw{};
  TensorView db{};
};

/// Dphi for x of length `dim`; `rows` counts those of w, 0 where it is absent.
std::int64_t FeatureLength(const Function& function, std::int64_t dim, std::int64_t rows = 0);

/// The w that a random map uses where none is given: [heads, feature_dim, dim], float64.
Tensor DrawFeatureWeights(const Function& function, std::int64_t heads, std::int64_t dim);

void ApplyFeatures(const Function& function, const FeatureInputs& inputs, const TensorView& y,
                   Executor& executor = DefaultExecutor());

void ApplyFeaturesGradient(const Function& function, const FeatureInputs& inputs,
                           const TensorView& dy, const FeatureGradients& gradients,
                           Executor& executor = DefaultExecutor());

}  // namespace ttr
