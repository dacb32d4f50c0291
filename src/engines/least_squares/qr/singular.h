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
  /// Was it regular after all? The test that comes before is a bound.
  bool regular() const { return !factor_.singular(); }

 private:
  std::int64_t key_dim_ = 0, value_dim_ = 0;
  bool loaded_ = false, finite_ = true;
  linalg::RowFactor factor_;
  std::vector<double> scale_, white_;
};

}  // namespace ttr::least_squares
