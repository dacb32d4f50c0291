#include "src/engines/least_squares/exact/minimum_norm_memory.h"

#include <cmath>

#include "src/linalg/rounding.h"

namespace ttr::least_squares {

template <class T>
MinimumNormMemory<T>::MinimumNormMemory(const Memory& memory, const Options& options,
                                        const Scratch<T>& s)
    : key_dim_(memory.key_dim()),
      value_dim_(memory.value_dim()),
      relative_(options.ridge == Ridge::kRelative) {
  const auto keys = static_cast<std::size_t>(key_dim_);
  a_.resize(keys * keys);
  b_.resize(keys * static_cast<std::size_t>(value_dim_));
  q_.resize(keys);
  x_.resize(keys);
  ridge_.assign(keys, 0);
  if (options.ridge != Ridge::kInState) ridge_.assign(memory.ridge, memory.ridge + key_dim_);
  for (std::int64_t i = 0; i < key_dim_; ++i) {
    for (std::int64_t j = i; j < key_dim_; ++j) {
      a_[i * key_dim_ + j] = a_[j * key_dim_ + i] = static_cast<double>(s.a.Row(i)[j]);
    }
    for (std::int64_t c = 0; c < value_dim_; ++c) {
      b_[i * value_dim_ + c] = static_cast<double>(s.b.Row(i)[c]);
    }
  }
}

template <class T>
void MinimumNormMemory<T>::Add(const T* key, const T* value) {
  for (std::int64_t i = 0; i < key_dim_; ++i) {
    const double k = static_cast<double>(key[i]);
    if (k == 0) continue;
    for (std::int64_t j = 0; j < key_dim_; ++j) {
      a_[i * key_dim_ + j] += k * static_cast<double>(key[j]);
    }
    for (std::int64_t c = 0; c < value_dim_; ++c) {
      b_[i * value_dim_ + c] += k * static_cast<double>(value[c]);
    }
  }
  factored_ = false;
}

template <class T>
void MinimumNormMemory<T>::Factor() {
  if (factored_) return;
  double squares = 0;
  for (const double x : a_) squares += x * x;
  const double factor = relative_ ? std::sqrt(squares) : 1;
  regularised_ = a_;
  for (std::int64_t i = 0; i < key_dim_; ++i) regularised_[i * key_dim_ + i] += factor * ridge_[i];
  solver_.Factor(key_dim_, regularised_.data(), linalg::Rounding<T>(key_dim_), linalg::kFaded<T>);
  factored_ = true;
}

template <class T>
void MinimumNormMemory<T>::Solve(const T* query) {
  Factor();
  for (std::int64_t i = 0; i < key_dim_; ++i) q_[i] = static_cast<double>(query[i]);
  solver_.Solve(q_.data(), x_.data());
}

template <class T>
bool MinimumNormMemory<T>::Read(const T* query, T* y) {
  Solve(query);
  for (std::int64_t c = 0; c < value_dim_; ++c) {
    double sum = 0;
    for (std::int64_t i = 0; i < key_dim_; ++i) sum += b_[i * value_dim_ + c] * x_[i];
    y[c] = static_cast<T>(sum);
  }
  return solver_.singular();
}

template <class T>
bool MinimumNormMemory<T>::Solutions(const T* q, const T* u, T* x, T* z, T* x2, T* z2) {
  const auto store = [&](T* to) {
    for (std::int64_t i = 0; i < key_dim_; ++i) to[i] = static_cast<T>(x_[i]);
  };
  Solve(q);
  store(x);
  for (std::int64_t i = 0; i < key_dim_ && solver_.singular(); ++i) {
    double rest = q_[i];
    for (std::int64_t j = 0; j < key_dim_; ++j) rest -= regularised_[i * key_dim_ + j] * x_[j];
    x2[i] = static_cast<T>(rest);
  }
  Solve(u);
  store(z);
  if (!solver_.singular()) return false;
  q_ = x_;
  solver_.Solve(q_.data(), x_.data());
  for (std::int64_t i = 0; i < key_dim_; ++i) z2[i] = static_cast<T>(-x_[i]);
  return true;
}

template class MinimumNormMemory<float>;
template class MinimumNormMemory<double>;

}  // namespace ttr::least_squares
