// The systems of a chunk's tokens, as what multiplies vectors. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_PREFIX_SYSTEMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_PREFIX_SYSTEMS_INL_H_
#undef TTR_LEAST_SQUARES_PREFIX_SYSTEMS_INL_H_
#else
#define TTR_LEAST_SQUARES_PREFIX_SYSTEMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/block_inverses-inl.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/iteration_scratch.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/spectra-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Steps of a product whose left rows are vectors and, behind them, their products with the keys
/// that their systems have seen. Systems are in order.
struct SeenKeys {
  std::int64_t columns, keys_unit, tokens;
  const std::int32_t* system;
  std::int64_t rows;
  std::int64_t FirstColumn(std::int64_t) const { return 0; }
  std::int64_t FirstStep(std::int64_t) const { return 0; }
  std::int64_t Steps(std::int64_t i, std::int64_t) const {
    const std::int64_t last = std::min<std::int64_t>(i + ln::kTileRows, rows) - 1;
    return keys_unit + std::min<std::int64_t>(system[last] + 1, tokens);
  }
};

/// System i is that of the chunk's token i, A_i + R_i with
///
///     A_i = c_i (A_0 + sum_{j <= i} k_j k_j^T),   k weighted by sqrt(w / c)
///
/// or there is one, that of the memory as it is.
template <class T>
class PrefixSystems {
 public:
  using Block = ln::Block<T>;
  using Left = ln::Left<T>;

