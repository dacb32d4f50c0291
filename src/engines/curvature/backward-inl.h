// Rows of a few memories from the last to the first. Compiled once for every target.
//
// With A = ridge I + N^T N, h = A^-1 dw, l and R as in curvature.h, e the last row of R (which is
// dropped), all in the frame of the rows of R:
//
//     dk = h                       dR = - (R h) w^T - (R w) h^T                  from w = A^-1 k
//     dR_i = dU_i + s_i e          dR_e = sum_i s_i R_i,   s_i = dU_i . e / (l_i - l_e)   from U
//     dN = V dR
//
// What only turns rows of U into each other leaves U^T U as it is: just the last U, which the state
// has, asks for it, with s_ij = dU_i . R_j / (l_i - l_j) of every two rows.

#if defined(TTR_CURVATURE_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_CURVATURE_BACKWARD_INL_H_
#undef TTR_CURVATURE_BACKWARD_INL_H_
#else
#define TTR_CURVATURE_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/curvature/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::curvature {
namespace HWY_NAMESPACE {

class CurvaturesBackward {
 public:
  CurvaturesBackward(const Task& task, std::int64_t first, std::int64_t count,
                     BackwardScratch& scratch)
      : task_(task),
        count_(count),
        rank_(task.sizes.rank),
        dim_(task.sizes.key_dim),
        wide_(linalg::RoundUp(dim_, kUnit)),
        s_(scratch),
        forward_(task, first, count, scratch.forward) {}

  void Run() {
    forward_.Load();
    for (std::int64_t t = 0; t < task_.rows; ++t) {
      if (t % kBlock == 0) Keep(t / kBlock);
      forward_.Step(t, [&](std::int64_t i) -> const Turned& { return s_.forward.turned[i]; });
    }
    for (std::int64_t i = 0; i < count_; ++i) LoadFinal(i);
    for (std::int64_t block = common::CeilDiv(task_.rows, kBlock) - 1; block >= 0; --block) {
      GoBackThrough(block);
    }
    for (std::int64_t i = 0; i < count_; ++i) {
      const Rows& du = forward_.MemoryAt(i).du;
      for (std::int64_t r = 0; du && r < rank_; ++r) {
        sn::StoreRow(s_.adjoints[i].du.Row(r), r, 0, dim_, du);
      }
    }
  }

 private:
  using Row = const double*;

