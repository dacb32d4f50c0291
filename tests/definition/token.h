/// Tokens and constants from plain numbers, for tests that drive a Memory directly.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "src/definition/memory.h"
#include "ttr/util/random.h"

namespace ttr::definition {

/// {1, 2, 3} as a column.
inline Vector Column(const std::vector<double>& x) {
  return Eigen::Map<const Vector>(x.data(), static_cast<Eigen::Index>(x.size()));
}

/// A token with one pair.
inline Token Pair(const Vector& k, const Vector& v) {
  Token token;
  token.k = k;
  token.v = v;
  token.v_im = Vector::Zero(v.size());
  token.step = Vector::Zero(1);
  return token;
}

/// A pair with a step size.
inline Token Pair(const Vector& k, const Vector& v, double step) {
  Token token = Pair(k, v);
  token.step = Vector::Constant(1, step);
  return token;
}

/// Constants of a memory with these sizes: no features, scale 1, zero ridge and zero constants.
inline Constants Sized(const Recipe& recipe, std::int64_t key_dim, std::int64_t value_dim) {
  Constants constants;
  constants.recipe = recipe;
  constants.dims.key_dim = key_dim;
  constants.dims.value_dim = value_dim;
  constants.phi_dim = key_dim;
  constants.value_dim = value_dim;
  constants.ridge = Vector::Constant(key_dim, recipe.optimizer.ridge);
  constants.bonus = Vector::Zero(key_dim);
  constants.a = Matrix::Zero(value_dim, key_dim);
  constants.ln_weight = Vector::Ones(value_dim);
  constants.ln_bias = Vector::Zero(value_dim);
  constants.row_bias = Vector::Zero(recipe.optimizer.mini_batch);
  return constants;
}

/// Normal numbers, the same on every machine.
class Noise {
 public:
  explicit Noise(std::uint64_t seed) : random_(seed) {}

  double Normal() { return random_.Normal(); }
  double Uniform(double low, double high) { return low + (high - low) * random_.Uniform(); }
  Vector Vec(std::int64_t n) {
    return Vector::NullaryExpr(n, [this](Eigen::Index) { return Normal(); });
  }
  Vector Unit(std::int64_t n) { return Vec(n).normalized(); }
  Vector Uniforms(std::int64_t n, double low, double high) {
    return Vector::NullaryExpr(n, [&](Eigen::Index) { return Uniform(low, high); });
  }
  Matrix Mat(std::int64_t rows, std::int64_t cols) {
    return Matrix::NullaryExpr(rows, cols, [this](Eigen::Index, Eigen::Index) { return Normal(); });
  }

 private:
  CounterRandom random_;
};

/// Largest absolute difference; infinite when either side holds a NaN (where the maximum would
/// pass over it) or when the sizes differ.
inline double Gap(const Matrix& a, const Matrix& b) {
  if (a.rows() != b.rows() || a.cols() != b.cols() || !a.allFinite() || !b.allFinite()) {
    return std::numeric_limits<double>::infinity();
  }
  return a.size() == 0 ? 0 : (a - b).cwiseAbs().maxCoeff();
}

}  // namespace ttr::definition
