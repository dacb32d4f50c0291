// Eigenvalues and eigenvectors of the systems of a chunk's tokens. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_SPECTRA_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_SPECTRA_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_SPECTRA_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_SPECTRA_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/iterative/systems-inl.h"
#include "src/linalg/eigensystems-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Of every A_i + R_i; 2 D^3 flops a system, in double.
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

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_SPECTRA_INL_H_
