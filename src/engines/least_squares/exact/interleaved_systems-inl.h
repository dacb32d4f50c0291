// A block of tokens that each have a system of their own, (H_t + R) x = b. Compiled once for every
// target.
//
// The block is cut into as many runs of tokens as a vector has lanes, and a lane takes its run
// token by token, a round each: H <- g H + k k^T, a factor, the solutions. Lanes do not see each
// other; the H that a lane begins with comes from products of the keys before it.

#if defined(TTR_LEAST_SQUARES_EXACT_INTERLEAVED_SYSTEMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_EXACT_INTERLEAVED_SYSTEMS_INL_H_
#undef TTR_LEAST_SQUARES_EXACT_INTERLEAVED_SYSTEMS_INL_H_
#else
#define TTR_LEAST_SQUARES_EXACT_INTERLEAVED_SYSTEMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "hwy/highway.h"
#include "src/engines/least_squares/exact/interleaved_systems.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/interleaved-inl.h"
#include "src/linalg/interleaved_gram-inl.h"
#include "src/linalg/minimum_norm.h"
#include "src/linalg/rounding.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

template <class T>
class InterleavedSystems {
 public:
  /// `ridge`: key_dim numbers, times |H|_F where it is `relative`.
  InterleavedSystems(const double* ridge, bool relative, std::int64_t key_dim,
                     const InterleavedScratch<T>& scratch)
      : ridge_(ridge),
        relative_(relative),
        size_(key_dim),
        least_share_(LeastShare(ridge, key_dim)),
        s_(scratch) {}

  /// Do these many tokens pay for the lanes that stay idle, or is one by one faster? Measured for D
  /// from 4 to 128: from 2 tokens on where there are 8 lanes, from 3 to 6 where there are 16.
  static bool Pays(std::int64_t tokens) {
    return tokens > 1 && 3 * tokens >= ln::SystemsAtOnce<T>();
  }

  /// Tokens that a block takes at most.
  static std::int64_t BlockTokens() { return ln::SystemsAtOnce<T>() * kMostRounds; }
  /// Tokens of all blocks of a sequence but the last: as even as whole vectors allow.
  static std::int64_t BlockTokens(std::int64_t tokens) {
    const std::int64_t blocks = (tokens + BlockTokens() - 1) / BlockTokens();
    return RoundUp((tokens + blocks - 1) / blocks, ln::SystemsAtOnce<T>());
  }

  /// Solves for tokens 0 .. tokens of a block. The caller has filled in s.keys and s.decay of these
  /// tokens and their right-hand sides, rows t rights + r of s.right, all with zeros up to
  /// keys_unit; the solutions take the places of the right-hand sides. `a`: H before the block, its
  /// upper triangle. s.regularised[t]: is the system of token t singular? Its solution is then the
  /// one of least norm.
  void Solve(const Block<T>& a, std::int64_t tokens, std::int64_t rights) {
    rounds_ = (tokens + Lanes() - 1) / Lanes();
    const std::int64_t slots = rounds_ * Lanes();
    std::fill(s_.regularised, s_.regularised + tokens, false);
    linalg::ZeroRows(s_.keys, tokens, slots, s_.keys.stride);
    std::fill(s_.decay + tokens, s_.decay + slots, T(1));
    linalg::ZeroRows(s_.right, tokens * rights, slots * rights, s_.right.stride);
    Begin(a);
    const ln::RightSides<T> sides{s_.sides, s_.keys_unit, rights};
    for (std::int64_t round = 0; round < rounds_; ++round) {
      GatherRound(round, sides);
      SolveRound(sides);
      if (!AllRegular()) SolveByMinimumNorm(round, tokens, sides);
      for (std::int64_t r = 0; r < rights; ++r) {
        sn::TransposeStrided(sides.Side(r), Lanes(), s_.keys_unit, Lanes(),
                             s_.right.Row(round * rights + r), rounds_ * rights * s_.right.stride);
      }
    }
  }

 private:
  static std::int64_t Lanes() { return ln::SystemsAtOnce<T>(); }
  std::int64_t PanelCount() const { return linalg::PanelsOf(size_); }
  ln::Panels<T> H() const { return {s_.h, PanelCount()}; }
  ln::Panels<T> L() const { return {s_.l, PanelCount()}; }

