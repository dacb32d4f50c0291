// One factor for the systems of all tokens of a chunk. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/iterative/systems-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/cholesky-inl.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// System i of a chunk is c_i times G_i + rho_i R, G_i = A_0 + sum_{j <= i} k_j k_j^T, and P_i is
/// the inverse of the same with one rho for all of them:
///
///     A_0 + rho R = U^T U,   W = U^-T K^T,   I + W^T W = L L^T,   S = L^-1 W^T
///     P_i = U^-1 (I - S_i^T S_i) U^-T,   S_i: rows 0 .. i of S
///
/// so that whatever the keys are, the eigenvalues of P_i (G_i + rho_i R) lie between 1 and
/// rho_i / rho: by what the ridge gains on the associations, within the chunk.
template <class T>
class ChunkFactor {
 public:
  ChunkFactor(const Memory& memory, const PrefixSystems<T>& systems, const Scratch<T>& s,
              const IterationScratch<T>& it, const ChunkFactorScratch<T>& f)
      : memory_(memory), systems_(systems), s_(s), it_(it), f_(f) {}

  /// For the systems as they are prepared, of a chunk of `tokens` or (0) of the memory alone.
  /// False: A_0 + rho R is singular to rounding.
  bool Prepare(std::int64_t tokens) {
    double least = systems_.RidgeFactor(0);
    double most = least;
    for (std::int64_t i = 1; i < systems_.count(); ++i) {
      least = std::min(least, systems_.RidgeFactor(i));
      most = std::max(most, systems_.RidgeFactor(i));
    }
    tokens_ = 0;
    if (!FactorMemory(least > 0 ? std::sqrt(least * most) : most)) return false;
    if (tokens > 0) FactorTokens(tokens);
    return true;
  }

  /// How many of the chunk's tokens P serves. 0: the first outweighs the memory by more than there
  /// are digits.
  std::int64_t tokens() const { return tokens_; }

  /// x <- P x for so many columns, of which column j belongs to system j / per_system.
  void Multiply(const Block<T>& x, std::int64_t columns, std::int64_t per_system) const {
    ln::SubstituteDown(f_.memory, s_.keys_unit, x, columns);
    if (tokens_ > 0) {
      const std::int64_t unit = RoundUp(tokens_, kUnit);
      ln::Multiply<ln::Into::kSet>(Left<T>::Of(f_.g), x, unit, ln::Whole{columns, s_.keys_unit},
                                   f_.shares);
      linalg::ZeroBelowStairs(f_.shares, unit, columns, per_system, tokens_);
      ln::Multiply<ln::Into::kSubtract>(Left<T>::Transposed(f_.g), f_.shares, s_.keys_unit,
                                        ln::Whole{columns, unit}, x);
    }
    ln::SubstituteUp(f_.memory, s_.keys_unit, x, columns);
  }

 private:
  bool FactorMemory(double rho) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      T* const row = f_.memory.u.Row(i);
      const T* const from = it_.stacked.Row(i);
      std::copy(from + i, from + s_.keys_unit, row + i);
      row[i] = i < memory_.key_dim() ? row[i] + static_cast<T>(rho * memory_.ridge[i]) : T(1);
    }
    const T rounding = static_cast<T>(linalg::Rounding<T>(memory_.key_dim()));
    const auto goes_on = [&](std::int64_t, T diagonal, T left) {
      return left > rounding * diagonal && diagonal > static_cast<T>(linalg::kFaded<T>);
    };
    return ln::Factor(f_.memory, s_.keys_unit, goes_on).index == s_.keys_unit;
  }

  /// S, for as many tokens as I - S_i^T S_i has digits: in their directions it is as small as one
  /// over what they weigh together.
  void FactorTokens(std::int64_t tokens) {
    const std::int64_t unit = RoundUp(tokens, kUnit);
    const Block<T>& s = f_.tokens.u;
    linalg::CopyRows(it_.kt, s_.keys_unit, unit, f_.w);
    ln::SubstituteDown(f_.memory, s_.keys_unit, f_.w, unit);
    ln::Multiply<ln::Into::kSet>(Left<T>::Transposed(f_.w), f_.w, unit,
                                 ln::UpperResult{unit, s_.keys_unit}, s);
    const T most = 1 / (64 * std::numeric_limits<T>::epsilon());
    T weight = 0;
    for (std::int64_t i = 0; i < tokens; ++i) {
      weight += s.Row(i)[i];
      if (!(weight <= most)) break;
      tokens_ = i + 1;
    }
    for (std::int64_t i = 0; i < unit; ++i) s.Row(i)[i] += T(1);
    // No pivot of I + W^T W is below 1.
    const auto goes_on = [](std::int64_t, T, T left) { return left > T(0.5); };
    tokens_ = std::min(tokens_, ln::Factor(f_.tokens, unit, goes_on).index);
    if (tokens_ == 0) return;
    ln::Transpose(f_.w, s_.keys_unit, unit, f_.g);
    ln::SubstituteDown(f_.tokens, unit, f_.g, s_.keys_unit);
  }

  const Memory& memory_;
  const PrefixSystems<T>& systems_;
  const Scratch<T>& s_;
  const IterationScratch<T>& it_;
  const ChunkFactorScratch<T>& f_;
  std::int64_t tokens_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_CHUNK_FACTOR_INL_H_
