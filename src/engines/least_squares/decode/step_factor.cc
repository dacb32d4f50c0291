// A memory from its state to the form that single tokens update, and back.

#include "src/engines/least_squares/decode/step_factor.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ttr::least_squares {

template <class T>
void TakeValues(const MemoryState& memory) {
  const FactorLayout<T> f(memory);
  const std::int64_t key_dim = memory.key_dim, value_dim = memory.value_dim;
  std::vector<double> rest(static_cast<std::size_t>(key_dim * value_dim));  // diag(d) W
  const T* b = static_cast<const T*>(memory.b);
  for (std::int64_t i = 0; i < key_dim; ++i, b += memory.b_stride) {
    double* const row = rest.data() + i * value_dim;
    std::copy(b, b + value_dim, row);
    for (std::int64_t m = 0; m < i; ++m) {
      const double share = static_cast<double>(f.Row(m)[i]);
      const double* const above = rest.data() + m * value_dim;
      for (std::int64_t j = 0; j < value_dim; ++j) row[j] -= share * above[j];
    }
  }
  for (std::int64_t i = 0; i < f.unit; ++i) {
    T* const w = f.w + i * f.values;
    std::fill(w, w + f.values, T(0));
    if (i >= key_dim) continue;
    const double* const row = rest.data() + i * value_dim;
    const double inverse = static_cast<double>(f.inverse[i]);
    for (std::int64_t j = 0; j < value_dim; ++j) w[j] = static_cast<T>(inverse * row[j]);
    if (!std::all_of(w, w + value_dim, [](T x) { return std::isfinite(x); })) return f.Drop();
  }
}

template <class T>
void Flush(const MemoryState& memory) {
  const FactorLayout<T> f(memory);
  if (!f.holds()) return;
  const std::int64_t key_dim = memory.key_dim, value_dim = memory.value_dim;
  T* const a = static_cast<T*>(memory.a);
  T* const b = static_cast<T*>(memory.b);
  std::vector<double> keys(static_cast<std::size_t>(key_dim));  // row i of A and of B
  std::vector<double> values(static_cast<std::size_t>(value_dim));
  for (std::int64_t i = 0; i < key_dim; ++i) {
    std::fill(keys.begin(), keys.end(), 0);
    std::fill(values.begin(), values.end(), 0);
    for (std::int64_t m = 0; m <= i; ++m) {
      const T* const u = f.Row(m);
      const T* const w = f.w + m * f.values;
      const double share = static_cast<double>(u[i]) / static_cast<double>(f.inverse[m]);
      for (std::int64_t j = i; j < key_dim; ++j) {
        keys[static_cast<std::size_t>(j)] += share * static_cast<double>(u[j]);
      }
      for (std::int64_t j = 0; j < value_dim; ++j) {
        values[static_cast<std::size_t>(j)] += share * static_cast<double>(w[j]);
      }
    }
    for (std::int64_t j = i; j < key_dim; ++j) {
      const T number = static_cast<T>(keys[static_cast<std::size_t>(j)]);
      a[i * memory.a_stride + j] = a[j * memory.a_stride + i] = number;
    }
    for (std::int64_t j = 0; j < value_dim; ++j) {
      b[i * memory.b_stride + j] = static_cast<T>(values[static_cast<std::size_t>(j)]);
    }
  }
  f.Drop();
}

template void TakeValues<float>(const MemoryState&);
template void TakeValues<double>(const MemoryState&);
template void Flush<float>(const MemoryState&);
template void Flush<double>(const MemoryState&);

}  // namespace ttr::least_squares
