// Gradients of a memory that is a triangle. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_QR_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_QR_GRADIENT_INL_H_
#undef TTR_LEAST_SQUARES_QR_GRADIENT_INL_H_
#else
#define TTR_LEAST_SQUARES_QR_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/qr/gradient.h"
#include "src/engines/least_squares/qr/memory-inl.h"
#include "src/engines/least_squares/qr/state_slope.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The gradients of gradient.h, token by token in double. They are of A and B all the same, which
/// no one forms: A x = scale q and A z = B dy are solved by the triangle,
///
///     x = L^-1 D^-1 L^-T scale q,   z = L^-1 W dy
///
/// and rss = sum w v^2 - tr(W^T D W) asks for dL/dv = 2 w drss v more. The state's gradients follow
/// from those of A, B and the sum of squares: state_slope.h.
class RotatedGradient {
 public:
  RotatedGradient(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                  const RotatedGradientScratch& scratch)
      : o_(options),
        g_(memory),
        m_(memory.memory),
        s_(scratch),
        memory_(options, memory.memory, sizes.state, scratch.forward) {}

  void Run() {
    memory_.Load();
    const bool writes = m_.writes(), after = writes && o_.causal && !o_.read_before;
    const bool before = o_.read_before || !writes, at_end = writes && !o_.causal;
    for (std::int64_t t = 0; t < m_.tokens; ++t) {
      if (before) Solve(t);
      if (writes) memory_.Write(t);
      if (after) Solve(t);
    }
    for (std::int64_t t = 0; at_end && t < m_.tokens; ++t) Solve(t);
    Start();
    for (std::int64_t t = 0; at_end && t < m_.tokens; ++t) AddOutputs(t);
    for (std::int64_t t = m_.tokens - 1; t >= 0; --t) {
      if (after) AddOutputs(t);
      if (writes) TakeToken(t);
      if (before) AddOutputs(t);
    }
    Finish();
  }

 private:
  std::int64_t key_dim() const { return m_.key_dim(); }
  std::int64_t value_dim() const { return m_.value_dim(); }
  double* RowOf(double* rows, std::int64_t t, std::int64_t r) const {
    return rows + (t * m_.queries + r) * s_.stride;
  }
  double* F(std::int64_t i) const { return s_.f + i * s_.stride; }
  double* G(std::int64_t i) const { return s_.g + i * s_.stride; }

  // ---- Forward ----------------------------------------------------------------------------------

  void Solve(std::int64_t t) {
    if (m_.queries == 0) return;
    const Triangle& of = memory_.Solved();
    for (std::int64_t r = 0; r < m_.queries; ++r) {
      double *const x = RowOf(s_.x, t, r), *const z = RowOf(s_.z, t, r);
      double* const q = s_.forward.row + value_dim();
      sn::LoadRow(HeadOf(g_.dy, g_.dy_head_stride, r), t, 0, value_dim(), s_.values);
      sn::LoadRow(QueryRows(m_, r), t, 0, key_dim(), q);
      for (std::int64_t i = 0; i < key_dim(); ++i) q[i] *= o_.scale;
      if (memory_.regular()) {
        SolveRegular(of, x, z);
        s_.singular[t * m_.queries + r] = 0;
      } else {
        SolveSingular(of, q, t, r);
      }
      if (!g_.dq) continue;
      for (std::int64_t i = 0; i < key_dim(); ++i) q[i] = o_.scale * z[i];
      sn::StoreRow(q, t, 0, key_dim(), HeadOf(g_.dq, g_.dq_head_stride, r));
    }
  }