  double* Kept(std::int64_t i, std::int64_t block, std::int64_t row) const {
    return s_.checkpoints[i] + block * s_.one + row * wide_;
  }
  void Keep(std::int64_t block) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      const Running& running = s_.forward.running[i];
      for (std::int64_t r = 0; r < rank_; ++r) {
        std::copy_n(running.n.Row(r), wide_, Kept(i, block, r));
      }
      if (running.orthogonal) std::copy_n(running.squares, rank_, Kept(i, block, rank_));
    }
  }
  /// Every bit as it was: of eigenvectors whose eigenvalues are nearly equal rounding says which
  /// ones they are.
  void Restore(std::int64_t block) const {
    for (std::int64_t i = 0; i < count_; ++i) {
      Running& running = s_.forward.running[i];
      for (std::int64_t r = 0; r < rank_; ++r) {
        std::copy_n(Kept(i, block, r), wide_, running.n.Row(r));
      }
      running.orthogonal = block > 0;
      std::copy_n(Kept(i, block, rank_), rank_, running.squares);
    }
  }

  /// dU after the last token, of rows as they are in a state.
  void LoadFinal(std::int64_t i) const {
    const Rows& final = forward_.MemoryAt(i).final_u;
    Adjoint& a = s_.adjoints[i];
    a.by_weight = 0;
    linalg::ZeroRows(a.du, 0, linalg::RoundUp(rank_ + 1, kUnit), wide_);
    for (std::int64_t r = 0; final && r < rank_; ++r) {
      sn::LoadRow(final, r, 0, dim_, a.du.Row(r));
      if (task_.rows == 0) continue;
      sn::Multiply(a.du.Row(r), dim_, forward_.SignOf(s_.forward.running[i].n.Row(r)));
    }
  }

  void GoBackThrough(std::int64_t block) {
    const std::int64_t first = block * kBlock, end = std::min(first + kBlock, task_.rows);
    Restore(block);
    for (std::int64_t t = first; t < end; ++t) {
      forward_.Step(t, [&](std::int64_t i) -> const Turned& { return s_.turned[t - first][i]; });
    }
    for (std::int64_t t = end - 1; t >= first; --t) {
      for (std::int64_t i = 0; i < count_; ++i) GoBack(t, i, s_.turned[t - first][i]);
    }
  }

  void GoBack(std::int64_t t, std::int64_t i, const Turned& turned) const {
    const Memory& m = forward_.MemoryAt(i);
    const Running& running = s_.forward.running[i];
    Adjoint& a = s_.adjoints[i];
    double *const key = running.key, *const w = running.w;
    forward_.LoadKey(t, i, key);
    sn::LoadRow(m.dw, t, 0, dim_, a.dw);
    std::fill(a.dw + dim_, a.dw + wide_, 0.0);
    const double weight = forward_.WeightOf(t, i);
    forward_.DivideKey(turned, key, weight, a.by_w, w);
    forward_.Divide(turned, a.dw, a.by_h, a.h);
    for (std::int64_t j = 0; j <= rank_; ++j) {
      a.by_w[j] = sn::Dot(wide_, Row(turned.rows.Row(j)), Row(w));
      a.by_h[j] = sn::Dot(wide_, Row(turned.rows.Row(j)), Row(a.h));
    }
    const double slope = weight == 0 && m.dimportance ? SlopeAtZero(turned, a, key, w) : 0;
    TurnBack(turned, a, w, m.final_u && t + 1 == task_.rows);
    const double root = std::sqrt(weight);
    double* const last = a.dn.Row(rank_);
    StoreKey(t, m, a, root, last);
    if (m.dimportance) {
      const double by = weight == 0 ? slope : sn::Dot(wide_, Row(last), Row(key)) / (2 * root);
      a.by_weight += by;
      if (forward_.Starts(t)) {
        sn::StoreRow(&a.by_weight, t / task_.options.steps, 0, 1, m.dimportance);
        a.by_weight = 0;
      }
    }
    const double fade = std::sqrt(forward_.DecayOf(t));
    for (std::int64_t r = 0; r < rank_; ++r) {
      std::copy_n(a.dn.Row(r), wide_, a.du.Row(r));
      if (fade != 1) sn::Multiply(a.du.Row(r), wide_, fade);
    }
  }

  /// dU, which becomes dR, to dN.
  void TurnBack(const Turned& turned, const Adjoint& a, const double* w, bool last) const {
    std::fill_n(a.du.Row(rank_), wide_, 0.0);
    if (last) {
      for (std::int64_t i = 0; i < rank_; ++i) {
        for (std::int64_t j = 0; j < i; ++j) Couple(turned, a, i, j);
      }
    }
    for (std::int64_t i = 0; i < rank_; ++i) Couple(turned, a, i, rank_);
    for (std::int64_t j = 0; j <= rank_; ++j) {
      sn::AddScaled(wide_, -a.by_h[j], w, a.du.Row(j));
      sn::AddScaled(wide_, -a.by_w[j], Row(a.h), a.du.Row(j));
    }
    const std::int64_t unit = linalg::RoundUp(rank_ + 1, kUnit);
    ln::Multiply<ln::Into::kSet>(linalg::Left<double>::Of(turned.vectors), a.du, unit,
                                 ln::Whole{wide_, rank_ + 1}, a.dn);
  }

  /// Rows i and j of R turn into each other as N N^T moves.
  void Couple(const Turned& turned, const Adjoint& a, std::int64_t i, std::int64_t j) const {
    const double gap = turned.values[i] - turned.values[j];
    const double rounding = std::numeric_limits<double>::epsilon() * turned.values[0];
    if (!(std::abs(gap) > rounding)) return;
    const Row ri = turned.rows.Row(i), rj = turned.rows.Row(j);
    double by = sn::Dot(wide_, Row(a.du.Row(i)), rj);
    if (j < rank_) by -= sn::Dot(wide_, Row(a.du.Row(j)), ri);
    sn::AddScaled(wide_, by / gap, rj, a.du.Row(i));
    sn::AddScaled(wide_, by / gap, ri, a.du.Row(j));
  }

  /// The slope by an importance of 0: C moves by k k^T, of which the part beside the rows of U is
  /// dropped.
  double SlopeAtZero(const Turned& turned, const Adjoint& a, const double* key,
                     const double* w) const {
    double sum = -sn::Dot(wide_, Row(a.h), key) * sn::Dot(wide_, w, key);
    std::copy_n(key, wide_, a.along);  // k - (its part in the rows) / 2
    const double cut = std::numeric_limits<double>::epsilon() * turned.values[0];
    const auto share = [&](std::int64_t i) {
      return turned.values[i] > cut
                 ? sn::Dot(wide_, Row(turned.rows.Row(i)), key) / turned.values[i]
                 : 0.0;
    };
    for (std::int64_t i = 0; i < rank_; ++i) {
      sn::AddScaled(wide_, -share(i) / 2, Row(turned.rows.Row(i)), a.along);
    }
    for (std::int64_t i = 0; i < rank_; ++i) {
      sum += share(i) * sn::Dot(wide_, Row(a.du.Row(i)), Row(a.along));
    }
    return sum;
  }

  void StoreKey(std::int64_t t, const Memory& m, const Adjoint& a, double root,
                const double* last) const {
    if (!m.dk) return;
    sn::LoadRow(m.dk, t, 0, dim_, a.along);
    for (std::int64_t c = 0; c < dim_; ++c) a.along[c] += a.h[c] + root * last[c];
    sn::StoreRow(a.along, t, 0, dim_, m.dk);
  }

  const Task& task_;
  const std::int64_t count_, rank_, dim_, wide_;
  BackwardScratch& s_;
  Curvatures forward_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::curvature
HWY_AFTER_NAMESPACE();

#endif  // TTR_CURVATURE_BACKWARD_INL_H_
