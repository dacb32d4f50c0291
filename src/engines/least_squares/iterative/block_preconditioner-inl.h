// P = the inverses of the diagonal blocks of A (or of its diagonal), and its slope. Compiled once
// for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_BLOCK_PRECONDITIONER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_BLOCK_PRECONDITIONER_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_BLOCK_PRECONDITIONER_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_BLOCK_PRECONDITIONER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/iterative/systems-inl.h"
#include "src/engines/least_squares/sequence/walk-inl.h"
#include "src/linalg/block_inverses-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// P_i = the (pseudo-)inverses of the diagonal blocks of A_i + R_i, of p.block channels each. One
/// channel: diag(A_i + R_i)^-1, 0 where that is 0.
template <class T>
class BlockPreconditioner {
 public:
  BlockPreconditioner(const Memory& memory, const PrefixSystems<T>& systems, const Scratch<T>& s,
                      const IterationScratch<T>& it)
      : memory_(memory),
        systems_(systems),
        s_(s),
        it_(it),
        p_(it.p),
        inverses_(memory.key_dim(), std::max<std::int64_t>(1, it.p.block), it.p.work) {}

  void PrepareDiagonals() const {
    double* const sums = p_.sums;
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      sums[i] = static_cast<double>(it_.stacked.Row(i)[i]);
    }
    for (std::int64_t t = 0; t < systems_.count(); ++t) {
      T* const inverse = p_.inverse + t * s_.keys_unit;
      const T* const key = s_.k.Row(t);
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
        if (systems_.tokens() > 0) {
          sums[i] += static_cast<double>(key[i]) * static_cast<double>(key[i]);
        }
        const double x = it_.fade[t] * sums[i] + it_.factor[t] * static_cast<double>(it_.ridge[i]);
        inverse[i] = x == 0 ? T(0) : static_cast<T>(1 / x);
      }
    }
  }

  void PrepareBlocks() const {
    systems_.ForDiagonalBlocks(p_.block, [&](std::int64_t system, const auto& element) {
      inverses_.Invert(element, p_.inverse + system * s_.keys_unit * p_.block);
    });
  }

  void ApplyDiagonal(std::int64_t system, const T* r, T* to) const {
    const hn::ScalableTag<T> d;
    const T* const inverse = p_.inverse + system * s_.keys_unit;
    for (std::int64_t v = 0; v < s_.keys_unit; v += static_cast<std::int64_t>(hn::Lanes(d))) {
      hn::Store(hn::Mul(hn::Load(d, inverse + v), hn::Load(d, r + v)), d, to + v);
    }
  }

  void ApplyBlocks(std::int64_t system, const T* r, T* to) const {
    // Whole vectors: what they hold beyond a block is overwritten by the next one.
    const hn::ScalableTag<T> d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const T* const inverse = p_.inverse + system * s_.keys_unit * p_.block;
    for (std::int64_t begin = 0; begin < memory_.key_dim(); begin += p_.block) {
      const std::int64_t n = std::min(p_.block, memory_.key_dim() - begin);
      const T* const rows = inverse + begin * p_.block;
      for (std::int64_t c = 0; c < n; c += lanes) {
        auto sum = hn::Zero(d);
        for (std::int64_t i = 0; i < n; ++i) {
          sum = hn::MulAdd(hn::Set(d, r[begin + i]), hn::LoadU(d, rows + i * p_.block + c), sum);
        }
        hn::StoreU(sum, d, to + begin + c);
      }
    }
    std::fill(to + memory_.key_dim(), to + s_.keys_unit, T(0));
  }

  /// ax = D(A_i + R_i) x, D keeping the diagonal blocks. `sums`: D numbers.
  void MultiplyBlocks(std::int64_t system, const T* x, double* sums, T* ax) const {
    const double c = it_.fade[system];
    const double factor = static_cast<double>(systems_.Factor(system));
    for (std::int64_t begin = 0; begin < memory_.key_dim(); begin += p_.block) {
      const std::int64_t end = std::min(begin + p_.block, memory_.key_dim());
      const auto dot = [&](const T* row) {
        double sum = 0;
        for (std::int64_t i = begin; i < end; ++i) {
          sum += static_cast<double>(row[i]) * static_cast<double>(x[i]);
        }
        return sum;
      };
      for (std::int64_t i = begin; i < end; ++i) sums[i] = dot(it_.stacked.Row(i));
      for (std::int64_t t = 0; t < std::min(system + 1, systems_.tokens()); ++t) {
        const T* const key = s_.k.Row(t);
        const double product = dot(key);
        for (std::int64_t i = begin; i < end; ++i) sums[i] += static_cast<double>(key[i]) * product;
      }
      for (std::int64_t i = begin; i < end; ++i) {
        ax[i] = static_cast<T>(c * sums[i] + factor * memory_.ridge[i] * static_cast<double>(x[i]));
      }
    }
  }

 private:
  const Memory& memory_;
  const PrefixSystems<T>& systems_;
  const Scratch<T>& s_;
  const IterationScratch<T>& it_;
  const PreconditionerScratch<T>& p_;
  const ln::BlockInverses<T> inverses_;
};