  void SolveRegular(const Triangle& of, double* x, double* z) const {
    double* const u = s_.forward.row + value_dim();
    for (std::int64_t i = key_dim() - 1; i >= 0; --i) {  // D^-1 L^-T
      x[i] = u[i] / of.d[i];
      SubtractRow(value_dim() + i, u[i], of.Row(i), s_.forward.row);
    }
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      z[i] = sn::WideDot(value_dim(), of.Row(i), s_.values);
    }
    for (std::int64_t i = 1; i < key_dim(); ++i) {  // L^-1
      const double* const row = of.Row(i) + value_dim();
      x[i] -= sn::WideDot(i, row, x);
      z[i] -= sn::WideDot(i, row, z);
    }
  }

  /// The solutions of least norm, and the second pair of gradient.h.
  void SolveSingular(const Triangle& of, const double* q, std::int64_t t, std::int64_t r) {
    SingularTriangle& singular = memory_.singular();
    singular.Load(of);
    double* const z = RowOf(s_.z, t, r);
    singular.Solve(q, RowOf(s_.x, t, r));
    singular.SolveValues(s_.values, z);
    s_.singular[t * m_.queries + r] = !singular.regular();
    if (singular.regular()) return;
    singular.Solve(z, RowOf(s_.more_z, t, r));
    singular.Rest(q, RowOf(s_.more_x, t, r));
  }

  // ---- Backward ---------------------------------------------------------------------------------

  /// F + F^T, G and the gradient of the sum of squares, from those of the final state.
  void Start() {
    std::fill(s_.f, s_.f + key_dim() * s_.stride, 0.0);
    std::fill(s_.g, s_.g + key_dim() * s_.stride, 0.0);
    std::fill(s_.c, s_.c + value_dim(), 0.0);
    if (g_.dridge != nullptr) std::fill(g_.dridge, g_.dridge + key_dim(), 0.0);
    past_ = 0;
    if (!g_.da && !g_.db && !g_.drss) return;
    const StateSlope slope = Slope();
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      std::fill(slope.by_r + i * key_dim(), slope.by_r + (i + 1) * key_dim(), 0.0);
      std::fill(slope.by_w + i * value_dim(), slope.by_w + (i + 1) * value_dim(), 0.0);
      if (g_.da) sn::LoadRow(g_.da, i, 0, i + 1, slope.by_r + i * key_dim());
      if (g_.db) sn::LoadRow(g_.db, i, 0, value_dim(), slope.by_w + i * value_dim());
    }
    if (g_.drss) sn::LoadRow(g_.drss, 0, 0, value_dim(), s_.c);
    past_ = slope.ToSums(s_.forward.rss);
  }

  /// The gradients of the initial state.
  void Finish() {
    if (g_.drss_initial) sn::StoreRow(s_.c, 0, 0, value_dim(), g_.drss_initial);
    if (!g_.da_initial && !g_.db_initial) return;
    memory_.Load();
    const StateSlope slope = Slope();
    slope.FromSums();
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      if (g_.da_initial) sn::StoreRow(slope.by_r + i * key_dim(), i, 0, key_dim(), g_.da_initial);
      if (g_.db_initial)
        sn::StoreRow(slope.by_w + i * value_dim(), i, 0, value_dim(), g_.db_initial);
    }
  }

  StateSlope Slope() const {
    return {s_.forward.memory, s_.stride, s_.f, s_.g, s_.c, s_.by_r, s_.by_w, s_.room};
  }

  void AddOutputs(std::int64_t t) {
    for (std::int64_t r = 0; r < m_.queries; ++r) {
      const double *const x = RowOf(s_.x, t, r), *const z = RowOf(s_.z, t, r);
      sn::LoadRow(HeadOf(g_.dy, g_.dy_head_stride, r), t, 0, value_dim(), s_.values);
      AddPair(z, x, 1);
      if (s_.singular[t * m_.queries + r])
        AddPair(RowOf(s_.more_z, t, r), RowOf(s_.more_x, t, r), -1);
      for (std::int64_t i = 0; i < key_dim(); ++i) SubtractRow(value_dim(), -x[i], s_.values, G(i));
    }
  }

  /// F -= factor z x^T, and what that asks of a ridge that is no part of A, which does not grow
  /// with it.
  void AddPair(const double* z, const double* x, double factor) {
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      SubtractRow(key_dim(), factor * z[i], x, F(i));
      SubtractRow(key_dim(), factor * x[i], z, F(i));
    }
    if (o_.ridge == Ridge::kInState) return;
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      const double by_ridge = -factor * z[i] * x[i];
      if (g_.dridge != nullptr) g_.dridge[i] += by_ridge;
      past_ -= m_.ridge[i] * by_ridge;
    }
  }

  void TakeToken(std::int64_t t) {
    const double weight = ImportanceOf(m_, t), g = std::exp(LogDecay(m_, t));
    if (weight != 0 || g_.dimportance) {
      TakeRow(t, weight);
    } else {  // it may hold anything
      StoreZeros(t, key_dim(), g_.dk);
      StoreZeros(t, value_dim(), g_.dv);
    }
    if (g == 0) past_ = 0;
    if (g_.dlog_decay) sn::StoreRow(&past_, t, 0, 1, g_.dlog_decay);
    Fade(g);
  }

  void TakeRow(std::int64_t t, double weight) {
    double *const keys = s_.forward.row, *const by_key = s_.room,
                  *const by_value = s_.room + s_.stride;
    sn::LoadRow(m_.v, t, 0, value_dim(), s_.values);
    sn::LoadRow(m_.k, t, 0, key_dim(), keys);
    std::fill(by_key, by_key + s_.stride, 0.0);
    std::fill(by_value, by_value + s_.stride, 0.0);
    double by_weight = 0;
    for (std::int64_t i = 0; i < key_dim(); ++i) SubtractRow(key_dim(), -keys[i], F(i), by_key);
    for (std::int64_t i = 0; i < key_dim(); ++i) {
      const double by_values = sn::WideDot(value_dim(), G(i), s_.values);
      by_weight += keys[i] * (by_key[i] / 2 + by_values);
      by_key[i] += by_values;
      SubtractRow(value_dim(), -keys[i], G(i), by_value);
    }
    for (std::int64_t c = 0; c < value_dim(); ++c) {
      by_weight += s_.c[c] * s_.values[c] * s_.values[c];
      by_value[c] += 2 * s_.c[c] * s_.values[c];
    }
    if (g_.dimportance) sn::StoreRow(&by_weight, t, 0, 1, g_.dimportance);
    if (weight != 0) past_ -= weight * by_weight;
    StoreScaled(weight, t, key_dim(), by_key, g_.dk);
    StoreScaled(weight, t, value_dim(), by_value, g_.dv);
  }

  void StoreZeros(std::int64_t t, std::int64_t count, const Rows& to) const {
    if (!to) return;
    std::fill(s_.room, s_.room + count, 0.0);
    sn::StoreRow(s_.room, t, 0, count, to);
  }

  void StoreScaled(double weight, std::int64_t t, std::int64_t count, double* row,
                   const Rows& to) const {
    if (!to) return;
    for (std::int64_t i = 0; i < count; ++i) row[i] = weight == 0 ? 0 : weight * row[i];
    sn::StoreRow(row, t, 0, count, to);
  }

  void Fade(double g) const {
    if (g == 1) return;
    const auto fade = [&](double* numbers, std::int64_t count) {
      for (std::int64_t i = 0; i < count; ++i) numbers[i] = g == 0 ? 0 : g * numbers[i];
    };
    fade(s_.f, key_dim() * s_.stride);
    fade(s_.g, key_dim() * s_.stride);
    fade(s_.c, value_dim());
  }

  const Options& o_;
  const GradientMemory& g_;
  const Memory& m_;
  const RotatedGradientScratch& s_;
  RotatedMemory memory_;
  double past_ = 0;  // <F, A> + <G, B> + drss rss of what was written before
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_QR_GRADIENT_INL_H_
