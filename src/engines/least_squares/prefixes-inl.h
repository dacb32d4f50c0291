// All prefixes of a chunk from one factor of the memory that it starts from. Compiled once for
// every target.

#if defined(TTR_LEAST_SQUARES_PREFIXES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_PREFIXES_INL_H_
#undef TTR_LEAST_SQUARES_PREFIXES_INL_H_
#else
#define TTR_LEAST_SQUARES_PREFIXES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/pivots-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// How much larger a token's leverage may be at the start of its chunk than when its turn comes:
/// digits are lost in proportion.
inline constexpr double kMostLoss = 8;

/// Right-hand sides stand in the rows of s.q, `queries` a token of the chunk: row j sees the
/// memory and the chunk's tokens up to j / queries. K and V of the chunk stand in s.k and s.v. What
/// `ahead` names, if given, is fetched meanwhile.
template <class T>
class Prefixes {
 public:
  Prefixes(const Options& options, const Memory& memory, const Scratch<T>& scratch,
           const Carried<T>& carried, Prefetcher* ahead = nullptr)
      : options_(options), memory_(memory), s_(scratch), carried_(carried), ahead_(ahead) {}

  /// Factors and whitens for this many tokens and rows. Returns for how many of the tokens (and the
  /// rows that see no others) what follows is right; 0: the memory is singular. A memory without
  /// any association is left to the caller unless `may_be_empty`.
  std::int64_t Begin(std::int64_t tokens, std::int64_t rows, bool may_be_empty) {
    empty_ = Empty();
    if (empty_ && !may_be_empty) return 0;
    columns_ = RoundUp(rows, kUnit);
    const std::int64_t unit = RoundUp(tokens, kUnit);
    sn::TransposeStrided(s_.k, s_.k_stride, unit, s_.keys_unit, wk().data, wk().stride);
    sn::TransposeStrided(s_.q, s_.k_stride, columns_, s_.keys_unit, wq().data, wq().stride);
    if (!empty_) {
      if (!FactorMemory()) return 0;
      ln::SubstituteDown(first(), s_.keys_unit, first_corners(), wk(), unit, ahead_);
      ln::SubstituteDown(first(), s_.keys_unit, first_corners(), wq(), columns_, ahead_);
    }
    tokens_ = tokens;
    for (;;) {
      const std::int64_t right = FactorTokens();
      if (right == tokens_ || right == 0) return right;
      tokens_ = right;
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
        std::fill(wk().Row(i) + tokens_, wk().Row(i) + unit, T(0));
      }
    }
  }

  /// Was there nothing before the chunk? Then fewer tokens than dimensions are solved by the
  /// solution of least norm.
  bool empty() const { return empty_; }

  /// Y = Wq^T Wb + triu(P)^T E in s.y.
  void Answers(std::int64_t queries) {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    MakeErrors();
    if (empty_) {
      for (std::int64_t i = 0; i < columns_; ++i) {
        std::fill(answers().Row(i), answers().Row(i) + s_.values_unit, T(0));
      }
    } else {
      ln::Multiply<ln::Into::kSet>(Left::Transposed(wq()), wb(), columns_,
                                   ln::Whole{s_.values_unit, s_.keys_unit}, answers(), ahead_);
    }
    MakeGains(queries);
    ln::Multiply<ln::Into::kAdd>(Left::Transposed(gains()), errors(), columns_,
                                 ln::LowerLeft{s_.values_unit, unit, queries}, answers(), ahead_);
  }

  /// For rows of queries and, as columns dY^T, the gradients of their answers: x and z of the
  /// gradient, and what it asks for of keys and values,
  ///
  ///     C = triu(K X^T) = L^-T triu(P)                  X = U^-1 (Wq - Wk C)
  ///     A = triu(V dY^T - K Z^T) = L^-T triu(E dY^T)    Z = U^-1 (Wb dY^T + Wk A)
  ///
  /// K and V weighted. Found so, A is no small difference of large products, and Z no difference
  /// at all. done(x, c, true) and done(z, a, false) take them, a column an answer.
  template <class Done>
  void Pairs(std::int64_t queries, const ln::Block<T>& dyt, const Done& done) {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    const ln::UpperRight back{columns_, unit, queries};
    const ln::UpperRows seen{unit, queries};
    MakeErrors();
    MakeGains(queries);
    ln::SubstituteUp(second(), seen, second_corners(), gains(), columns_);
    ln::Multiply<ln::Into::kSubtract>(Left::Of(wk()), gains(), s_.keys_unit, back, wq());
    ln::SubstituteUp(first(), s_.keys_unit, first_corners(), wq(), columns_);
    done(wq(), gains(), true);
    ln::Multiply<ln::Into::kSet>(Left::Of(errors()), dyt, unit,
                                 ln::UpperResult{columns_, s_.values_unit, queries}, gains());
    HideUnseen(queries);
    ln::SubstituteUp(second(), seen, second_corners(), gains(), columns_);
    ln::Multiply<ln::Into::kSet>(Left::Of(wb()), dyt, s_.keys_unit,
                                 ln::Whole{columns_, s_.values_unit}, wq());
    ln::Multiply<ln::Into::kAdd>(Left::Of(wk()), gains(), s_.keys_unit, back, wq());
    ln::SubstituteUp(first(), s_.keys_unit, first_corners(), wq(), columns_);
    done(wq(), gains(), false);
  }

  /// The right-hand sides solved with the memory alone, as columns: x = (A + R)^-1 q. False where
  /// it is singular.
  bool SolveColumns(std::int64_t rows) {
    columns_ = RoundUp(rows, kUnit);
    sn::TransposeStrided(s_.q, s_.k_stride, columns_, s_.keys_unit, wq().data, wq().stride);
    if (!FactorMemory()) return false;
    ln::SubstituteDown(first(), s_.keys_unit, first_corners(), wq(), columns_);
    ln::SubstituteUp(first(), s_.keys_unit, first_corners(), wq(), columns_);
    return true;
  }
  ln::Block<T> columns() const { return wq(); }

  /// U with A + R = U^T U, or false where A is singular to rounding or not finite.
  bool FactorMemory() {
    CopyMemory();
    Pivots<T> pivots(first(), first_corners(), memory_.key_dim, s_.most_pivots(), s_.pivots);
    const auto goes_on = [&](std::int64_t i, T diagonal, T left) {
      return pivots(i, diagonal, left);
    };
    return ln::Factor(first(), s_.keys_unit, first_corners(), goes_on).index == s_.keys_unit;
  }
  ln::Block<T> factor() const { return first(); }

 private:
  using Block = ln::Block<T>;
  using Left = ln::Left<T>;

  Block first() const { return {s_.first, s_.first_stride}; }
  Block second() const { return {s_.second, s_.second_stride}; }
  ln::Corner<T>* first_corners() const { return reinterpret_cast<ln::Corner<T>*>(s_.corners); }
  ln::Corner<T>* second_corners() const { return first_corners() + s_.keys_unit / ln::kTileRows; }
  Block wk() const { return first().Columns(s_.first_k()); }
  Block wq() const { return first().Columns(s_.first_q()); }
  Block wb() const { return first().Columns(s_.first_b()); }
  Block errors() const { return second().Columns(s_.second_v()); }
  Block gains() const { return second().Columns(s_.second_q()); }
  Block answers() const { return {s_.y, s_.y_stride}; }

  bool Empty() const {
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      if (carried_.a().Row(i)[i] != 0) return false;
    }
    return options_.ridge == Ridge::kInState;
  }

  /// A + R in `first`, R the ridge that is not in the state; ones on the diagonal behind D.
  void CopyMemory() {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      std::copy(carried_.a().Row(i) + i, carried_.a().Row(i) + s_.keys_unit, first().Row(i) + i);
    }
    for (std::int64_t i = memory_.key_dim; i < s_.keys_unit; ++i) first().Row(i)[i] = T(1);
    if (options_.ridge == Ridge::kInState) return;
    const double factor = options_.ridge == Ridge::kRelative ? carried_.FrobeniusNorm() : 1;
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      first().Row(i)[i] += static_cast<T>(memory_.ridge[i] * factor);
    }
  }

  /// S = I + Wk^T Wk = L L^T (without I where the memory is empty). Returns how many tokens keep
  /// their digits.
  std::int64_t FactorTokens() {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    ln::Multiply<ln::Into::kSet>(Left::Transposed(wk()), wk(), unit,
                                 ln::UpperResult{unit, s_.keys_unit}, second(), ahead_);
    for (std::int64_t i = 0; i < unit; ++i) {
      T& diagonal = second().Row(i)[i];
      diagonal = i < tokens_ ? diagonal + (empty_ ? T(0) : T(1)) : T(1);
    }
    Pivots<T> pivots(second(), second_corners(), memory_.key_dim, s_.most_pivots(), s_.pivots);
    // A token this far beyond all that the memory has seen leaves it singular to rounding.
    const T most_leverage = static_cast<T>(1 / Rounding<double>(memory_.key_dim));
    const auto goes_on = [&](std::int64_t i, T diagonal, T left) {
      // No more tokens than dimensions are independent.
      if (empty_) return i >= tokens_ || (i < memory_.key_dim && pivots(i, diagonal, left));
      if (diagonal > most_leverage) return false;
      return left * static_cast<T>(kMostLoss) >= diagonal || (i == 0 && !(left <= 0));
    };
    return std::min(ln::Factor(second(), unit, second_corners(), goes_on).index, tokens_);
  }

  /// P = L^-1 Wk^T Wq, zero where a row does not see a token.
  void MakeGains(std::int64_t queries) {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    const Block p = gains();
    ln::Multiply<ln::Into::kSet>(Left::Transposed(wk()), wq(), unit,
                                 ln::UpperResult{columns_, s_.keys_unit, queries}, p, ahead_);
    ln::SubstituteDown(second(), ln::UpperRows{unit, queries}, second_corners(), p, p, columns_,
                       ahead_);
    HideUnseen(queries);
  }

  /// Zeros in `gains` where a row does not see a token.
  void HideUnseen(std::int64_t queries) {
    for (std::int64_t i = 0; i < RoundUp(tokens_, kUnit); ++i) {
      const std::int64_t unseen = i < tokens_ ? std::min(i * queries, columns_) : columns_;
      std::fill(gains().Row(i), gains().Row(i) + unseen, T(0));
    }
  }

  /// Wb = U^-T B and E = L^-1 (V - Wk^T Wb): what the chunk's tokens tell that is new.
  void MakeErrors() {
    const std::int64_t unit = RoundUp(tokens_, kUnit);
    const Block v = carried_.values();
    const Block e = errors();
    if (empty_) {
      ln::SubstituteDown(second(), unit, second_corners(), v, e, s_.values_unit, ahead_);
      return;
    }
    ln::SubstituteDown(first(), s_.keys_unit, first_corners(), carried_.b(), wb(), s_.values_unit,
                       ahead_);
    ln::Multiply<ln::Into::kSubtract>(Left::Transposed(wk()), wb(), unit,
                                      ln::Whole{s_.values_unit, s_.keys_unit}, v, e, ahead_);
    ln::SubstituteDown(second(), unit, second_corners(), e, s_.values_unit, ahead_);
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const Carried<T>& carried_;
  Prefetcher* const ahead_;
  std::int64_t tokens_ = 0;
  std::int64_t columns_ = 0;
  bool empty_ = false;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_PREFIXES_INL_H_
