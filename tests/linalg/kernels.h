// The kernels of src/linalg as plain functions, as compiled for the target that is chosen.
#pragma once

#include <cstdint>

#include "src/linalg/block.h"

namespace ttr::test {

enum class Part { kWhole, kUpperResult, kLowerLeft, kUpperLeft, kUpperRight };

struct Product {
  Part part = Part::kWhole;
  int into = 0;  // set, add, subtract
  std::int64_t rows, columns, steps;
  std::int64_t per_step = 1;  // of the stairs
};

// Systems H <- decay H + key key^T, (H + diag(ridge)) x = b, side by side: matrices, keys and sides
// one system after the other, a side after the other.
template <class T>
struct SystemsSideBySide {
  std::int64_t size, sides;
  const T* h;
  const T *key, *decay;
  const double* ridge;
  T *b, *regular;
};

template <class T>
struct LinalgKernels {
  void (*multiply)(const Product&, const linalg::Left<T>&, const linalg::Block<T>& right,
                   const linalg::Block<T>& to);
  // Pivots that are rounding stop it: how many were none. `work`: 2 n numbers.
  std::int64_t (*factor)(const linalg::UpperFactor<T>&, std::int64_t n, std::int64_t dim, T* work);
  void (*solve_down)(const linalg::UpperFactor<T>&, std::int64_t n, const linalg::Block<T>& x,
                     std::int64_t columns);
  void (*solve_up)(const linalg::UpperFactor<T>&, std::int64_t n, const linalg::Block<T>& x,
                   std::int64_t columns);
  std::int64_t (*systems_at_once)();
  void (*solve_systems)(const SystemsSideBySide<T>&);
  // The inverses of the diagonal blocks of a matrix of `size` rows.
  void (*invert_blocks)(std::int64_t size, std::int64_t block, const double* a, T* to);
};

template <class T>
LinalgKernels<T> KernelsOfLinalg();

std::int64_t EigensystemsAtOnce();
// `count` matrices of n rows, one after the other: eigenvalues, the largest first, and the first
// `vectors` eigenvectors, columns of n rows of a multiple of 8.
void FindEigensystems(std::int64_t n, std::int64_t count, std::int64_t vectors, const double* a,
                      double* values, double* to);

}  // namespace ttr::test
