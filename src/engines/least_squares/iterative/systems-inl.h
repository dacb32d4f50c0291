// The systems of a chunk's tokens, as what multiplies vectors. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_SYSTEMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_SYSTEMS_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_SYSTEMS_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_SYSTEMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Steps of a product whose left rows are vectors and, beside them, their products with the keys
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
  /// `s.k` are the rows of `it.stacked` below those of A.
  PrefixSystems(const Options& options, const Memory& memory, const Scratch<T>& s,
                const IterationScratch<T>& it)
      : options_(options), memory_(memory), s_(s), it_(it) {
    std::fill(it_.ridge, it_.ridge + s_.keys_unit, T(0));
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      it_.ridge[i] = static_cast<T>(memory_.ridge[i]);
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
    if (tokens_ > 0) ln::Transpose(s_.k, RoundUp(tokens_, kUnit), s_.keys_unit, it_.kt);
    const bool relative = options_.ridge == Ridge::kRelative;
    if (options_.depends_on_norm() || options_.iteration.solver == Solver::kChebyshev) Norms();
    for (std::int64_t i = 0; i < count_; ++i) {
      it_.factor[i] = options_.ridge == Ridge::kInState ? 0 : (relative ? it_.norm[i] : 1);
    }
    if (options_.iteration.solver == Solver::kConjugateGradient) Traces();
    return true;
  }

  std::int64_t count() const { return count_; }
  std::int64_t tokens() const { return tokens_; }
  double Fade(std::int64_t system) const { return it_.fade[system]; }
  /// The trace of A_i + R_i, which bounds its eigenvalues from above; for conjugate gradients.
  double Trace(std::int64_t system) const { return it_.trace[system]; }
  /// |A_i|_F, where options_.depends_on_norm(); |H_i|_F, for Chebyshev's iteration.
  double Norm(std::int64_t system) const { return it_.norm[system]; }
  /// rho_i, where A_i + R_i = c_i (A_0 + sum k k^T + rho_i diag(ridge)).
  double RidgeFactor(std::int64_t system) const {
    return it_.factor[system] == 0 ? 0 : it_.factor[system] / it_.fade[system];
  }
  T Factor(std::int64_t system) const { return static_cast<T>(it_.factor[system]); }

  /// ax <- (A_0 + sum k k^T) x for rows of x, of these systems (in order). Beside its D numbers a
  /// row of x has room for its products with the keys. Finish() makes a product of A_i + R_i of it.
  void Multiply(const Block<T>& x, const std::int32_t* system, std::int64_t rows,
                const Block<T>& ax) const {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    if (unit == 0 && rows < ln::kTileRows / 2) {  // a token or two: most of a tile would be idle
      for (std::int64_t j = 0; j < rows; ++j) MultiplyRow(x.Row(j), ax.Row(j));
      return;
    }
    if (unit > 0) {
      const Block<T> products = x.Columns(s_.keys_unit);
      ln::Multiply<ln::Into::kSet>(Left<T>::Of(x), it_.kt, rows, ln::Whole{unit, s_.keys_unit},
                                   products);
      for (std::int64_t j = 0; j < rows; ++j) {
        std::fill(products.Row(j) + std::min<std::int64_t>(system[j] + 1, tokens_),
                  products.Row(j) + unit, T(0));
      }
    }
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(x), it_.stacked, rows,
                                 SeenKeys{s_.keys_unit, s_.keys_unit, tokens_, system, rows}, ax);
  }

  /// A vector of (A_i + R_i) x, at v, from what Multiply() left.
  template <class D>
  HWY_INLINE hn::Vec<D> Finish(D d, hn::Vec<D> fade, hn::Vec<D> factor, const T* ax, const T* x,
                               std::int64_t v) const {
    const auto ridge = hn::Mul(hn::Mul(factor, hn::Load(d, it_.ridge + v)), hn::Load(d, x + v));
    return hn::MulAdd(fade, hn::Load(d, ax + v), ridge);
  }

  /// Calls each(system, element) for all of them in order: `element(begin, i, c)`, c <= i, is that
  /// of channels begin + i and begin + c in the block of `n` channels that starts at `begin`.
  template <class Each>
  void ForDiagonalBlocks(std::int64_t n, const Each& each) const {
    const std::int64_t size = memory_.key_dim();
    double* const sums = it_.p.sums;  // row i: channel i and those of its block up to it
    for (std::int64_t begin = 0; begin < size; begin += n) {
      for (std::int64_t i = begin; i < std::min(begin + n, size); ++i) {
        for (std::int64_t c = begin; c <= i; ++c) {
          sums[i * n + c - begin] = static_cast<double>(it_.stacked.Row(i)[c]);
        }
      }
    }
    for (std::int64_t t = 0; t < count_; ++t) {
      const T* const key = s_.k.Row(t);
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

 private:
  template <class D>
  static std::int64_t LanesOf(D d) {
    return static_cast<std::int64_t>(hn::Lanes(d));
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
        const T* const row = it_.stacked.Row(i + r) + j;
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

  /// All of A, of which the running sums have the upper triangle.
  bool CopyMemory() const {
    ln::Transpose(s_.a, s_.keys_unit, s_.keys_unit, it_.stacked);
    bool finite = true;
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      const T* const row = s_.a.Row(i);
      finite &= AllFinite(row + i, s_.keys_unit - i);
      std::copy(row + i, row + s_.keys_unit, it_.stacked.Row(i) + i);
    }
    return finite;
  }

  /// |H_i|_F, where H = A, for Chebyshev's iteration less the ridge if A holds one that has not
  /// faded:
  ///
  ///     |H_0 + sum k k^T|^2 = |H_0|^2 + 2 sum k_i^T H_0 k_i + sum (k_i . k_j)^2
  ///
  /// of which no term is negative.
  void Norms() const {
    const bool with_ridge = options_.ridge == Ridge::kInState && !options_.fades &&
                            options_.iteration.solver == Solver::kChebyshev;
    const auto ridge = [&](std::int64_t i) { return with_ridge ? memory_.ridge[i] : 0; };
    double squares = 0;
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      const T* const row = it_.stacked.Row(i);
      const double own = static_cast<double>(row[i]) - ridge(i);
      const double others = sn::WideDot(memory_.key_dim() - i - 1, row + i + 1, row + i + 1);
      squares += own * own + 2 * others;
    }
    if (tokens_ == 0) {
      it_.norm[0] = std::sqrt(squares);
      return;
    }
    const Block<T>& keys = s_.k;
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(keys), it_.kt, unit, ln::Whole{unit, s_.keys_unit},
                                 it_.scores);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(keys), it_.stacked, unit,
                                 ln::Whole{s_.keys_unit, s_.keys_unit}, it_.ad);
    for (std::int64_t t = 0; t < tokens_; ++t) {
      const T* const key = keys.Row(t);
      const T* const others = it_.scores.Row(t);
      double first = sn::WideDot(memory_.key_dim(), key, it_.ad.Row(t));
      for (std::int64_t i = 0; with_ridge && i < memory_.key_dim(); ++i) {
        first -= ridge(i) * static_cast<double>(key[i]) * static_cast<double>(key[i]);
      }
      const double own = static_cast<double>(others[t]);
      squares += 2 * std::max(0.0, first) + 2 * sn::WideDot(t, others, others) + own * own;
      it_.norm[t] = it_.fade[t] * std::sqrt(squares);
    }
  }

  void Traces() const {
    double sum = 0, ridge = 0;
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      sum += static_cast<double>(it_.stacked.Row(i)[i]);
      ridge += memory_.ridge[i];
    }
    for (std::int64_t t = 0; t < count_; ++t) {
      if (t < tokens_) sum += sn::SumOfSquares(s_.k.Row(t), memory_.key_dim());
      it_.trace[t] = it_.fade[t] * sum + it_.factor[t] * ridge;
    }
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const IterationScratch<T>& it_;
  std::int64_t tokens_ = 0, count_ = 1;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_SYSTEMS_INL_H_