  /// What every lane begins with: the H of the lane before, faded, and its keys, each as far as it
  /// has faded when that lane ends. Some rows at a time.
  void Begin(const Block<T>& a) {
    for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
      double left = 1;
      std::int64_t first = rounds_;
      for (std::int64_t t = rounds_ - 1; t >= 0 && left != 0; --t) {
        const std::int64_t token = lane * rounds_ + t;
        s_.left[token] = static_cast<T>(left);
        if (s_.left[token] != 0) first = t;
        left *= static_cast<double>(s_.decay[token]);
      }
      saved_[lane] = static_cast<T>(left);
      first_[lane] = first;
    }
    for (std::int64_t i = 0; i < linalg::kPanelRows * PanelCount(); i += ln::kTileRows) Strip(a, i);
  }

  /// Rows i .. i + kTileRows of H as lanes begin.
  void Strip(const Block<T>& a, std::int64_t i) {
    const std::int64_t rows =
        std::min<std::int64_t>(ln::kTileRows, linalg::kPanelRows * PanelCount() - i);
    const std::int64_t begin = i / kUnit * kUnit;
    const std::int64_t columns = s_.keys_unit - begin;
    const std::int64_t lane_stride = ln::kTileRows * s_.strips.stride;
    const auto strip = [&](std::int64_t lane) {
      return s_.strips.Rows(lane * ln::kTileRows).Columns(begin);
    };
    for (std::int64_t r = 0; r < ln::kTileRows; ++r) {
      std::copy(a.Row(i + r) + begin, a.Row(i + r) + s_.keys_unit, strip(0).Row(r));
    }
    for (std::int64_t lane = 1; lane < Lanes(); ++lane) {
      const Block<T> from = strip(lane - 1);
      const Block<T> to = strip(lane);
      const T saved = saved_[lane - 1];
      for (std::int64_t r = 0; r < ln::kTileRows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
          to.Row(r)[c] = saved == 0 ? T(0) : saved * from.Row(r)[c];
        }
      }
      const std::int64_t first = first_[lane - 1];
      const std::int64_t token = (lane - 1) * rounds_ + first;
      const std::int64_t steps = rounds_ - first;
      if (steps == 0) continue;
      for (std::int64_t t = 0; t < steps; ++t) {
        const T* const key = s_.keys.Row(token + t) + i;
        T* const scaled = s_.strip_keys + t * ln::kTileRows;
        for (int r = 0; r < ln::kTileRows; ++r) scaled[r] = s_.left[token + t] * key[r];
      }
      const Block<T> keys = s_.keys.Rows(token).Columns(begin);
      ln::Multiply<ln::Into::kAdd>(Left<T>{s_.strip_keys, 1, ln::kTileRows}, keys, ln::kTileRows,
                                   ln::Whole{columns, steps}, to);
    }
    // Row i + r of the upper triangle is a column of the lower one.
    for (std::int64_t r = 0; r < rows; ++r) {
      const std::int64_t column = i + r;
      const std::int64_t panel = column / linalg::kPanelRows;
      for (std::int64_t p = panel; p < PanelCount(); ++p) {
        sn::TransposeStrided(
            s_.strips.Row(r) + p * linalg::kPanelRows, lane_stride, Lanes(), linalg::kPanelRows,
            H().At(p, panel) + column % linalg::kPanelRows * linalg::kPanelRows * Lanes(), Lanes());
      }
    }
  }

  /// Keys, decays and right-hand sides of every lane's token.
  void GatherRound(std::int64_t round, const ln::RightSides<T>& sides) const {
    sn::TransposeStrided(s_.keys.Row(round), rounds_ * s_.keys.stride, Lanes(), s_.keys_unit,
                         s_.key, Lanes());
    for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
      s_.lane_decay[lane] = s_.decay[lane * rounds_ + round];
      s_.norm[lane] = T(1);
      s_.regular[lane] = T(1);
    }
    for (std::int64_t r = 0; r < sides.count; ++r) {
      sn::TransposeStrided(s_.right.Row(round * sides.count + r),
                           rounds_ * sides.count * s_.right.stride, Lanes(), s_.keys_unit,
                           sides.Side(r), Lanes());
    }
  }

  void SolveRound(const ln::RightSides<T>& sides) const {
    const ln::Gram<T> gram{H(), s_.key, s_.lane_decay};
    if (relative_) UpdateNorm(gram);
    const ln::RidgedGram<T> matrix{gram, !relative_, ridge_, size_, s_.norm};
    const ln::PivotLimits<T> limits{static_cast<T>(least_share_),
                                    static_cast<T>(linalg::kFaded<T>)};
    ln::FactorInterleaved(matrix, limits, L(), s_.inverses, sides, s_.regular);
    ln::SubstituteUpInterleaved(L(), s_.inverses, sides);
  }

  /// H of the token, and its |H|_F. No element exceeds the largest on the diagonal: in proportion
  /// to that squares neither overflow nor vanish.
  HWY_NOINLINE void UpdateNorm(const ln::Gram<T>& gram) const {
    const ln::SystemTag<T> d;
    using D = decltype(d);
    hn::Vec<D> largest = hn::Zero(d);
    ln::Square<D> square;
    for (std::int64_t i = 0; i < PanelCount(); ++i) {
      for (std::int64_t j = 0; j <= i; ++j) gram.Update(d, i, j, square);
      TTR_UNROLL
      for (int r = 0; r < linalg::kPanelRows; ++r) largest = hn::Max(largest, square[r][r]);
    }
    const hn::Vec<D> one = hn::Set(d, T(1));
    const hn::Mask<D> some = hn::Gt(largest, hn::Zero(d));
    const hn::Vec<D> inverse = hn::Div(one, hn::IfThenElse(some, largest, one));
    hn::Vec<D> squares = hn::Zero(d);
    for (std::int64_t i = 0; i < PanelCount(); ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        ln::LoadSquare(d, gram.h.At(i, j), square);
        hn::Vec<D> sum = hn::Zero(d);
        TTR_UNROLL
        for (int c = 0; c < linalg::kPanelRows; ++c) {
          TTR_UNROLL
          for (int r = 0; r < linalg::kPanelRows; ++r) {
            if (i == j && r < c) continue;  // above the diagonal there is nothing
            const hn::Vec<D> element = hn::Mul(square[r][c], inverse);
            const hn::Vec<D> twice = i == j && r == c ? element : hn::Add(element, element);
            sum = hn::MulAdd(element, twice, sum);
          }
        }
        squares = hn::Add(squares, sum);
      }
    }
    hn::Store(hn::Mul(hn::Sqrt(squares), largest), d, s_.norm);
  }

  bool AllRegular() const {
    return std::find(s_.regular, s_.regular + Lanes(), T(0)) == s_.regular + Lanes();
  }

  /// The lanes whose system is singular, or nearly, one by one in double.
  HWY_NOINLINE void SolveByMinimumNorm(std::int64_t round, std::int64_t tokens,
                                       const ln::RightSides<T>& sides) {
    matrix_.resize(static_cast<std::size_t>(size_ * size_));
    q_.resize(static_cast<std::size_t>(size_));
    x_.resize(static_cast<std::size_t>(size_));
    for (std::int64_t lane = 0; lane < Lanes(); ++lane) {
      const std::int64_t token = lane * rounds_ + round;
      if (s_.regular[lane] != 0 || token >= tokens) continue;
      FactorByMinimumNorm(lane);
      s_.regularised[token] = solver_.singular();
      for (std::int64_t r = 0; r < sides.count; ++r) {
        const T* const right = s_.right.Row(token * sides.count + r);
        std::copy(right, right + size_, q_.begin());
        solver_.Solve(q_.data(), x_.data());
        T* const side = sides.Side(r) + lane;
        for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
          side[i * Lanes()] = i < size_ ? static_cast<T>(x_[static_cast<std::size_t>(i)]) : T(0);
        }
      }
    }
  }

  void FactorByMinimumNorm(std::int64_t lane) {
    double squares = 0;
    for (std::int64_t i = 0; i < size_; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) {
        const std::int64_t place =
            j % linalg::kPanelRows * linalg::kPanelRows + i % linalg::kPanelRows;
        const T* const square = H().At(i / linalg::kPanelRows, j / linalg::kPanelRows);
        const double x = static_cast<double>(square[place * Lanes() + lane]);
        matrix_[static_cast<std::size_t>(i * size_ + j)] = x;
        matrix_[static_cast<std::size_t>(j * size_ + i)] = x;
        squares += (i == j ? 1 : 2) * x * x;
      }
    }
    const double factor = relative_ ? std::sqrt(squares) : 1;
    for (std::int64_t i = 0; i < size_; ++i) {
      matrix_[static_cast<std::size_t>(i * size_ + i)] += factor * ridge_[i];
    }
    solver_.Factor(size_, matrix_.data(), linalg::Rounding<T>(size_), linalg::kFaded<T>);
  }

  /// The share of its diagonal that a pivot must leave for the lane to be trusted. It is larger
  /// without a ridge: after a pivot that small, a pivot that should be 0 may be rounding of the
  /// same size (pivots-inl.h).
  static double LeastShare(const double* ridge, std::int64_t key_dim) {
    const bool none = std::all_of(ridge, ridge + key_dim, [](double x) { return x == 0; });
    return std::max(linalg::Rounding<T>(key_dim), none ? std::sqrt(linalg::Rounding<T>(1)) : 0);
  }

  const double* ridge_;
  const bool relative_;
  const std::int64_t size_;
  const double least_share_;
  const InterleavedScratch<T>& s_;
  std::int64_t rounds_ = 1;
  T saved_[linalg::kMostSystems<T>];             // what a lane leaves of the H it begins with
  std::int64_t first_[linalg::kMostSystems<T>];  // the first of its tokens of which a rest is left
  std::vector<double> matrix_, q_, x_;
  linalg::MinimumNorm solver_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_EXACT_INTERLEAVED_SYSTEMS_INL_H_
