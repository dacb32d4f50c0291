// A factor of A that is updated from token to token. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_DECODE_STEP_FACTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_DECODE_STEP_FACTOR_INL_H_
#undef TTR_LEAST_SQUARES_DECODE_STEP_FACTOR_INL_H_
#else
#define TTR_LEAST_SQUARES_DECODE_STEP_FACTOR_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/decode/state-inl.h"
#include "src/engines/least_squares/decode/step_factor.h"
#include "src/linalg/rounding.h"
#include "src/simd/prefetcher.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// A + R = U^T diag(d) U for A as the bits of the state are, R a constant ridge or none.
///
/// One association more, A <- g A + p p^T, takes w = U^-T p on the way (Gill, Golub, Murray,
/// Saunders 1974, method C1, with their 1 / alpha as a sum):
///
///     s_0 = 1,  s_{i+1} = s_i + w_i^2 / g d_i,   d_i <- g d_i s_{i+1} / s_i
///     row i of U <- row i + w_i / (g d_i s_{i+1}) (p - sum_{j <= i} w_j row j)
///
/// All terms are positive: as stable as a factor made anew, in D^2 multiply-adds instead of
/// D^3 / 6. Four rows are taken together. 1 / d is stored: all uses divide by d.
///
/// B <- g B + p v^T is the same update of columns more, B = U^T diag(d) W:
///
///     row i of W <- row i + w_i / (g d_i s_{i+1}) (v - sum_{j <= i} w_j row j)
///     y = B^T A^-1 q = W^T U^-T q
///
/// With W there is no substitution backwards, and neither A nor B is touched.
template <class T>
class StepFactor {
 public:
  StepFactor(const Memory& memory, const Options& options)
      : memory_(memory),
        constant_(options.ridge == Ridge::kConstant),
        f_(memory.state),
        upcoming_(static_cast<const T*>(memory.upcoming.factor)) {}

  /// Does the factor belong to the memory whose bits were added up?
  bool Fits(const BitSum<T>& bits) const { return f_.holds() && Sealed(bits).Is(f_.seal); }
  void Seal(const BitSum<T>& bits) const { Sealed(bits).Store(f_.seal); }
  bool holds() const { return f_.holds(); }
  const FactorLayout<T>& layout() const { return f_; }
  void Drop() const { f_.Drop(); }

