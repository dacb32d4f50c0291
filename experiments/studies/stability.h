/// Stability: the norm of a layer's output over t, for keys that are correlated and values that
/// follow from them, beside the paper's bound for least squares
///
///     |y_t| <= |q_t| sum_{i<=t} |v_i| |k_i| / lambda_min(K_t^T K_t)
///
/// (which is infinite while t < Dk). Taking K^T K for the identity loses the division.
///
///     k_t = Sigma^(1/2) z_t / sqrt(Dk),  Sigma = (1 - rho) I + rho 1 1^T,  z_t ~ N(0, I)
///     v_t = W k_t + noise z'_t / sqrt(Dk),  W_ij ~ N(0, 1 / Dk),  q_t of the same law as k_t
///
/// And that of the recursion itself (stability_streams.h): the engine and the textbook's update of
/// an inverse, both forgetting, over a long stream.
///
/// Source: Wang, Shi, Fox, "Test-time regression" (2025), appendix "Bounding the norm of a linear
/// regression layer".
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

struct StabilityOptions {
  std::int64_t tokens = 1024;
  std::int64_t dim = 32;
  double rho = 0.5;
  double noise = 0.1;
  std::int64_t stream = 16384;  ///< tokens of the streams that are forgotten
};

OptionFields Fields(StabilityOptions& options);

inline constexpr std::int64_t kStabilitySeeds = 5;

StudyResult RunStability(const StabilityOptions& options, const StudyRun& run);

/// The smallest eigenvalue of a symmetric matrix, [n, n], by Jacobi's rotations.
double SmallestEigenvalue(std::vector<double> matrix, std::int64_t n);

}  // namespace ttr::experiments
