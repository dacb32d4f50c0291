/// A memory whose Gram matrix is singular, or nearly: token by token, by the solution of least
/// norm, in double.
#pragma once

#include <cstdint>
#include <vector>

#include "src/engines/least_squares/scratch.h"
#include "src/linalg/minimum_norm.h"

namespace ttr::least_squares {

template <class T>
class MinimumNormMemory {
 public:
  MinimumNormMemory(const Memory& memory, const Options& options, const Scratch<T>& s);

  /// One association more, weighted: A += k k^T, B += k v^T.
  void Add(const T* key, const T* value);

  /// y = B^T A^+ q. Was A singular?
  bool Read(const T* query, T* y);

  /// x = A^+ q and z = A^+ u; where A is singular also x2 = q - A x and z2 = -A^+ z (else 0). Was
  /// it?
  bool Solutions(const T* q, const T* u, T* x, T* z, T* x2, T* z2);

 private:
  void Factor();
  /// x_ = A^+ q_
  void Solve(const T* query);

  std::int64_t key_dim_, value_dim_;
  bool relative_;
  std::vector<double> a_, b_, ridge_, regularised_, q_, x_;
  linalg::MinimumNorm solver_;
  bool factored_ = false;
};

extern template class MinimumNormMemory<float>;
extern template class MinimumNormMemory<double>;

}  // namespace ttr::least_squares
