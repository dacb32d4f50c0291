/// Forgetting: what the linear families share.
#pragma once

#include <cmath>

#include "src/definition/memory.h"

namespace ttr::definition {

/// M diag(exp(log_decay)): nothing to do for size 0, one factor for size 1, else one factor for
/// each key channel (column). A channel that is forgotten altogether leaves no NaN behind.
inline Matrix Decayed(const Vector& log_decay, Matrix m) {
  for (Eigen::Index n = 0; log_decay.size() > 0 && n < m.cols(); ++n) {
    const double g = std::exp(log_decay(log_decay.size() == 1 ? 0 : n));
    if (g == 0) {
      m.col(n).setZero();
    } else {
      m.col(n) *= g;
    }
  }
  return m;
}

/// (re + i im) diag(e^{i phase}), column by column.
inline void Rotate(const Vector& phase, Matrix& re, Matrix& im) {
  for (Eigen::Index n = 0; n < re.cols(); ++n) {
    const Vector x = re.col(n);
    re.col(n) = std::cos(phase(n)) * x - std::sin(phase(n)) * im.col(n);
    im.col(n) = std::sin(phase(n)) * x + std::cos(phase(n)) * im.col(n);
  }
}

/// 1 - g and sqrt(1 - g^2) for g = exp(log_decay), without cancellation where g is close to 1.
inline Vector Complement(const Vector& log_decay) {
  return log_decay.unaryExpr([](double x) { return -std::expm1(x); });
}
inline Vector RootComplement(const Vector& log_decay) {
  return log_decay.unaryExpr([](double x) { return std::sqrt(-std::expm1(2 * x)); });
}

}  // namespace ttr::definition
