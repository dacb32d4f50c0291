/// Feature maps: phi(x) for every row x of a tensor, and their gradients.
///
/// W = w (F rows of length d), b a bias of length F, both where the map has them; t the position of
/// a row, counted from `position`.
///
/// | map              | phi(x)                                                 | length           |
/// |------------------|--------------------------------------------------------|------------------|
/// | kNone            | x                                                      | d                |
/// | kElu1            | x + 1 where x > 0, else exp(x)                         | d                |
/// | kRelu            | max(x, 0)                                              | d                |
/// | kCosformer       | [relu(x) cos(pi t / 2m), relu(x) sin(pi t / 2m)]       | 2d               |
/// | kDpfp            | r (.) roll(r, j), j = 1 .. nu, r = [relu(x), relu(-x)] | 2 d nu           |
/// | kT2r             | relu(W x + b)                                          | F                |
/// | kHedgehogExp     | [exp(W x), exp(-W x)]                                  | 2F               |
/// | kHedgehogSoftmax | [softmax(W x), softmax(-W x)]                          | 2F               |
/// | kTaylor2         | [1, x / d^(1/4), power2(x) / sqrt(2d)]                 | 1 + d + d(d+1)/2 |
/// | kRebased         | power2(w (.) (x - mean) / sqrt(variance + 1e-5) + b)   | d(d+1)/2         |
/// | kRfa             | [sin(W x), cos(W x)] / sqrt(F)                         | 2F               |
/// | kFavor           | exp(W x - |x|^2 / 2) / sqrt(F)                         | F                |
/// | kDijiang         | exp(W x + b)                                           | F                |
/// | kPower2          | x_i^2 and sqrt(2) x_i x_j, i < j, row by row           | d(d+1)/2         |
///
/// (For kRebased w and b have one row of length d; 1 and 0 where absent.)
///
/// Arithmetic in double where x is float64, else in float. A row depends on its own x alone, NaN
/// and infinities included. The number of threads changes no bit: gradients of w and b are
/// summed over groups of 1024 tokens, and the groups in order. The caller validates shapes and
/// dtypes.
#pragma once

#include <cstdint>
#include <span>

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::rows {

enum class Map : std::uint8_t {
  kNone,
  kElu1,
  kRelu,
  kCosformer,
  kDpfp,
  kT2r,
  kHedgehogExp,
  kHedgehogSoftmax,
  kTaylor2,
  kRebased,
  kRfa,
  kFavor,
  kDijiang,
  kPower2,
};

struct FeatureOptions {
  Map map = Map::kNone;
  std::int64_t nu = 1;             ///< kDpfp: number of rolls
  std::int64_t max_length = 4096;  ///< kCosformer: m
};

/// The length of phi(x) for x of length `dim` and `features` = F rows of w.
constexpr std::int64_t FeatureDim(const FeatureOptions& options, std::int64_t dim,
                                  std::int64_t features) {
  const std::int64_t products = dim * (dim + 1) / 2;
  switch (options.map) {
    case Map::kNone:
    case Map::kElu1:
    case Map::kRelu: return dim;
    case Map::kCosformer: return 2 * dim;
    case Map::kDpfp: return 2 * dim * options.nu;
    case Map::kTaylor2: return 1 + dim + products;
    case Map::kRebased:
    case Map::kPower2: return products;
    case Map::kHedgehogExp:
    case Map::kHedgehogSoftmax:
    case Map::kRfa: return 2 * features;
    case Map::kT2r:
    case Map::kFavor:
    case Map::kDijiang: return features;
  }
  return dim;
}

struct FeatureCall {
  TensorView x;                              ///< [B, T, H, d]
  TensorView w;                              ///< [H, F, d] or [1, F, d] (one for all heads)
  TensorView b;                              ///< [H, F] or [1, F]
  std::span<const std::int64_t> cu_seqlens;  ///< where positions start anew; empty: nowhere
  std::span<const std::int64_t> positions;   ///< of every sequence's first row; empty: 0
};

/// Bytes of scratch that MapFeatures() takes at the most, for rows of `dim` numbers that become
/// `phi_dim`.
std::size_t FeatureScratchBytes(std::int64_t dim, std::int64_t phi_dim, int threads);

/// `scratch` may be empty, and then it is allocated.
void MapFeatures(const FeatureOptions& options, const FeatureCall& call, const TensorView& y,
                 Executor& executor, std::span<std::byte> scratch = {});

/// Written are those of dx (as x), dw (as w), db (as b) that are defined.
struct FeatureGradients {
  TensorView dx, dw, db;
};

void MapFeaturesGradient(const FeatureOptions& options, const FeatureCall& call,
                         const TensorView& dy, const FeatureGradients& gradients,
                         Executor& executor);

/// The SIMD target that the kernels themselves report they were compiled for, as chosen now.
const char* KernelTarget();

}  // namespace ttr::rows
