// What a preconditioner of low rank adds to dL/dA. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_SPECTRA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_SPECTRA_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_SPECTRA_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_SPECTRA_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gradient_layout.h"
#include "src/engines/least_squares/prefix_systems-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// P = f(A), in the eigenvectors u_i of A, l_1 >= l_2 >= ..: p_i = 1 / l_i up to the rank, 1 / s
/// behind it, s the first l there. n steps of descent from q, and of their adjoint from u, give
///
///     dL/dP = eta sum_{0 < i <= n} rho_{n+1-i} r_i^T,   r_i = (1 - eta A P)^{i-1} q,  rho from u
///
/// in that basis G_kl = eta u_k q_l sum_i m_k^{n-i} m_l^{i-1}, m = 1 - eta p l. P moves by
/// (p_k - p_l) / (l_k - l_l) times dA_kl where k or l is up to the rank, and by -ds / s^2 along all
/// others, ds = u_s^T dA u_s: so dL/dA is a sum of a pair for every u_k, and one for u_s.
template <class T>
class GradientSpectra {
 public:
  GradientSpectra(const Iteration& how, const Memory& memory, const PrefixSystems<T>& systems,
                  const GradientScratch<T>& scratch)
      : how_(how),
        dim_(memory.key_dim),
        rank_(std::min(how.rank, memory.key_dim)),
        systems_(systems),
        q_(scratch.spectral),
        u_(q_ + dim_),
        inverse_(u_ + dim_),
        shrink_(inverse_ + dim_),
        along_(shrink_ + dim_) {}

  /// Calls add(x, z), rows of dim numbers of which -z x^T belongs to dL/dA of the system, for
  /// LowRankPairs() of them.
  template <class Add>
  void ForPairs(std::int64_t system, const T* q, const T* u, T* x, T* z, const Add& add) const {
    ToEigenbasis(system, q, q_);
    ToEigenbasis(system, u, u_);
    for (std::int64_t i = 0; i < dim_; ++i) {
      inverse_[i] = systems_.InverseAlong(system, i);
      shrink_[i] = 1 - how_.eta * inverse_[i] * systems_.Eigenvalue(system, i);
    }
    for (std::int64_t k = 0; k < rank_; ++k) {
      // Both (k, l) and (l, k): half of it where l has a pair of its own.
      for (std::int64_t l = 0; l < dim_; ++l) {
        along_[l] = -(l < rank_ ? 1 : 2) * Moved(system, k, l) * Worth(k, l);
      }
      FromEigenbasis(system, along_, x);
      Eigenvector(system, k, z);
      add(x, z);
    }
    if (rank_ == dim_) return;
    double trace = 0;
    for (std::int64_t l = rank_; l < dim_; ++l) trace += Worth(l, l);
    const double inverse = inverse_[rank_];
    Eigenvector(system, rank_, z);
    for (std::int64_t i = 0; i < dim_; ++i) {
      x[i] = static_cast<T>(trace * inverse * inverse * static_cast<double>(z[i]));
    }
    add(x, z);
  }

 private:
  /// The symmetric part of G_kl.
  double Worth(std::int64_t k, std::int64_t l) const {
    double sum = 0, power = 1;
    for (std::int64_t i = 0; i < how_.steps; ++i) {
      sum = shrink_[k] * sum + power;
      power *= shrink_[l];
    }
    return how_.eta * sum * (u_[k] * q_[l] + u_[l] * q_[k]) / 2;
  }

  /// (p_k - p_l) / (l_k - l_l), k up to the rank, without the differences where they would cancel.
  double Moved(std::int64_t system, std::int64_t k, std::int64_t l) const {
    const double p = inverse_[k];
    const double other = inverse_[l];
    const double gap = systems_.Eigenvalue(system, k) - systems_.Eigenvalue(system, l);
    if (p == 0 || other == 0) return gap == 0 ? 0 : (p - other) / gap;
    const bool both = l < rank_ || gap == 0;
    const double above = systems_.Eigenvalue(system, k) - systems_.Eigenvalue(system, rank_);
    return -p * other * (both ? 1 : above / gap);
  }

  void ToEigenbasis(std::int64_t system, const T* x, double* HWY_RESTRICT to) const {
    std::fill(to, to + dim_, 0.0);
    for (std::int64_t i = 0; i < dim_; ++i) {
      const double* HWY_RESTRICT const row = systems_.Eigenvectors(system, i);
      const double by = static_cast<double>(x[i]);
      for (std::int64_t v = 0; v < dim_; ++v) to[v] += by * row[v];
    }
  }

  void FromEigenbasis(std::int64_t system, const double* x, T* to) const {
    for (std::int64_t i = 0; i < dim_; ++i) {
      to[i] = static_cast<T>(sn::WideDot(dim_, systems_.Eigenvectors(system, i), x));
    }
  }

  void Eigenvector(std::int64_t system, std::int64_t v, T* to) const {
    for (std::int64_t i = 0; i < dim_; ++i) {
      to[i] = static_cast<T>(systems_.Eigenvectors(system, i)[v]);
    }
  }

  const Iteration& how_;
  const std::int64_t dim_, rank_;
  const PrefixSystems<T>& systems_;
  double *const q_, *const u_, *const inverse_, *const shrink_, *const along_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_SPECTRA_INL_H_