/// What P adds to dL/dA: a change of the blocks moves P by -P D(dA) P. The diagonal blocks of dL/dA
/// + its transpose for every reading token, in the scale of its stretch: row i of a token's, as
/// many numbers as a block has channels, belongs to channel i.
template <class T>
class BlockSlope {
 public:
  /// `channels` of a block; 0: there are none. `blocks`: of all tokens.
  BlockSlope(std::int64_t dim, std::int64_t keys_unit, std::int64_t channels, T* blocks)
      : dim_(dim), n_(channels), size_(keys_unit * channels), blocks_(blocks) {}

  bool any() const { return n_ > 0; }
  std::int64_t channels() const { return n_; }

  void Clear(std::int64_t token) const { std::fill(Of(token), Of(token) + size_, T(0)); }

  /// The blocks of -factor f e^T, and of its transpose.
  void Subtract(std::int64_t token, double factor, const T* HWY_RESTRICT f,
                const T* HWY_RESTRICT e) const {
    T* HWY_RESTRICT const to = Of(token);
    const T by = static_cast<T>(factor);
    if (n_ == 1) {
      for (std::int64_t i = 0; i < dim_; ++i) to[i] -= 2 * by * f[i] * e[i];
      return;
    }
    ForRows([&](std::int64_t i, std::int64_t begin, std::int64_t count) {
      const T by_f = by * f[i];
      const T by_e = by * e[i];
      T* HWY_RESTRICT const row = to + i * n_;
      for (std::int64_t c = 0; c < count; ++c) row[c] -= by_f * e[begin + c] + by_e * f[begin + c];
    });
  }

  /// dL/dA_ii.
  double Diagonal(std::int64_t token, std::int64_t i) const {
    return any() ? static_cast<double>(Of(token)[i * n_ + i % n_]) / 2 : 0;
  }

  /// Adds the blocks of a stretch to the gradients of its keys, each token's to the keys that it
  /// sees, and to F + F^T. Overwrites the blocks by their sums.
  void Add(const Reads& read, std::int64_t tokens, const Block<T>& keys, const Block<T>& dk,
           const Block<T>& f) const {
    for (std::int64_t j = read.count - 1; j >= 0; --j) {
      T* HWY_RESTRICT const sum = Of(read.begin + j);
      const T* HWY_RESTRICT const later = sum + size_;
      for (std::int64_t i = 0; i < size_ && j + 1 < read.count; ++i) sum[i] += later[i];
      if (j < tokens) AddProduct(sum, keys.Row(j), dk.Row(j));
    }
    const T* const sum = Of(read.begin);
    ForRows([&](std::int64_t i, std::int64_t begin, std::int64_t count) {
      for (std::int64_t c = 0; c < count; ++c) f.Row(i)[begin + c] += sum[i * n_ + c];
    });
  }

 private:
  T* Of(std::int64_t token) const { return blocks_ + token * size_; }

  void AddProduct(const T* HWY_RESTRICT blocks, const T* HWY_RESTRICT x, T* HWY_RESTRICT to) const {
    if (n_ == 1) {
      for (std::int64_t i = 0; i < dim_; ++i) to[i] += blocks[i] * x[i];
      return;
    }
    ForRows([&](std::int64_t i, std::int64_t begin, std::int64_t count) {
      for (std::int64_t c = 0; c < count; ++c) to[begin + c] += x[i] * blocks[i * n_ + c];
    });
  }

  /// Calls each(channel, first channel of its block, channels of that).
  template <class Each>
  void ForRows(const Each& each) const {
    for (std::int64_t begin = 0; begin < dim_; begin += n_) {
      const std::int64_t count = std::min(n_, dim_ - begin);
      for (std::int64_t i = begin; i < begin + count; ++i) each(i, begin, count);
    }
  }

  std::int64_t dim_, n_, size_;
  T* blocks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_BLOCK_PRECONDITIONER_INL_H_
