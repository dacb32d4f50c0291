// All prefixes of a chunk from one factor of the memory that it starts from. Compiled once for
// every target.

#if defined(TTR_LEAST_SQUARES_EXACT_PREFIXES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_EXACT_PREFIXES_INL_H_
#undef TTR_LEAST_SQUARES_EXACT_PREFIXES_INL_H_
#else
#define TTR_LEAST_SQUARES_EXACT_PREFIXES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/cholesky-inl.h"
#include "src/linalg/pivots-inl.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// How much larger a token's leverage may be at the start of its chunk than when it is eliminated:
/// digits are lost in proportion.
inline constexpr double kMostLoss = 8;

/// Right-hand sides are the rows of s.q, `queries` a token of the chunk: row j sees the memory and
/// the chunk's tokens up to j / queries. K and V of the chunk are in s.k and s.v. `prefetcher`
/// fetches meanwhile, if given.
template <class T>
class Prefixes {
 public:
  Prefixes(const Options& options, const Memory& memory, const Scratch<T>& scratch,
           const RunningSums<T>& sums, simd::Prefetcher* prefetcher = nullptr)
      : options_(options),
        memory_(memory),
        s_(scratch),
        p_(scratch.prefix),
        sums_(sums),
        prefetcher_(prefetcher) {}

  /// Factors and whitens for this many tokens and rows. Returns for how many of the tokens (and the
  /// rows that see no others) what follows is right; 0: the memory is singular. A memory without
  /// any association is left to the caller unless `may_be_empty`.
  std::int64_t Begin(std::int64_t tokens, std::int64_t rows, bool may_be_empty) {
    empty_ = Empty();
    if (empty_ && !may_be_empty) return 0;
    columns_ = RoundUp(rows, kUnit);
    const std::int64_t unit = RoundUp(tokens, kUnit);
    ln::Transpose(s_.k, unit, s_.keys_unit, p_.keys);
    // A chunk may have been cut: keys behind its last token are not zero then, and a factor that
    // ends at one of them would leave rows unwritten.
    linalg::ZeroRows(p_.keys.Columns(tokens), 0, s_.keys_unit, unit - tokens);
    ln::Transpose(s_.q, columns_, s_.keys_unit, p_.queries);
    if (!empty_) {
      if (!FactorMemory()) return 0;
      ln::SubstituteDown(p_.memory, s_.keys_unit, p_.keys, unit, prefetcher_);
      ln::SubstituteDown(p_.memory, s_.keys_unit, p_.queries, columns_, prefetcher_);
    }
    tokens_ = tokens;
    for (;;) {
      const std::int64_t right = FactorTokens();
      if (right == tokens_ || right == 0) return right;
      tokens_ = right;
      linalg::ZeroRows(p_.keys.Columns(tokens_), 0, s_.keys_unit, unit - tokens_);
    }
  }

  /// Was there nothing before the chunk? Then fewer tokens than dimensions are solved by the
  /// solution of least norm.
  bool empty() const { return empty_; }

  /// Y = Wq^T Wb + triu(P)^T E in s.y.
  void Outputs() {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    MakeErrors();
    if (empty_) {
      linalg::ZeroRows(s_.y, 0, columns_, s_.values_unit);
    } else {
      ln::Multiply<ln::Into::kSet>(Left<T>::Transposed(p_.queries), p_.wb, columns_,
                                   ln::Whole{s_.values_unit, s_.keys_unit}, s_.y, prefetcher_);
    }
    MakeGains(memory_.queries);
    ln::Multiply<ln::Into::kAdd>(Left<T>::Transposed(p_.gains), p_.errors, columns_,
                                 ln::LowerLeft{s_.values_unit, unit, memory_.queries}, s_.y,
                                 prefetcher_);
  }

