/// How the rates of a chunk's tokens become coefficients.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/network/task.h"

namespace ttr::network {

/// 1 - weight_decay, or 1 - step weight_decay, of token i.
template <class T>
T DecayFactor(const Options& options, const Rates<T>& rates, std::int64_t i) {
  switch (options.weight_decay) {
    case Decay::kNone: return 1;
    case Decay::kCoupled: return 1 - rates.step[i] * rates.decay[i];
    case Decay::kDecoupled: return 1 - rates.decay[i];
  }
  return 1;
}

/// Coefficients of a plain step: A = W_bar, B = sum step g, W = W_bar - row B.
template <class T>
void FindPlain(const Chunk& chunk, const Rates<T>& rates, const Coefficients<T>& to) {
  const std::int64_t n = chunk.count;
  *to.kept = 1;
  for (std::int64_t j = 0; j < n; ++j) to.d[j] = -rates.step[j];
  for (std::int64_t r = 0; r <= n; ++r) {
    const bool nothing = r == 0 && chunk.place == 0;
    to.a[r] = 1;
    to.b[r] = nothing ? T(0) : -rates.row[r];
    for (std::int64_t j = 0; j < n; ++j) {
      to.Row(r)[j] = j < r ? rates.row[r] * rates.step[j] : T(0);
    }
  }
}

/// Coefficients with momentum or decay: S_i = m_i S_{i-1} - step_i g_i, W_i = decay_i W_{i-1} +
/// S_i.
template <class T>
void FindCarried(const Options& options, const Chunk& chunk, const Rates<T>& rates,
                 const Coefficients<T>& to) {
  const std::int64_t n = chunk.count;
  *to.kept = 1;
  to.a[0] = 1;
  to.b[0] = 0;
  std::fill(to.Row(0), to.Row(0) + n, T(0));
  std::fill(to.d, to.d + n, T(0));
  for (std::int64_t i = 0; i < n; ++i) {
    const T momentum = options.momentum ? rates.momentum[i] : T(0);
    const T decay = DecayFactor(options, rates, i);
    for (std::int64_t j = 0; j < i; ++j) to.d[j] *= momentum;
    to.d[i] = rates.step[i];
    *to.kept *= momentum;
    to.a[i + 1] = decay * to.a[i];
    to.b[i + 1] = decay * to.b[i] + *to.kept;
    const T* const before = to.Row(i);
    T* const after = to.Row(i + 1);
    for (std::int64_t j = 0; j < n; ++j) after[j] = decay * before[j] + to.d[j];
  }
}

template <class T>
void FindCoefficients(const Options& options, const Chunk& chunk, const Rates<T>& rates,
                      const Coefficients<T>& to) {
  options.plain() ? FindPlain(chunk, rates, to) : FindCarried(options, chunk, rates, to);
}

/// Gradients of the coefficients: sums over what a chunk's tokens, queries and update take of them.
template <class T>
struct RateGradients {
  T *step, *momentum, *decay;  // [token]
  T* row;                      // [place]: as Rates::row
  T* updates;                  // [after r tokens][token]: room
  T* kept;                     // [after r tokens]: room

  explicit RateGradients(ScratchLayout& layout) {
    layout.Take(kBlock, {&step, &momentum, &decay});
    layout.Take(kBlock + 1, {&row, &kept});
    updates = layout.Take<T>((kBlock + 1) * kBlock);
  }
  void SetZero() const {
    for (T* of : {step, momentum, decay, row}) std::fill(of, of + kBlock, T(0));
    row[kBlock] = 0;
  }
};

template <class T>
void PassPlain(const Chunk& chunk, const Rates<T>& rates, const Coefficients<T>& d,
               const RateGradients<T>& to) {
  const std::int64_t n = chunk.count;
  for (std::int64_t j = 0; j < n; ++j) to.step[j] -= d.d[j];
  for (std::int64_t r = 0; r <= n; ++r) {
    if (r > 0 || chunk.place > 0) to.row[r] -= d.b[r];
    for (std::int64_t j = 0; j < r; ++j) {
      to.row[r] += d.Row(r)[j] * rates.step[j];
      to.step[j] += d.Row(r)[j] * rates.row[r];
    }
  }
}

/// `d`: gradients for the coefficients, which the recursion moves on in.
template <class T>
void PassCarried(const Options& options, const Chunk& chunk, const Rates<T>& rates,
                 const Coefficients<T>& c, const Coefficients<T>& d, const RateGradients<T>& to) {
  const std::int64_t n = chunk.count;
  const auto momentum = [&](std::int64_t i) { return options.momentum ? rates.momentum[i] : T(0); };
  const auto updates = [&](std::int64_t r) { return to.updates + r * kBlock; };
  to.kept[0] = 1;
  std::fill(updates(0), updates(0) + n, T(0));
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < n; ++j) updates(i + 1)[j] = momentum(i) * updates(i)[j];
    updates(i + 1)[i] = rates.step[i];
    to.kept[i + 1] = momentum(i) * to.kept[i];
  }
  for (std::int64_t i = n; i-- > 0;) {
    const T decay = DecayFactor(options, rates, i);
    T ddecay = d.b[i + 1] * c.b[i] + d.a[i + 1] * c.a[i], dmomentum = 0;
    d.b[i] += decay * d.b[i + 1];
    d.a[i] += decay * d.a[i + 1];
    *d.kept += d.b[i + 1];
    const T* const after = d.Row(i + 1);
    for (std::int64_t j = 0; j <= i; ++j) {
      ddecay += after[j] * c.Row(i)[j];
      d.Row(i)[j] += decay * after[j];
      d.d[j] += after[j];
      dmomentum += d.d[j] * updates(i)[j];
    }
    to.step[i] += d.d[i];
    for (std::int64_t j = 0; j < i; ++j) d.d[j] *= momentum(i);
    to.momentum[i] += dmomentum + *d.kept * to.kept[i];
    *d.kept *= momentum(i);
    if (options.weight_decay == Decay::kNone) continue;
    const bool coupled = options.weight_decay == Decay::kCoupled;
    to.decay[i] -= ddecay * (coupled ? rates.step[i] : T(1));
    if (coupled) to.step[i] -= ddecay * rates.decay[i];
  }
}

template <class T>
void PassCoefficients(const Options& options, const Chunk& chunk, const Rates<T>& rates,
                      const Coefficients<T>& c, const Coefficients<T>& d,
                      const RateGradients<T>& to) {
  to.SetZero();
  options.plain() ? PassPlain(chunk, rates, d, to) : PassCarried(options, chunk, rates, c, d, to);
}

}  // namespace ttr::network
