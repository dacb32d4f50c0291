/// Two dials between published layers.
///
/// The first turns linear attention into recursive least squares: n steps of gradient descent
/// (Richardson) on A x = q from zero, or n steps of conjugate gradients; n = 1 is linear attention
/// but for a factor, n -> infinity is least squares.
///
/// The second turns the delta rule into least squares: n passes over the same pairs. On unit keys a
/// pass of NLMS is one sweep of Gauss-Seidel on K K^T alpha = V (Kaczmarz). Beside them sweeps of
/// Gauss-Seidel on (K K^T + ridge) alpha = V, whose first one is DeltaNet (sweeps.h): n = 1 is the
/// delta rule, n -> infinity least squares with the ridge 1 / step - 1.
///
/// Source: Wang, Shi, Fox, "Test-time regression" (2025), Vignette 3.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/studies/options.h"
#include "experiments/studies/study.h"

namespace ttr::experiments {

struct DialsOptions {
  std::int64_t dim = 64;
  std::int64_t pairs = 192;     ///< P of the first dial, and of the second where no map fits all
  std::int64_t few_pairs = 48;  ///< P of the second dial where one does
  std::vector<std::int64_t> steps{1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
  std::vector<std::int64_t> passes{1, 2, 4, 8, 16, 32, 64, 128};
  double eta = 0;     ///< step size of gradient descent; 0: 1 / (1 + sqrt(P/d))^2
  double step = 0.5;  ///< step size of DeltaNet, on unit keys
};

OptionFields Fields(DialsOptions& options);

inline constexpr std::int64_t kDialsSeeds = 5;

StudyResult RunDials(const DialsOptions& options, const StudyRun& run);

}  // namespace ttr::experiments
