// Rows of a few memories, one after the other. Compiled once for every target.

#if defined(TTR_CURVATURE_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_CURVATURE_FORWARD_INL_H_
#undef TTR_CURVATURE_FORWARD_INL_H_
#else
#define TTR_CURVATURE_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/curvature/task.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/eigensystems-inl.h"
#include "src/simd/rows-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::curvature {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

/// Rounding of R is eps of its longest row. A row whose square is below this share of the longest's
/// has lost digits of its angle to the others; one below kNothing is rounding.
inline constexpr double kShort = 0x1p-20, kNothing = 0x1p-80;

/// Memories first .. first + count of a task, whose eigenvectors are found together.
class Curvatures {
 public:
  Curvatures(const Task& task, std::int64_t first, std::int64_t count, Scratch& scratch)
      : task_(task),
        first_(first),
        count_(count),
        rank_(task.sizes.rank),
        dim_(task.sizes.key_dim),
        wide_(linalg::RoundUp(dim_, kUnit)),
        s_(scratch),
        eigensystems_(rank_ + 1, true, scratch.eigen) {}

  static std::int64_t Together() { return ln::Eigensystems::Together(); }

  void Load() {
    for (std::int64_t i = 0; i < count_; ++i) {
      Running& m = s_.running[i];
      m.orthogonal = false;
      linalg::ZeroRows(m.n, 0, linalg::RoundUp(rank_ + 1, kUnit), wide_);
      const Rows& u = MemoryAt(i).u;
      for (std::int64_t r = 0; u && r < rank_; ++r) sn::LoadRow(u, r, 0, dim_, m.n.Row(r));
    }
  }

  /// Row t: V, R and l, where turned(memory) says, and the next U.
  template <class Where>
  void Step(std::int64_t t, const Where& turned) {
    for (std::int64_t i = 0; i < count_; ++i) TakeKey(t, i);
    eigensystems_.Decompose(count_);
    for (std::int64_t i = 0; i < count_; ++i) {
      const Turned& to = turned(i);
      Turn(i, to);
      Running& m = s_.running[i];
      linalg::CopyRows(to.rows, rank_, wide_, m.n);
      std::copy(to.values, to.values + rank_, m.squares);
      m.orthogonal = true;
    }
  }

  void Run() {
    Load();
    for (std::int64_t t = 0; t < task_.rows; ++t) {
      Step(t, [&](std::int64_t i) -> const Turned& { return s_.turned[i]; });
      for (std::int64_t i = 0; i < count_; ++i) {
        const Running& m = s_.running[i];
        DivideKey(s_.turned[i], m.key, WeightOf(t, i), m.border, m.w);
        sn::StoreRow(m.w, t, 0, dim_, MemoryAt(i).w);
      }
    }
    for (std::int64_t i = 0; i < count_; ++i) Store(i);
  }

  const Memory& MemoryAt(std::int64_t i) const { return task_.memories[first_ + i]; }

  double WeightOf(std::int64_t t, std::int64_t i) const {
    const Rows& importance = MemoryAt(i).importance;
    return importance ? sn::LoadOne<double>(importance, t / task_.options.steps) : 1;
  }
  /// Is row t the first of its token?
  bool Starts(std::int64_t t) const { return t % task_.options.steps == 0; }
  double DecayOf(std::int64_t t) const { return Starts(t) ? task_.options.decay : 1; }

  void LoadKey(std::int64_t t, std::int64_t i, double* key) const {
    sn::LoadRow(MemoryAt(i).k, t, 0, dim_, key);
    std::fill(key + dim_, key + wide_, 0.0);
  }

  /// to = (ridge I + N^T N)^-1 x = r / ridge, r = x - sum_j R_j s_j, s_j = R_j . x / (ridge + l_j).
  /// R_j . r = ridge s_j, which rounding of r hides where x is mostly in the rows of R: a second
  /// sum takes that out. `along`: room.
  void Divide(const Turned& turned, const double* x, double* along, double* to) const {
    const double ridge = task_.options.ridge;
    std::copy(x, x + wide_, to);
    for (std::int64_t j = 0; j <= rank_; ++j) {
      along[j] = sn::Dot(wide_, RowOf(turned, j), x) / (ridge + turned.values[j]);
      sn::AddScaled(wide_, -along[j], RowOf(turned, j), to);
    }
    sn::Multiply(to, wide_, 1 / ridge);
    for (std::int64_t j = 0; j <= rank_; ++j) along[j] -= sn::Dot(wide_, RowOf(turned, j), to);
    for (std::int64_t j = 0; j <= rank_; ++j) {
      sn::AddScaled(wide_, along[j] / (ridge + turned.values[j]), RowOf(turned, j), to);
    }
  }