  /// Takes over a Cholesky factor.
  void Take(const Block<T>& factor) const {
    for (std::int64_t i = 0; i < f_.unit; ++i) {
      const T diagonal = factor.Row(i)[i];
      T* const row = f_.Row(i);
      std::fill(row + f_.FirstColumn(i), row + i, T(0));
      row[i] = T(1);
      for (std::int64_t j = i + 1; j < f_.unit; ++j) row[j] = factor.Row(i)[j] / diagonal;
      f_.inverse[i] = 1 / (diagonal * diagonal);
    }
    const T* a = static_cast<const T*>(memory_.state.a);
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i, a += memory_.state.a_stride + 1) {
      f_.diagonal[i] = *a + (constant_ ? static_cast<T>(memory_.ridge[i]) : T(0));
    }
    std::fill(f_.diagonal + memory_.key_dim(), f_.diagonal + f_.unit, T(1));
  }

  /// May Update() be called where only the factor holds A? Not for a key beside which A vanishes,
  /// as p^T A^-1 p must not overflow. Nor where A is forgotten or a number is not finite: these
  /// need A itself.
  bool Bears(T g, const T* p) const {
    const Tag d;
    const auto fade = hn::Set(d, g);
    const auto most = hn::Set(d, static_cast<T>(kMostLeap));
    const auto least = hn::Set(d, static_cast<T>(linalg::kFaded<T>));
    auto bears = hn::Eq(least, least);
    for (std::int64_t i = 0; i < f_.unit; i += kLanes) {
      const auto key = hn::Load(d, p + i);
      const auto faded = hn::Mul(fade, hn::Load(d, f_.diagonal + i));
      const auto small = hn::Le(hn::Mul(key, key), hn::Mul(most, faded));
      bears = hn::And(bears, hn::And(small, hn::Gt(faded, least)));
    }
    return hn::AllTrue(d, bears);
  }

  /// What an update of W, or a read by it, takes: D numbers each, in whole vectors.
  struct Shares {
    T* w;     // U^-T p
    T* by;    // w_i / (g d_i s_{i+1})
    T* read;  // U^-T q
  };

  /// Multiplies everything by g, then adds p p^T. Overwrites p. False: A is singular to rounding
  /// now. With q, does Forward(q, shares.read) on the way, four rows later: each has steps that
  /// wait for one another, and the two do not.
  bool Update(T g, T* p, T* q, const Shares& shares) const {
    Fade(g, p);
    T sum = 1;      // s_i
    T inverse = 1;  // 1 / s_i
    for (std::int64_t i = 0; i < f_.unit; i += kRows) {
      T w[kRows], scaled[kRows], sums[kRows + 1], inverses[kRows + 1], by[kRows];
      FetchRows(i);
      const Rows rows(f_, i);
      Leading(rows, i, p, w);
      // Loop by loop, so that what does not wait for a sum is done for all rows at once.
      T* const one_by_d = f_.inverse + i;
      for (int r = 0; r < kRows; ++r) scaled[r] = w[r] * one_by_d[r];
      sums[0] = sum;
      for (int r = 0; r < kRows; ++r) sums[r + 1] = sums[r] + w[r] * scaled[r];
      inverses[0] = inverse;
      for (int r = 0; r < kRows; ++r) inverses[r + 1] = 1 / sums[r + 1];
      for (int r = 0; r < kRows; ++r) one_by_d[r] *= sums[r] * inverses[r + 1];
      for (int r = 0; r < kRows; ++r) by[r] = scaled[r] * inverses[r + 1];
      sum = sums[kRows];
      inverse = inverses[kRows];
      std::copy(w, w + kRows, shares.w + i);
      std::copy(by, by + kRows, shares.by + i);
      Eliminate<true>(rows, i, w, by, p);
      if (q != nullptr && i > 0) Forward(i - kRows, q, shares.read);
    }
    if (q != nullptr) Forward(f_.unit - kRows, q, shares.read);
    return Holds();
  }

  /// z = U^-T q, which has room for D numbers. Overwrites q.
  void Forward(T* q, T* z) const {
    for (std::int64_t i = 0; i < f_.unit; i += kRows) Forward(i, q, z);
  }
  /// x = U^-1 diag(d)^-1 z.
  void Backward(const T* z, T* x) const {
    const Tag d;
    for (std::int64_t i = f_.unit; i > 0;) {
      const std::int64_t begin = i - kBlock;
      hn::Vec<Tag> known[kBlockVectors];
      TTR_UNROLL
      for (int v = 0; v < kBlockVectors; ++v) known[v] = hn::Zero(d);  // adds nothing yet
      for (; i > begin; i -= kRows) Backward(i - kRows, begin, z, x, known);
      TTR_UNROLL
      for (int v = 0; v < kBlockVectors; ++v) hn::Store(known[v], d, x + begin + v * kLanes);
    }
  }

 private:
  using Tag = hn::CappedTag<T, kUnit>;
  using One = hn::CappedTag<T, 1>;  // a number whose multiply-adds are fused
  static constexpr int kRows = 4;
  static constexpr int kLanes = hn::MaxLanes(Tag());
  static constexpr int kBlockVectors = std::max(kRows / kLanes, 1);
  static constexpr std::int64_t kBlock = kBlockVectors * kLanes;
  static constexpr double kMostLeap = 1e12;  // of a key's square over A's diagonal

  /// Four rows of U, which the compiler may hold in registers.
  struct Rows {
    T* row[kRows];
    Rows(const FactorLayout<T>& f, std::int64_t i) {
      T* const first = f.Row(i);
      const std::int64_t columns = f.Columns(i);
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) row[r] = first + r * columns;
    }
  };

  /// While steps wait for one another: rows i .. i + kRows of the factor that comes next, and the
  /// beginning of W. Hardware goes on from there; more than that would keep it busy.
  HWY_INLINE void FetchRows(std::int64_t i) const {
    constexpr std::int64_t kLine = 64 / sizeof(T);
    if (upcoming_ != nullptr) simd::FetchRow(upcoming_ + f_.Begin(i), kRows * f_.Columns(i));
    if (f_.values > 0) simd::FetchRow(f_.w + i / kRows * 2 * kLine, 2 * kLine);
  }

  /// The sum of the bits, with those of the ridge, which a call may change.
  BitSum<T> Sealed(BitSum<T> bits) const {
    for (std::int64_t i = 0; i < memory_.key_dim() && constant_; i += kUnit) {
      const std::int64_t count = std::min(kUnit, memory_.key_dim() - i);
      T ridge[kUnit] = {};
      for (std::int64_t j = 0; j < count; ++j) ridge[j] = static_cast<T>(memory_.ridge[i + j]);
      bits.NextRow();
      for (std::int64_t j = 0; j < kUnit; j += static_cast<std::int64_t>(hn::Lanes(Tag()))) {
        bits.Add(hn::LoadU(Tag(), ridge + j));
      }
    }
    return bits;
  }

  /// The next numbers of U^-T p.
  HWY_INLINE void Leading(const Rows& rows, std::int64_t i, const T* p, T (&w)[kRows]) const {
    const One d;
    hn::Vec<One> x[kRows];
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      x[r] = hn::LoadU(d, p + i + r);
      TTR_UNROLL
      for (int j = 0; j < r; ++j) {
        x[r] = hn::NegMulAdd(x[j], hn::LoadU(d, rows.row[j] + i + r), x[r]);
      }
      w[r] = hn::GetLane(x[r]);
    }
  }

  /// Four more numbers of z.
  HWY_INLINE void Forward(std::int64_t i, T* q, T* z) const {
    T w[kRows];
    const Rows rows(f_, i);
    Leading(rows, i, q, w);
    for (int r = 0; r < kRows; ++r) z[i + r] = w[r];
    Eliminate<false>(rows, i, w, w, q);
  }

  /// p less w times four rows; each of the rows takes up `by` times what is left then. Up to a
  /// row's own place that is zero, to the bit: w was found by the same multiply-adds.
  template <bool kUpdate>
  HWY_INLINE void Eliminate(const Rows& rows, std::int64_t i, const T (&w)[kRows],
                            const T (&by)[kRows], T* HWY_RESTRICT p) const {
    const Tag d;
    const std::int64_t end = f_.unit;
    hn::Vec<Tag> factor[kRows], share[kRows];
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) {
      factor[r] = hn::Set(d, w[r]);
      if constexpr (kUpdate) share[r] = hn::Set(d, by[r]);
    }
    for (std::int64_t j = i / kLanes * kLanes; j < end; j += kLanes) {
      auto x = hn::Load(d, p + j);
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const auto row = hn::Load(d, rows.row[r] + j);
        x = hn::NegMulAdd(factor[r], row, x);
        if constexpr (kUpdate) hn::Store(hn::MulAdd(share[r], x, row), d, rows.row[r] + j);
      }
      hn::Store(x, d, p + j);
    }
  }

  /// Four more numbers of x, of the block that starts at `begin`, in registers: the next four wait
  /// for them, and for nothing else.
  HWY_INLINE void Backward(std::int64_t i, std::int64_t begin, const T* z, const T* x,
                           hn::Vec<Tag> (&known)[kBlockVectors]) const {
    const Tag d;
    const One one;
    const Rows rows(f_, i);
    const std::int64_t end = f_.unit;
    hn::Vec<Tag> sum[kRows];
    TTR_UNROLL
    for (int r = 0; r < kRows; ++r) sum[r] = hn::Zero(d);
    for (std::int64_t j = begin + kBlock; j < end; j += kLanes) {
      const auto later = hn::Load(d, x + j);
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sum[r] = hn::MulAdd(hn::Load(d, rows.row[r] + j), later, sum[r]);
      }
    }
    TTR_UNROLL
    for (int v = 0; v < kBlockVectors; ++v) {
      TTR_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sum[r] = hn::MulAdd(hn::Load(d, rows.row[r] + begin + v * kLanes), known[v], sum[r]);
      }
    }
    hn::Vec<One> next[kRows];
    TTR_UNROLL
    for (int r = kRows - 1; r >= 0; --r) {
      const T other = hn::GetLane(hn::SumOfLanes(d, sum[r]));
      next[r] = hn::Set(one, z[i + r] * f_.inverse[i + r] - other);
      TTR_UNROLL
      for (int c = kRows - 1; c > r; --c) {
        next[r] = hn::NegMulAdd(hn::LoadU(one, rows.row[r] + i + c), next[c], next[r]);
      }
    }
    TTR_UNROLL
    for (int v = 0; v < kBlockVectors; ++v) {
      const auto place = hn::Iota(d, static_cast<T>(begin + v * kLanes));
      TTR_UNROLL
      for (int r = kRows - 1; r >= 0; --r) {  // what was found last comes last
        const auto here = hn::Eq(place, hn::Set(d, static_cast<T>(i + r)));
        known[v] = hn::IfThenElse(here, hn::Set(d, hn::GetLane(next[r])), known[v]);
      }
    }
  }

  /// d <- g d, and the diagonal that A is to have.
  void Fade(T g, const T* p) const {
    const Tag d;
    const auto fade = hn::Set(d, g);
    for (std::int64_t i = 0; i < f_.unit; i += kLanes) {
      // This divides, as a product with 1 / g would err by the same share every time.
      hn::Store(hn::Div(hn::Load(d, f_.inverse + i), fade), d, f_.inverse + i);
      const auto key = hn::Load(d, p + i);
      const auto faded = hn::Mul(fade, hn::Load(d, f_.diagonal + i));
      hn::Store(hn::MulAdd(key, key, faded), d, f_.diagonal + i);
    }
    // Rows beyond the channels stay as they are.
    std::fill(f_.inverse + memory_.key_dim(), f_.inverse + f_.unit, T(1));
    std::fill(f_.diagonal + memory_.key_dim(), f_.diagonal + f_.unit, T(1));
  }

  /// Is every pivot more than rounding of its diagonal?
  bool Holds() const {
    const Tag d;
    const auto one = hn::Set(d, T(1));
    const auto rounding = hn::Set(d, static_cast<T>(linalg::Rounding<T>(memory_.key_dim())));
    const auto faded = hn::Set(d, static_cast<T>(linalg::kFaded<T>));
    auto holds = hn::Eq(one, one);
    for (std::int64_t i = 0; i < f_.unit; i += kLanes) {
      const auto by_d = hn::Load(d, f_.inverse + i);
      const auto diagonal = hn::Load(d, f_.diagonal + i);
      const auto more = hn::Gt(one, hn::Mul(rounding, hn::Mul(diagonal, by_d)));
      const auto there = hn::And(hn::Gt(by_d, hn::Zero(d)), hn::Gt(diagonal, faded));
      holds = hn::And(holds, hn::And(more, there));
    }
    return hn::AllTrue(d, holds);
  }

  const Memory& memory_;
  const bool constant_;
  const FactorLayout<T> f_;
  const T* const upcoming_;  // of the same layout
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_DECODE_STEP_FACTOR_INL_H_
