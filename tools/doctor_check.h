// The self-test of `ttr doctor`: an engine's outputs beside those of the definition, and how far
// rounding alone may make them differ.
//
// Sums of products lose some eps of their size. Least squares solves (A + R) x = q for every query
// and loses eps times the condition of A + R: the ratio of the extreme eigenvalues of
// D^-1/2 (A + R) D^-1/2, D its diagonal, which is what a Cholesky factor and a diagonal
// preconditioner see. It is computed in double from the states of the definition, token by token,
// so that no engine can loosen the bound that it is judged by.
#pragma once

#include <cstdint>
#include <vector>

#include "ttr/recipe.h"
#include "ttr/tensor.h"

namespace ttr::tools {

// One recipe on random inputs: two sequences, two memories each.
struct Comparison {
  Tensor computed;                 // y of the engine, float64 [B, T, H, Dv]
  Tensor defined;                  // y of the definition, the same shape
  std::vector<double> conditions;  // [B, T, H]; 1 where nothing is solved
  double eps = 0;                  // of the inputs' dtype
};

// Inputs of `dtype` (float32 or float64). Those of least squares are drawn so that its systems are
// well determined: where a memory forgets faster than keys span their space, no output has digits
// to judge.
Comparison Compare(Recipe recipe, DType dtype);

struct Judgement {
  double condition = 1;  // greatest of the outputs that were judged
  double error = 0;      // at the output that is nearest to its bound, as a share of its size
  double bound = 0;      // of that output
  std::int64_t judged = 0;
  std::int64_t outputs = 0;  // tokens x memories

  // Every judged output within its bound (NaN is not), and enough of them judged.
  bool right() const;
};

// An output is a vector y_t of one memory, its size its greatest number. It may differ by
// kRoundings eps condition of that. Where this is more than kLeastDigits, rounding could hide an
// error that matters, and the output is not judged.
inline constexpr double kRoundings = 64;
inline constexpr double kLeastDigits = 5e-3;
Judgement Judge(const Comparison& comparison);

// Whether products in bfloat16 (CallOptions::bfloat16_products) have the bits of float32 where no
// factor is rounded: small whole numbers, and units as keys. True where there are none.
bool BFloat16ProductsAreExact();

}  // namespace ttr::tools