  /// to = (ridge I + N^T N)^-1 k. Divide() would subtract nearly all of k where b |k|^2 is large
  /// beside the ridge, and lose as many digits. The last row of N is sqrt(b) k = sum_j V_j R_j, so
  /// this sum needs no subtraction. Where b |k|^2 is small, that row of V has few digits, and
  /// Divide() is right.
  void DivideKey(const Turned& turned, const double* key, double weight, double* along,
                 double* to) const {
    const double ridge = task_.options.ridge;
    if (!(weight * sn::Dot(wide_, key, key) > ridge / 4)) return Divide(turned, key, along, to);
    std::fill(to, to + wide_, 0.0);
    for (std::int64_t j = 0; j <= rank_; ++j) {
      const double share = turned.vectors.Row(rank_)[j] / (ridge + turned.values[j]);
      sn::AddScaled(wide_, share, RowOf(turned, j), to);
    }
    sn::Multiply(to, wide_, 1 / std::sqrt(weight));
  }

  /// The sign under which a row of R is in a state: its largest entry is above 0.
  double SignOf(const double* row) const {
    const auto largest = std::max_element(
        row, row + dim_, [](double a, double b) { return std::abs(a) < std::abs(b); });
    return dim_ > 0 && *largest < 0 ? -1 : 1;
  }

 private:
  static const double* RowOf(const Turned& turned, std::int64_t j) { return turned.rows.Row(j); }

  /// N and N N^T.
  void TakeKey(std::int64_t t, std::int64_t i) {
    Running& m = s_.running[i];
    const double decay = DecayOf(t), fade = std::sqrt(decay);
    LoadKey(t, i, m.key);
    if (fade != 1) {
      for (std::int64_t r = 0; r < rank_; ++r) sn::Multiply(m.n.Row(r), wide_, fade);
    }
    double* const last = m.n.Row(rank_);
    std::copy(m.key, m.key + wide_, last);
    sn::Multiply(last, wide_, std::sqrt(WeightOf(t, i)));
    for (std::int64_t r = 0; r <= rank_; ++r) {
      m.border[r] =
          sn::Dot(wide_, static_cast<const double*>(m.n.Row(r)), static_cast<const double*>(last));
    }
    eigensystems_.Load(i, [&](std::int64_t r, std::int64_t c) {
      if (r == rank_) return m.border[c];
      if (m.orthogonal) return r == c ? decay * m.squares[r] : 0.0;
      return sn::Dot(wide_, static_cast<const double*>(m.n.Row(r)),
                     static_cast<const double*>(m.n.Row(c)));
    });
  }

  /// R = V^T N; NaN where N is not finite.
  void Turn(std::int64_t i, const Turned& to) const {
    const std::int64_t unit = linalg::RoundUp(rank_ + 1, kUnit);
    eigensystems_.Leave(i, to.values, rank_ + 1, to.vectors.stride, to.vectors.data);
    linalg::ZeroRows(to.vectors, rank_ + 1, unit, unit);
    if (std::isnan(to.values[0])) {
      for (std::int64_t r = 0; r <= rank_; ++r) {
        std::fill_n(to.rows.Row(r), wide_, std::numeric_limits<double>::quiet_NaN());
      }
      return;
    }
    ln::Multiply<ln::Into::kSet>(linalg::Left<double>::Transposed(to.vectors), s_.running[i].n,
                                 unit, ln::Whole{wide_, rank_ + 1}, to.rows);
    for (std::int64_t r = 0; r <= rank_; ++r) Measure(r, to);
  }

  /// The square of row r as it came out, without what a short one has of longer ones: what is left
  /// of a key that came again would else be a share of that key, divided by the ridge.
  void Measure(std::int64_t r, const Turned& to) const {
    double* const row = to.rows.Row(r);
    const auto square = [&] { return sn::Dot(wide_, RowOf(to, r), RowOf(to, r)); };
    to.values[r] = square();
    if (!(to.values[r] < kShort * to.values[0])) return;
    for (std::int64_t j = 0; j < r; ++j) {
      if (!(to.values[j] > kNothing * to.values[0])) continue;
      sn::AddScaled(wide_, -sn::Dot(wide_, RowOf(to, j), RowOf(to, r)) / to.values[j], RowOf(to, j),
                    row);
    }
    to.values[r] = square();
  }

  void Store(std::int64_t i) const {
    const Rows& u = MemoryAt(i).u;
    if (!u || task_.rows == 0) return;
    const Running& m = s_.running[i];
    for (std::int64_t r = 0; r < rank_; ++r) {
      double* const row = m.n.Row(r);
      if (SignOf(row) < 0) sn::Multiply(row, dim_, -1.0);
      sn::StoreRow(row, r, 0, dim_, u);
    }
  }

  const Task& task_;
  const std::int64_t first_, count_, rank_, dim_, wide_;
  Scratch& s_;
  ln::Eigensystems eigensystems_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::curvature
HWY_AFTER_NAMESPACE();

#endif  // TTR_CURVATURE_FORWARD_INL_H_