  /// `s.k` lies behind the rows of A in `it.stacked`.
  PrefixSystems(const Options& options, const Memory& memory, const Scratch<T>& s,
                const IterationScratch<T>& it, const Carried<T>& carried)
      : options_(options),
        memory_(memory),
        s_(s),
        it_(it),
        carried_(carried),
        inverses_(memory.key_dim, std::max<std::int64_t>(1, it.block), it.work),
        spectra_(memory.key_dim, it.vectors > 0, it.spectra) {
    std::fill(it_.ridge, it_.ridge + s_.keys_unit, T(0));
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      it_.ridge[i] = static_cast<T>(memory_.ridge[i]);
      least_ridge_ = i == 0 ? memory_.ridge[i] : std::min(least_ridge_, memory_.ridge[i]);
      most_ridge_ = std::max(most_ridge_, memory_.ridge[i]);
    }
  }

  /// The systems of a chunk, or (no chunk) of the memory as it is. False: A is not finite.
  bool Prepare(const Chunk* chunk) {
    tokens_ = chunk ? chunk->tokens : 0;
    count_ = std::max<std::int64_t>(1, tokens_);
    if (!CopyMemory()) return false;
    double log_c = 0;
    for (std::int64_t i = 0; i < count_; ++i) {
      if (i > 0) log_c += LogDecay(memory_, chunk->first + i);
      it_.fade[i] = std::exp(log_c);
    }
    if (tokens_ > 0) {
      sn::TransposeStrided(s_.k, s_.k_stride, RoundUp(tokens_, kUnit), s_.keys_unit, it_.kt,
                           it_.kt_stride);
    }
    const bool relative = options_.ridge == Ridge::kRelative;
    if (relative || options_.iteration.solver == Solver::kChebyshev) Norms();
    for (std::int64_t i = 0; i < count_; ++i) {
      it_.factor[i] = options_.ridge == Ridge::kInState ? 0 : (relative ? it_.norm[i] : 1);
    }
    if (options_.iteration.solver == Solver::kConjugateGradient) Traces();
    if (options_.iteration.preconditioner == Preconditioner::kDiagonal) Diagonals();
    if (options_.iteration.preconditioner == Preconditioner::kBlockDiagonal) Blocks();
    if (options_.needs_spectra()) DecomposeAll();
    return true;
  }

  std::int64_t count() const { return count_; }
  double Fade(std::int64_t system) const { return it_.fade[system]; }
  /// Of A_i + R_i, for conjugate gradients: what no eigenvalue is above.
  double Trace(std::int64_t system) const { return it_.trace[system]; }
  /// rho_i, where A_i + R_i = c_i (A_0 + sum k k^T + rho_i diag(ridge)).
  double RidgeFactor(std::int64_t system) const {
    return it_.factor[system] == 0 ? 0 : it_.factor[system] / it_.fade[system];
  }
  Block kt() const { return {it_.kt, it_.kt_stride}; }

  /// An interval that holds the eigenvalues: H_i, without its ridge, is positive semi-definite. A
  /// ridge that has faded cannot be told from the data.
  double Low(std::int64_t system) const {
    if (options_.needs_spectra()) return std::max(Eigenvalue(system, memory_.key_dim - 1), 0.0);
    return RidgeSize(system) * least_ridge_;
  }
  double High(std::int64_t system) const {
    if (options_.needs_spectra()) return it_.norm[system];
    return RidgeSize(system) * most_ridge_ + it_.norm[system];
  }

  /// The i-th largest eigenvalue of A_i + R_i; that of the low-rank P for its eigenvector.
  double Eigenvalue(std::int64_t system, std::int64_t i) const {
    return it_.eigenvalues[system * memory_.key_dim + i];
  }
  double InverseAlong(std::int64_t system, std::int64_t i) const {
    const double cut = Rounding<T>(memory_.key_dim) * Eigenvalue(system, 0);
    const double value = Eigenvalue(system, std::min(i, options_.iteration.rank));
    return value <= cut ? 0 : 1 / value;
  }
  /// Component i of those eigenvectors that are kept.
  const double* Eigenvectors(std::int64_t system, std::int64_t i) const {
    return it_.eigenvectors + (system * memory_.key_dim + i) * it_.vectors_stride;
  }

  /// ax <- (A_0 + sum k k^T) x for rows of x, of these systems (in order). Behind its D numbers a
  /// row of x has room for its products with the keys. Finish() makes a product of A_i + R_i of it.
  void Multiply(const Block& x, const std::int32_t* system, std::int64_t rows,
                const Block& ax) const {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    if (unit == 0 && rows < ln::kTileRows / 2) {  // a token or two: most of a tile would be idle
      for (std::int64_t j = 0; j < rows; ++j) MultiplyRow(x.Row(j), ax.Row(j));
      return;
    }
    if (unit > 0) {
      const Block behind = x.Columns(s_.keys_unit);
      ln::Multiply<ln::Into::kSet>(Left::Of(x), kt(), rows, ln::Whole{unit, s_.keys_unit}, behind);
      for (std::int64_t j = 0; j < rows; ++j) {
        std::fill(behind.Row(j) + std::min<std::int64_t>(system[j] + 1, tokens_),
                  behind.Row(j) + unit, T(0));
      }
    }
    ln::Multiply<ln::Into::kSet>(Left::Of(x), Block{it_.stacked, s_.k_stride}, rows,
                                 SeenKeys{s_.keys_unit, s_.keys_unit, tokens_, system, rows}, ax);
  }

  /// A vector of (A_i + R_i) x, at v, from what Multiply() left.
  template <class D>
  HWY_INLINE hn::Vec<D> Finish(D d, hn::Vec<D> fade, hn::Vec<D> factor, const T* ax, const T* x,
                               std::int64_t v) const {
    const auto ridge = hn::Mul(hn::Mul(factor, hn::Load(d, it_.ridge + v)), hn::Load(d, x + v));
    return hn::MulAdd(fade, hn::Load(d, ax + v), ridge);
  }
  T Factor(std::int64_t system) const { return static_cast<T>(it_.factor[system]); }

  /// The diagonals of the systems that are prepared, for Precondition(). Prepare() does it where
  /// they are all there is.
  void Diagonals() const {
    double* const sums = it_.blocks;
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) sums[i] = static_cast<double>(Stacked(i)[i]);
    for (std::int64_t t = 0; t < count_; ++t) {
      T* const inverse = it_.inverse + t * s_.keys_unit;
      const T* const key = carried_.keys().Row(t);
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
        if (tokens_ > 0) sums[i] += static_cast<double>(key[i]) * static_cast<double>(key[i]);
        const double x = it_.fade[t] * sums[i] + it_.factor[t] * static_cast<double>(it_.ridge[i]);
        inverse[i] = x == 0 ? T(0) : static_cast<T>(1 / x);
      }
    }
  }

  /// P r; r itself where there is no preconditioner.
  const T* Precondition(std::int64_t system, const T* r, T* to) const {
    switch (options_.iteration.preconditioner) {
      case Preconditioner::kNone: return r;
      case Preconditioner::kDiagonal:
      case Preconditioner::kChunkFactor: {
        const hn::ScalableTag<T> d;
        const T* const inverse = it_.inverse + system * s_.keys_unit;
        for (std::int64_t v = 0; v < s_.keys_unit; v += LanesOf(d)) {
          hn::Store(hn::Mul(hn::Load(d, inverse + v), hn::Load(d, r + v)), d, to + v);
        }
        return to;
      }
      case Preconditioner::kBlockDiagonal: {
        // Whole vectors: what they hold behind a block is overwritten by the next one.
        const hn::ScalableTag<T> d;
        const T* const inverse = it_.inverse + system * s_.keys_unit * it_.block;
        for (std::int64_t begin = 0; begin < memory_.key_dim; begin += it_.block) {
          const std::int64_t n = std::min(it_.block, memory_.key_dim - begin);
          const T* const rows = inverse + begin * it_.block;
          for (std::int64_t c = 0; c < n; c += LanesOf(d)) {
            auto sum = hn::Zero(d);
            for (std::int64_t i = 0; i < n; ++i) {
              sum =
                  hn::MulAdd(hn::Set(d, r[begin + i]), hn::LoadU(d, rows + i * it_.block + c), sum);
            }
            hn::StoreU(sum, d, to + begin + c);
          }
        }
        std::fill(to + memory_.key_dim, to + s_.keys_unit, T(0));
        return to;
      }
      case Preconditioner::kLowRank: PreconditionAlong(system, r, to); return to;
    }
    return r;
  }

 private:
  template <class D>
  static std::int64_t LanesOf(D d) {
    return static_cast<std::int64_t>(hn::Lanes(d));
  }

  double RidgeSize(std::int64_t system) const {
    return options_.ridge == Ridge::kRelative ? it_.norm[system] : 1;
  }

  /// ax <- A_0 x.
  void MultiplyRow(const T* x, T* ax) const {
    const hn::ScalableTag<T> d;
    ln::ForTiles(d, 0, s_.keys_unit, [&](std::int64_t j, auto vectors) HWY_ATTR {
      MultiplyColumns<decltype(d), vectors()>(d, x, j, ax + j);
    });
  }

  /// Columns from j on, in sums that do not wait for each other.
  template <class D, int NV>
  HWY_INLINE void MultiplyColumns(D d, const T* x, std::int64_t j, T* ax) const {
    constexpr int kSums = 4;
    ln::Tile<D, kSums, NV> sums;
    ln::SetZero<D, kSums, NV>(d, sums);
    for (std::int64_t i = 0; i < s_.keys_unit; i += kSums) {
      TTR_UNROLL
      for (int r = 0; r < kSums; ++r) {
        const T* const row = Stacked(i + r) + j;
        const auto left = hn::Set(d, x[i + r]);
        TTR_UNROLL
        for (int v = 0; v < NV; ++v) {
          sums[r][v] = hn::MulAdd(left, hn::Load(d, row + v * LanesOf(d)), sums[r][v]);
        }
      }
    }
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) {
      const auto even = hn::Add(sums[0][v], sums[2][v]);
      hn::Store(hn::Add(even, hn::Add(sums[1][v], sums[3][v])), d, ax + v * LanesOf(d));
    }
  }

  T* Stacked(std::int64_t i) const { return it_.stacked + i * s_.k_stride; }

  /// All of A, of which the memory carries the upper triangle.
  bool CopyMemory() const {
    sn::TransposeStrided(s_.a, s_.a_stride, s_.keys_unit, s_.keys_unit, it_.stacked, s_.k_stride);
    bool finite = true;
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      const T* const row = s_.a + i * s_.a_stride;
      finite &= AllFinite(row + i, s_.keys_unit - i);
      std::copy(row + i, row + s_.keys_unit, Stacked(i) + i);
    }
    return finite;
  }

  /// |H_i|_F, H = A without the ridge where that is part of it and told apart:
  ///
  ///     |H_0 + sum k k^T|^2 = |H_0|^2 + 2 sum k_i^T H_0 k_i + sum (k_i . k_j)^2
  ///
  /// of which no term is negative.
  void Norms() const {
    const bool with_ridge = options_.ridge == Ridge::kInState && !options_.fades;
    const auto ridge = [&](std::int64_t i) { return with_ridge ? memory_.ridge[i] : 0; };
    double squares = 0;
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      const T* const row = Stacked(i);
      const double own = static_cast<double>(row[i]) - ridge(i);
      const double others = sn::WideDot(memory_.key_dim - i - 1, row + i + 1, row + i + 1);
      squares += own * own + 2 * others;
    }
    if (tokens_ == 0) {
      it_.norm[0] = std::sqrt(squares);
      return;
    }
    const Block keys = carried_.keys();
    const Block gram{it_.scores, it_.kt_stride};
    const Block products{it_.ad, s_.k_stride};
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    ln::Multiply<ln::Into::kSet>(Left::Of(keys), kt(), unit, ln::Whole{unit, s_.keys_unit}, gram);
    ln::Multiply<ln::Into::kSet>(Left::Of(keys), Block{it_.stacked, s_.k_stride}, unit,
                                 ln::Whole{s_.keys_unit, s_.keys_unit}, products);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const T* const key = keys.Row(t);
      const T* const others = gram.Row(t);
      double first = sn::WideDot(memory_.key_dim, key, products.Row(t));
      for (std::int64_t i = 0; with_ridge && i < memory_.key_dim; ++i) {
        first -= ridge(i) * static_cast<double>(key[i]) * static_cast<double>(key[i]);
      }
      const double own = static_cast<double>(others[t]);
      squares += 2 * std::max(0.0, first) + 2 * sn::WideDot(t, others, others) + own * own;
      it_.norm[t] = it_.fade[t] * std::sqrt(squares);
    }
  }

  void Traces() const {
    double sum = 0, ridge = 0;
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      sum += static_cast<double>(Stacked(i)[i]);
      ridge += memory_.ridge[i];
    }
    for (std::int64_t t = 0; t < count_; ++t) {
      if (t < tokens_) sum += sn::SumOfSquares(carried_.keys().Row(t), memory_.key_dim);
      it_.trace[t] = it_.fade[t] * sum + it_.factor[t] * ridge;
    }
  }

  void Blocks() const {
    const std::int64_t n = it_.block;
    ForDiagonalBlocks(n, [&](std::int64_t system, const auto& element) {
      inverses_.Invert(element, it_.inverse + system * s_.keys_unit * n);
    });
  }

  void DecomposeAll() {
    const std::int64_t size = memory_.key_dim;
    const std::int64_t together = Spectra::Together();
    ForDiagonalBlocks(size, [&](std::int64_t system, const auto& element) {
      const std::int64_t lane = system % together;
      spectra_.Load(lane, [&](std::int64_t i, std::int64_t c) { return element(0, i, c); });
      if (lane + 1 < together && system + 1 < count_) return;
      spectra_.Decompose(lane + 1);
      for (std::int64_t l = 0; l <= lane; ++l) {
        const std::int64_t at = (system - lane + l) * size;
        spectra_.Leave(l, it_.eigenvalues + at, it_.vectors, it_.vectors_stride,
                       it_.eigenvectors + at * it_.vectors_stride);
      }
    });
  }

  /// P r by eigenvectors. In double: what P makes of roundings along the smallest eigenvalues is
  /// large beside what it makes of r along the others.
  void PreconditionAlong(std::int64_t system, const T* r, T* to) const {
    const std::int64_t size = memory_.key_dim;
    const std::int64_t rank = std::min(options_.iteration.rank, size);
    const double others = rank < size ? InverseAlong(system, rank) : 0;
    double* HWY_RESTRICT const along = it_.along;
    const std::int64_t count = RoundUp(rank, kUnit / 2);
    std::fill(along, along + count, 0.0);
    for (std::int64_t i = 0; i < size; ++i) {
      const double* HWY_RESTRICT const row = Eigenvectors(system, i);
      const double x = static_cast<double>(r[i]);
      for (std::int64_t v = 0; v < count; ++v) along[v] += x * row[v];
    }
    for (std::int64_t v = 0; v < count; ++v) {
      along[v] *= v < rank ? InverseAlong(system, v) - others : 0;
    }
    for (std::int64_t i = 0; i < size; ++i) {
      const double sum = sn::WideDot(count, Eigenvectors(system, i), along);
      to[i] = static_cast<T>(others * static_cast<double>(r[i]) + sum);
    }
    std::fill(to + size, to + s_.keys_unit, T(0));
  }

  /// Calls each(system, element) for all of them in order: `element(begin, i, c)`, c <= i, is that
  /// of channels begin + i and begin + c in the block of `n` channels that starts at `begin`.
  template <class Each>
  void ForDiagonalBlocks(std::int64_t n, const Each& each) const {
    const std::int64_t size = memory_.key_dim;
    double* const sums = it_.blocks;  // row i: channel i and those of its block up to it
    for (std::int64_t begin = 0; begin < size; begin += n) {
      for (std::int64_t i = begin; i < std::min(begin + n, size); ++i) {
        for (std::int64_t c = begin; c <= i; ++c) {
          sums[i * n + c - begin] = static_cast<double>(Stacked(i)[c]);
        }
      }
    }
    for (std::int64_t t = 0; t < count_; ++t) {
      const T* const key = carried_.keys().Row(t);
      for (std::int64_t begin = 0; tokens_ > 0 && begin < size; begin += n) {
        for (std::int64_t i = begin; i < std::min(begin + n, size); ++i) {
          const double left = static_cast<double>(key[i]);
          double* const row = sums + i * n;
          for (std::int64_t c = 0; c <= i - begin; ++c) {
            row[c] += left * static_cast<double>(key[begin + c]);
          }
        }
      }
      const double fade = it_.fade[t];
      const double factor = it_.factor[t];
      each(t, [&](std::int64_t begin, std::int64_t i, std::int64_t c) {
        const double x = fade * sums[(begin + i) * n + c];
        return i == c ? x + factor * memory_.ridge[begin + i] : x;
      });
    }
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const IterationScratch<T>& it_;
  const Carried<T>& carried_;
  const BlockInverses<T> inverses_;
  Spectra spectra_;
  double least_ridge_ = 0, most_ridge_ = 0;
  std::int64_t tokens_ = 0, count_ = 1;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_PREFIX_SYSTEMS_INL_H_
