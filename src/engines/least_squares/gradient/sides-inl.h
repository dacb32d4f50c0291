// Right-hand sides of the gradient: queries, and what the gradients of their outputs ask for.
// Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

inline Rows OutputGradients(const GradientMemory& m, std::int64_t query) {
  return HeadOf(m.dy, m.dy_head_stride, query);
}

/// Rows of dL/dy in s.y, those of a token side by side, filled up with zeros.
template <class T>
void GatherOutputGradients(const GradientMemory& m, std::int64_t begin, std::int64_t reading,
                           const Scratch<T>& s) {
  const std::int64_t queries = m.memory.queries;
  for (std::int64_t j = 0; j < reading * queries; ++j) {
    LoadScaled(OutputGradients(m, j % queries), begin + j / queries, m.memory.value_dim(), T(1),
               s.y.Row(j), s.values_unit);
  }
  linalg::ZeroRows(s.y, reading * queries, RoundUp(reading * queries, kUnit), s.values_unit);
}

/// c of a stretch's tokens, and w / c.
template <class T>
void FindScales(const Memory& memory, const Stretch& stretch, const GradientScratch<T>& s) {
  double log_c = 0;
  s.c[0] = 1;
  for (std::int64_t i = 0; i < stretch.tokens; ++i) {
    if (i > 0) s.c[i] = std::exp(log_c += LogDecay(memory, stretch.first + i));
    s.weight[i] = ImportanceOf(memory, stretch.first + i) / s.c[i];
  }
}

/// Has the i-th row of a stretch's tokens a gradient? Those that do not may hold anything.
inline bool Counts(const GradientMemory& m, const Stretch& stretch, std::int64_t i) {
  const Rows& importance = m.memory.importance;
  return i < stretch.tokens &&
         (!importance || m.dimportance || sn::LoadOne<double>(importance, stretch.first + i) != 0);
}

/// Token by token in the rows of s.chunk.q: the scaled queries of a token, then as many
/// u = (B + sum_{i <= t} k_i v_i^T) dy_t, K and V the chunk's.
template <class T>
class GradientSides {
 public:
  GradientSides(const Options& options, const GradientMemory& memory,
                const GradientScratch<T>& scratch)
      : options_(options),
        m_(memory),
        memory_(memory.memory),
        s_(scratch.chunk),
        f_(scratch.forward),
        solutions_(scratch.solutions) {}

  /// Gathers the sides of `reading` tokens, of which each sees one of the chunk's `tokens` more.
  void Gather(std::int64_t begin, std::int64_t reading, std::int64_t tokens) const {
    const std::int64_t queries = memory_.queries;
    const std::int64_t rows = RoundUp(reading * queries, kUnit);
    const std::int64_t unit = RoundUp(tokens, kUnit);
    GatherOutputGradients(m_, begin, reading, s_);
    ln::Transpose(s_.b, s_.keys_unit, s_.values_unit, f_.bt);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(s_.y), f_.bt, rows,
                                 ln::Whole{s_.keys_unit, s_.values_unit}, f_.u);
    if (tokens > 0) {
      ln::Transpose(s_.v, unit, s_.values_unit, f_.vt);
      ln::Multiply<ln::Into::kSet>(Left<T>::Of(s_.y), f_.vt, rows, ln::Whole{unit, s_.values_unit},
                                   f_.scores);
      linalg::ZeroAboveStairs(f_.scores, rows, unit, queries);
      ln::Multiply<ln::Into::kAdd>(Left<T>::Of(f_.scores), s_.k, rows,
                                   ln::LowerLeft{s_.keys_unit, unit, queries}, f_.u);
    }
    GatherQueries(options_, memory_, begin, reading, s_);
    Interleave(reading * queries);
  }

  /// Stores their solutions, x and z, in the rows of the sequence.
  void Store(const Block<T>& solved, std::int64_t begin, std::int64_t reading) const {
    const std::int64_t queries = memory_.queries;
    const Block<T> x = solutions_.x.Rows(begin * queries);
    const Block<T> z = solutions_.z.Rows(begin * queries);
    for (std::int64_t j = 0; j < reading * queries; ++j) {
      const T* const from = solved.Row(QueryRow(j));
      const T* const other = solved.Row(QueryRow(j) + queries);
      std::copy(from, from + s_.keys_unit, x.Row(j));
      std::copy(other, other + s_.keys_unit, z.Row(j));
    }
  }

 private:
  /// Where the j-th query comes to stand; its u is `queries` rows further.
  std::int64_t QueryRow(std::int64_t j) const {
    return j / memory_.queries * 2 * memory_.queries + j % memory_.queries;
  }

  /// The rows of q and u, token by token.
  void Interleave(std::int64_t rows) const {
    for (std::int64_t j = rows - 1; j >= 0; --j) {
      std::copy(s_.q.Row(j), s_.q.Row(j) + s_.keys_unit, s_.q.Row(QueryRow(j)));
    }
    for (std::int64_t j = 0; j < rows; ++j) {
      std::copy(f_.u.Row(j), f_.u.Row(j) + s_.keys_unit, s_.q.Row(QueryRow(j) + memory_.queries));
    }
    linalg::ZeroRows(s_.q, 2 * rows, RoundUp(2 * rows, kUnit), s_.keys_unit);
  }

  const Options& options_;
  const GradientMemory& m_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const ForwardScratch<T>& f_;
  const SolutionScratch<T>& solutions_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
