/// The small network that is a neural memory, and the gradient of its loss by hand.
///
///     x_0 = k,  z_l = W_l^T x_{l-1} + b_l,  x_l = act(z_l)        l = 1 .. depth
///     f(k) = z_depth,  or LN(z_depth),  or k + either
///
/// or, gated, x_l = act(a) (.) g with z_l = [a; g].
///
///     LN(z) = weight (.) (z - mean z) / sqrt(var z + 1e-6) + bias
///
/// GELU is its tanh form. Weights are stored [in, out]. Source: TTT 2407.04620, Titans 2501.00663.
#pragma once

#include <string>
#include <vector>

#include "src/definition/memory.h"

namespace ttr::definition {

/// W_1, b_1, W_2, b_2, ...: without biases the W alone. A bias is a matrix of one column.
using Parameters = std::vector<Matrix>;

class Multilayer {
 public:
  explicit Multilayer(const Constants& constants);

  /// "w1", "b1", "w2", ... in the order of Parameters.
  const std::vector<std::string>& names() const { return names_; }

  /// Depth 1: zeros. Deeper: normal numbers / sqrt(in), drawn from the recipe's seed in the stream
  /// of this memory's head, W_1 row by row, then W_2, ...; biases zero.
  Parameters Start() const;

  /// f(k)
  Vector Evaluate(const Parameters& parameters, const Vector& k) const;

  /// The gradient of 1/2 |f(k) - v|^2, or of -v . f(k), for every parameter.
  Parameters Gradient(const Parameters& parameters, const Vector& k, const Vector& v) const;

 private:
  /// What a forward pass leaves for the gradient: x_{l-1} and z_l of every layer.
  struct Trace {
    std::vector<Vector> x, z;
    Vector f;
  };
  Trace Forward(const Parameters& parameters, const Vector& k) const;
  /// x_l of z_l, and the gradient for z_l from that for x_l.
  Vector Activated(const Vector& z) const;
  Vector PassActivation(const Vector& z, const Vector& dx) const;
  Eigen::Index Columns(std::size_t layer) const {
    return widths_[layer + 1] * (function_.gated && layer + 2 < widths_.size() ? 2 : 1);
  }
  std::size_t WeightOf(std::size_t layer) const { return function_.bias ? 2 * layer : layer; }

  Function function_;
  Loss loss_;
  std::vector<Eigen::Index> widths_;  // Dk, hidden, ..., hidden, Dv
  std::int64_t head_;
  Vector ln_weight_, ln_bias_;
  std::vector<std::string> names_;
};

}  // namespace ttr::definition