  /// For rows of queries and, as columns dY^T, the gradients of their outputs: x and z of the
  /// gradient, and what it asks for of keys and values,
  ///
  ///     C = triu(K X^T) = L^-T triu(P)                  X = U^-1 (Wq - Wk C)
  ///     A = triu(V dY^T - K Z^T) = L^-T triu(E dY^T)    Z = U^-1 (Wb dY^T + Wk A)
  ///
  /// K and V weighted. Found so, A is no small difference of large products, and Z no difference
  /// at all. done(x, c, true) and done(z, a, false) take them, a column an output.
  template <class Done>
  void Pairs(const Block<T>& dyt, const Done& done) {
    const std::int64_t queries = memory_.queries;
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    const ln::UpperRight back{columns_, unit, queries};
    const ln::UpperRows seen{unit, queries};
    MakeErrors();
    MakeGains(queries);
    ln::SubstituteUp(p_.tokens, seen, p_.gains, columns_);
    ln::Multiply<ln::Into::kSubtract>(Left<T>::Of(p_.keys), p_.gains, s_.keys_unit, back,
                                      p_.queries);
    ln::SubstituteUp(p_.memory, s_.keys_unit, p_.queries, columns_);
    done(p_.queries, p_.gains, true);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(p_.errors), dyt, unit,
                                 ln::UpperResult{columns_, s_.values_unit, queries}, p_.gains);
    linalg::ZeroBelowStairs(p_.gains, unit, columns_, queries, tokens_);
    ln::SubstituteUp(p_.tokens, seen, p_.gains, columns_);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(p_.wb), dyt, s_.keys_unit,
                                 ln::Whole{columns_, s_.values_unit}, p_.queries);
    ln::Multiply<ln::Into::kAdd>(Left<T>::Of(p_.keys), p_.gains, s_.keys_unit, back, p_.queries);
    ln::SubstituteUp(p_.memory, s_.keys_unit, p_.queries, columns_);
    done(p_.queries, p_.gains, false);
  }

  /// The right-hand sides solved with the memory alone, as columns: x = (A + R)^-1 q. False where
  /// it is singular.
  bool SolveColumns(std::int64_t rows) {
    columns_ = RoundUp(rows, kUnit);
    ln::Transpose(s_.q, columns_, s_.keys_unit, p_.queries);
    if (!FactorMemory()) return false;
    ln::SubstituteDown(p_.memory, s_.keys_unit, p_.queries, columns_);
    ln::SubstituteUp(p_.memory, s_.keys_unit, p_.queries, columns_);
    return true;
  }
  const Block<T>& columns() const { return p_.queries; }

  /// U with A + R = U^T U, or false where A is singular to rounding or not finite.
  bool FactorMemory() {
    CopyMemory();
    ln::Pivots<T> pivots(p_.memory, memory_.key_dim(), p_.most_pivots, p_.pivots);
    const auto goes_on = [&](std::int64_t i, T diagonal, T left) {
      return pivots(i, diagonal, left);
    };
    return ln::Factor(p_.memory, s_.keys_unit, goes_on).index == s_.keys_unit;
  }
  const Block<T>& factor() const { return p_.memory.u; }

 private:
  bool Empty() const {
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      if (s_.a.Row(i)[i] != 0) return false;
    }
    return options_.ridge == Ridge::kInState;
  }

  /// A + R, R the ridge that is not in the state; ones on the diagonal after D.
  void CopyMemory() {
    const Block<T>& u = p_.memory.u;
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      std::copy(s_.a.Row(i) + i, s_.a.Row(i) + s_.keys_unit, u.Row(i) + i);
    }
    for (std::int64_t i = memory_.key_dim(); i < s_.keys_unit; ++i) u.Row(i)[i] = T(1);
    if (options_.ridge == Ridge::kInState) return;
    const double factor = options_.ridge == Ridge::kRelative ? sums_.FrobeniusNorm() : 1;
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      u.Row(i)[i] += static_cast<T>(memory_.ridge[i] * factor);
    }
  }

  /// S = I + Wk^T Wk = L L^T (without I where the memory is empty). Returns how many tokens keep
  /// their digits.
  std::int64_t FactorTokens() {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    const Block<T>& s = p_.tokens.u;
    ln::Multiply<ln::Into::kSet>(Left<T>::Transposed(p_.keys), p_.keys, unit,
                                 ln::UpperResult{unit, s_.keys_unit}, s, prefetcher_);
    for (std::int64_t i = 0; i < unit; ++i) {
      T& diagonal = s.Row(i)[i];
      diagonal = i < tokens_ ? diagonal + (empty_ ? T(0) : T(1)) : T(1);
    }
    ln::Pivots<T> pivots(p_.tokens, memory_.key_dim(), p_.most_pivots, p_.pivots);
    // A token this far beyond all that the memory has seen leaves it singular to rounding.
    const T most_leverage = static_cast<T>(1 / linalg::Rounding<double>(memory_.key_dim()));
    const auto goes_on = [&](std::int64_t i, T diagonal, T left) {
      // No more tokens than dimensions are independent.
      if (empty_) return i >= tokens_ || (i < memory_.key_dim() && pivots(i, diagonal, left));
      if (diagonal > most_leverage) return false;
      return left * static_cast<T>(kMostLoss) >= diagonal || (i == 0 && !(left <= 0));
    };
    return std::min(ln::Factor(p_.tokens, unit, goes_on).index, tokens_);
  }

  /// P = L^-1 Wk^T Wq, zero where a row does not see a token.
  void MakeGains(std::int64_t queries) {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    ln::Multiply<ln::Into::kSet>(Left<T>::Transposed(p_.keys), p_.queries, unit,
                                 ln::UpperResult{columns_, s_.keys_unit, queries}, p_.gains,
                                 prefetcher_);
    ln::SubstituteDown(p_.tokens, ln::UpperRows{unit, queries}, p_.gains, p_.gains, columns_,
                       prefetcher_);
    linalg::ZeroBelowStairs(p_.gains, unit, columns_, queries, tokens_);
  }

  /// Wb = U^-T B and E = L^-1 (V - Wk^T Wb): what is new in the chunk's tokens.
  void MakeErrors() {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    if (empty_) {
      ln::SubstituteDown(p_.tokens, ln::AllRows{unit}, s_.v, p_.errors, s_.values_unit,
                         prefetcher_);
      return;
    }
    ln::SubstituteDown(p_.memory, ln::AllRows{s_.keys_unit}, s_.b, p_.wb, s_.values_unit,
                       prefetcher_);
    ln::Multiply<ln::Into::kSubtract>(Left<T>::Transposed(p_.keys), p_.wb, unit,
                                      ln::Whole{s_.values_unit, s_.keys_unit}, s_.v, p_.errors,
                                      prefetcher_);
    ln::SubstituteDown(p_.tokens, unit, p_.errors, s_.values_unit, prefetcher_);
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const PrefixScratch<T>& p_;
  const RunningSums<T>& sums_;
  simd::Prefetcher* const prefetcher_;
  std::int64_t tokens_ = 0;
  std::int64_t columns_ = 0;
  bool empty_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_EXACT_PREFIXES_INL_H_
