// The paper's equations as functions of a token's pairs, computed as they are written there.
#pragma once

#include <Eigen/Dense>
#include <span>
#include <string_view>

namespace ttr::experiments {

inline constexpr Eigen::Index kTokens = 24, kKeyDim = 4, kValueDim = 3;

// Rows are tokens.
struct Pairs {
  Eigen::MatrixXd k, v, q;
  Eigen::VectorXd decay, weight_decay, momentum;
  Eigen::MatrixXd step;  // a column a step of the token
};

// What the equation says at a token. Rounding may change it by eps times `size`; infinity: the
// equation has no value there.
struct Answer {
  Eigen::VectorXd y;
  double size = 0;
};

struct Equation {
  std::string_view place, recipe;  // of PaperEntry
  Answer (*answer)(const Pairs& p, Eigen::Index t);
};

std::span<const Equation> Equations();

}  // namespace ttr::experiments
