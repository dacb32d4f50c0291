/// The answers of a triangle in which directions are missing: plain C++.
#pragma once

#include <cstdint>
#include <vector>

#include "src/engines/least_squares/qr/scratch.h"
#include "src/linalg/row_factor.h"

namespace ttr::least_squares {

/// y = B^T A^+ q, the map of least norm. Which directions are missing is told by columns of unit
/// length, so that the units of channels do not matter. O(D^2 (D + Dv)) a triangle, O(D (D + Dv)) a
/// query.
class SingularTriangle {
 public:
  /// Factors anew where the triangle has changed.
  void Load(const Triangle& triangle);
  void Forget() { loaded_ = false; }

  /// False, and y is NaN: there are numbers that are not finite.
  bool Read(const double* q, double* y);
  /// x = A^+ q, z = A^+ B dy, and (I - A A^+) q: what gradients ask for. NaN where numbers are not
  /// finite.
  void Solve(const double* q, double* x);
  void SolveValues(const double* dy, double* z);
  void Rest(const double* q, double* rest);
  /// Was it regular after all? The test that comes before is a bound.
  bool regular() const { return !factor_.singular(); }

 private:
  /// True, and NaN in `to`, where numbers are not finite.
  bool IsLost(double* to) const;

  std::int64_t key_dim_ = 0, value_dim_ = 0;
  bool loaded_ = false, finite_ = true;
  linalg::RowFactor factor_;
  std::vector<double> scale_, white_;
};

}  // namespace ttr::least_squares
