#include "src/definition/memory.h"

namespace ttr::definition {

Array Array::Of(double x) { return {{}, {x}}; }

Array Array::Of(const Vector& x) { return {{x.size()}, {x.data(), x.data() + x.size()}}; }

Array Array::Of(const Matrix& x) {
  const RowMajor rows = x;
  return {{x.rows(), x.cols()}, {rows.data(), rows.data() + rows.size()}};
}

Array Array::Transposed(const Matrix& m) { return Of(Matrix(m.transpose())); }

double Array::scalar() const { return values.at(0); }

Vector Array::vector() const {
  return Eigen::Map<const Vector>(values.data(), static_cast<Eigen::Index>(values.size()));
}

Matrix Array::matrix() const {
  return Eigen::Map<const RowMajor>(values.data(), shape.at(0), shape.at(1));
}

Matrix Array::transposed() const { return matrix().transpose(); }

}  // namespace ttr::definition
