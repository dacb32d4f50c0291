// Eigenvalues of all systems of a chunk; P = the inverse along the largest, and its slope. Compiled
// once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_LOW_RANK_PRECONDITIONER_INL_H_) == \
    defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_LOW_RANK_PRECONDITIONER_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_LOW_RANK_PRECONDITIONER_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_LOW_RANK_PRECONDITIONER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/iterative/systems-inl.h"
#include "src/engines/least_squares/scratch.h"
#include "src/linalg/eigensystems-inl.h"
#include "src/linalg/rounding.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Eigenvalues and eigenvectors of every A_i + R_i; 2 D^3 flops a system, in double.
template <class T>
class SystemSpectra {
 public:
  SystemSpectra(const Memory& memory, const PrefixSystems<T>& systems,
                const PreconditionerScratch<T>& p)
      : size_(memory.key_dim()),
        systems_(systems),
        p_(p),
        eigensystems_(memory.key_dim(), p.vectors > 0, p.eigen) {}

  void Prepare() {
    const std::int64_t together = ln::Eigensystems::Together();
    systems_.ForDiagonalBlocks(size_, [&](std::int64_t system, const auto& element) {
      const std::int64_t lane = system % together;
      eigensystems_.Load(lane, [&](std::int64_t i, std::int64_t c) { return element(0, i, c); });
      if (lane + 1 < together && system + 1 < systems_.count()) return;
      eigensystems_.Decompose(lane + 1);
      for (std::int64_t l = 0; l <= lane; ++l) {
        const std::int64_t at = (system - lane + l) * size_;
        eigensystems_.Leave(l, p_.eigenvalues + at, p_.vectors, p_.eigenvectors.stride,
                            p_.eigenvectors.Row(at));
      }
    });
  }

  /// The i-th largest eigenvalue.
  double Value(std::int64_t system, std::int64_t i) const {
    return p_.eigenvalues[system * size_ + i];
  }
  /// Component i of those eigenvectors that are stored.
  const double* Vectors(std::int64_t system, std::int64_t i) const {
    return p_.eigenvectors.Row(system * size_ + i);
  }

 private:
  const std::int64_t size_;
  const PrefixSystems<T>& systems_;
  const PreconditionerScratch<T>& p_;
  ln::Eigensystems eigensystems_;
};

/// P = U L^-1 U^T + (I - U U^T) / s: L, U the `rank` largest eigenvalues of A_i + R_i and their
/// vectors, s the next one; of what is zero to rounding, 0.
template <class T>
class LowRankPreconditioner {
 public:
  LowRankPreconditioner(const Iteration& how, const Memory& memory, const Scratch<T>& s,
                        const SystemSpectra<T>& spectra, const PreconditionerScratch<T>& p)
      : rank_(how.rank),
        size_(memory.key_dim()),
        keys_unit_(s.keys_unit),
        spectra_(spectra),
        along_(p.along) {}

  /// P's eigenvalue for the i-th eigenvector.
  double Inverse(std::int64_t system, std::int64_t i) const {
    const double cut = linalg::Rounding<T>(size_) * spectra_.Value(system, 0);
    const double value = spectra_.Value(system, std::min(i, rank_));
    return value <= cut ? 0 : 1 / value;
  }

  /// to = P r, in double: what P makes of roundings along the smallest eigenvalues is large beside
  /// what it makes of r along the others.
  void Apply(std::int64_t system, const T* r, T* to) const {
    const std::int64_t size = size_;
    const std::int64_t rank = std::min(rank_, size);
    const double others = rank < size ? Inverse(system, rank) : 0;
    double* HWY_RESTRICT const along = along_;
    const std::int64_t count = RoundUp(rank, kUnit / 2);
    std::fill(along, along + count, 0.0);
    for (std::int64_t i = 0; i < size; ++i) {
      const double* HWY_RESTRICT const row = spectra_.Vectors(system, i);
      const double x = static_cast<double>(r[i]);
      for (std::int64_t v = 0; v < count; ++v) along[v] += x * row[v];
    }
    for (std::int64_t v = 0; v < count; ++v) {
      along[v] *= v < rank ? Inverse(system, v) - others : 0;
    }
    for (std::int64_t i = 0; i < size; ++i) {
      const double sum = sn::WideDot(count, spectra_.Vectors(system, i), along);
      to[i] = static_cast<T>(others * static_cast<double>(r[i]) + sum);
    }
    std::fill(to + size, to + keys_unit_, T(0));
  }

 private:
  const std::int64_t rank_, size_, keys_unit_;
  const SystemSpectra<T>& spectra_;
  double* const along_;
};

/// The slope of P. P = f(A), in the eigenvectors u_i of A, l_1 >= l_2 >= ..: p_i = 1 / l_i up to
/// the rank, 1 / s after it, s the first l there. n steps of descent from q, and of their adjoint
/// from u, give
///
///     dL/dP = eta sum_{0 < i <= n} rho_{n+1-i} r_i^T,   r_i = (1 - eta A P)^{i-1} q,  rho from u
///
/// in that basis G_kl = eta u_k q_l sum_i m_k^{n-i} m_l^{i-1}, m = 1 - eta p l. P moves by
/// (p_k - p_l) / (l_k - l_l) times dA_kl where k or l is up to the rank, and by -ds / s^2 along all
/// others, ds = u_s^T dA u_s: so dL/dA is a sum of a pair for every u_k, and one for u_s.
template <class T>
class LowRankSlope {
 public:
  /// `work`: 5 dim numbers.
  LowRankSlope(const Iteration& how, std::int64_t dim, const LowRankPreconditioner<T>& p,
               const SystemSpectra<T>& spectra, double* work)
      : how_(how),
        dim_(dim),
        rank_(std::min(how.rank, dim)),
        p_(p),
        spectra_(spectra),
        q_(work),
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
      inverse_[i] = p_.Inverse(system, i);
      shrink_[i] = 1 - how_.eta * inverse_[i] * spectra_.Value(system, i);
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
    const double gap = spectra_.Value(system, k) - spectra_.Value(system, l);
    if (p == 0 || other == 0) return gap == 0 ? 0 : (p - other) / gap;
    const bool both = l < rank_ || gap == 0;
    const double above = spectra_.Value(system, k) - spectra_.Value(system, rank_);
    return -p * other * (both ? 1 : above / gap);
  }

  void ToEigenbasis(std::int64_t system, const T* x, double* HWY_RESTRICT to) const {
    std::fill(to, to + dim_, 0.0);
    for (std::int64_t i = 0; i < dim_; ++i) {
      const double* HWY_RESTRICT const row = spectra_.Vectors(system, i);
      const double by = static_cast<double>(x[i]);
      for (std::int64_t v = 0; v < dim_; ++v) to[v] += by * row[v];
    }
  }

  void FromEigenbasis(std::int64_t system, const double* x, T* to) const {
    for (std::int64_t i = 0; i < dim_; ++i) {
      to[i] = static_cast<T>(sn::WideDot(dim_, spectra_.Vectors(system, i), x));
    }
  }

  void Eigenvector(std::int64_t system, std::int64_t v, T* to) const {
    for (std::int64_t i = 0; i < dim_; ++i) {
      to[i] = static_cast<T>(spectra_.Vectors(system, i)[v]);
    }
  }

  const Iteration& how_;
  const std::int64_t dim_, rank_;
  const LowRankPreconditioner<T>& p_;
  const SystemSpectra<T>& spectra_;
  double *const q_, *const u_, *const inverse_, *const shrink_, *const along_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_LOW_RANK_PRECONDITIONER_INL_H_
