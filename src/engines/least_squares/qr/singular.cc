#include "src/engines/least_squares/qr/singular.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/linalg/rounding.h"

namespace ttr::least_squares {

void SingularTriangle::Load(const Triangle& t) {
  if (loaded_) return;
  loaded_ = true;
  key_dim_ = t.key_dim;
  value_dim_ = t.value_dim;
  const auto n = static_cast<std::size_t>(key_dim_);
  scale_.resize(n);
  white_.resize(n);
  finite_ = true;
  factor_.Start(key_dim_, value_dim_, 0);
  for (std::int64_t i = 0; i < key_dim_; ++i) {
    scale_[i] = t.squares[i] > 0 ? std::sqrt(t.squares[i]) : 1;
    finite_ &= std::isfinite(t.squares[i]) && std::isfinite(t.d[i]);
  }
  for (std::int64_t i = 0; i < key_dim_; ++i) {
    const double* const values = t.Row(i);
    const double* const keys = values + value_dim_;
    const double root = std::sqrt(t.d[i]);
    double* const row = factor_.Next();
    for (std::int64_t j = 0; j < i; ++j) {
      row[j] = root * keys[j] / scale_[j];
      finite_ &= std::isfinite(keys[j]);
    }
    row[i] = root / scale_[i];
    std::fill(row + i + 1, row + key_dim_, 0.0);
    for (std::int64_t c = 0; c < value_dim_; ++c) row[key_dim_ + c] = root * values[c];
  }
  if (finite_) factor_.Finish(linalg::Rounding<double>(key_dim_), scale_.data());
}

bool SingularTriangle::Read(const double* q, double* y) {
  if (!finite_) {
    std::fill(y, y + value_dim_, std::numeric_limits<double>::quiet_NaN());
    return false;
  }
  factor_.Whiten(q, white_.data());
  std::fill(y, y + value_dim_, 0.0);
  for (std::int64_t i = 0; i < factor_.rank(); ++i) {
    const double* const side = factor_.side(i);
    for (std::int64_t c = 0; c < value_dim_; ++c) y[c] += white_[i] * side[c];
  }
  return true;
}

bool SingularTriangle::IsLost(double* to) const {
  if (!finite_) std::fill(to, to + key_dim_, std::numeric_limits<double>::quiet_NaN());
  return !finite_;
}

void SingularTriangle::Solve(const double* q, double* x) {
  if (IsLost(x)) return;
  factor_.Whiten(q, white_.data());
  factor_.Return(white_.data(), x);
}

void SingularTriangle::SolveValues(const double* dy, double* z) {
  if (IsLost(z)) return;
  for (std::int64_t i = 0; i < factor_.rank(); ++i) {
    const double* const side = factor_.side(i);
    white_[i] = 0;
    for (std::int64_t c = 0; c < value_dim_; ++c) white_[i] += side[c] * dy[c];
  }
  factor_.Return(white_.data(), z);
}

void SingularTriangle::Rest(const double* q, double* rest) {
  if (IsLost(rest)) return;
  factor_.Project(q, rest);
  for (std::int64_t i = 0; i < key_dim_; ++i) rest[i] = q[i] - rest[i];
}

}  // namespace ttr::least_squares
