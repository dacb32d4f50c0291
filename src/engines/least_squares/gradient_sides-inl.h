// The right-hand sides of a chunk's answers and of their gradients. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/gradient_layout.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/strided-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Rows of dL/dy of an answered token, those of a token side by side, filled up with zeros.
template <class T>
void GatherAnswerGradients(const GradientMemory& m, std::int64_t begin, std::int64_t reading,
                           const Scratch<T>& s) {
  const std::int64_t queries = m.memory.queries;
  T* row = s.y;
  for (std::int64_t token = begin; token < begin + reading; ++token) {
    for (std::int64_t r = 0; r < queries; ++r, row += s.y_stride) {
      const Rows rows = OfQuery(m.dy, m.dy_head_stride, r);
      LoadScaled(rows, token, m.memory.value_dim, T(1), row, s.values_unit);
    }
  }
  for (std::int64_t j = reading * queries; j < RoundUp(reading * queries, kUnit); ++j) {
    std::fill(row, row + s.values_unit, T(0));
    row += s.y_stride;
  }
}

/// Token by token in the rows of s.chunk.q: the scaled queries of a token, then as many
/// u = (B + sum_{i <= t} k_i v_i^T) dy_t, K and V the chunk's.
template <class T>
class GradientSides {
 public:
  using Block = ln::Block<T>;
  using Left = ln::Left<T>;

  GradientSides(const Options& options, const GradientMemory& memory,
                const GradientScratch<T>& scratch, const Carried<T>& carried)
      : options_(options), m_(memory), memory_(memory.memory), s_(scratch), carried_(carried) {}

  /// Those of `reading` tokens, of which each sees one of the chunk's `tokens` more.
  void Gather(std::int64_t begin, std::int64_t reading, std::int64_t tokens) const {
    const Scratch<T>& s = s_.chunk;
    const std::int64_t queries = memory_.queries;
    const std::int64_t rows = RoundUp(reading * queries, kUnit);
    const std::int64_t unit = RoundUp(tokens, kUnit);
    GatherAnswerGradients(m_, begin, reading, s);
    const Block dy{s.y, s.y_stride};
    const Block u{s_.u, s.k_stride};
    const Block bt{s_.bt, s.k_stride};
    const Block vt{s_.vt, s_.tokens_stride};
    const Block scores{s_.scores, s_.tokens_stride};
    sn::TransposeStrided(s.b, s.b_stride, s.keys_unit, s.values_unit, bt.data, bt.stride);
    ln::Multiply<ln::Into::kSet>(Left::Of(dy), bt, rows, ln::Whole{s.keys_unit, s.values_unit}, u);
    if (tokens > 0) {
      sn::TransposeStrided(s.v, s.v_stride, unit, s.values_unit, vt.data, vt.stride);
      ln::Multiply<ln::Into::kSet>(Left::Of(dy), vt, rows, ln::Whole{unit, s.values_unit}, scores);
      for (std::int64_t j = 0; j < rows; ++j) {
        const std::int64_t seen = std::min(j / queries + 1, unit);
        std::fill(scores.Row(j) + seen, scores.Row(j) + unit, T(0));
      }
      ln::Multiply<ln::Into::kAdd>(Left::Of(scores), carried_.keys(), rows,
                                   ln::LowerLeft{s.keys_unit, unit, queries}, u);
    }
    // Those of q, then those of u, token by token.
    GatherQueries(options_, memory_, begin, reading, s);
    const Block sides{s.q, s.k_stride};
    for (std::int64_t j = reading * queries - 1; j >= 0; --j) {
      const std::int64_t to = j / queries * 2 * queries + j % queries;
      std::copy(sides.Row(j), sides.Row(j) + s.keys_unit, sides.Row(to));
    }
    for (std::int64_t j = 0; j < reading * queries; ++j) {
      const std::int64_t to = (j / queries * 2 + 1) * queries + j % queries;
      std::copy(u.Row(j), u.Row(j) + s.keys_unit, sides.Row(to));
    }
    for (std::int64_t j = reading * 2 * queries; j < RoundUp(reading * 2 * queries, kUnit); ++j) {
      std::fill(s.q + j * s.k_stride, s.q + j * s.k_stride + s.keys_unit, T(0));
    }
  }

  /// What solved them, x and z, to the rows of the sequence.
  void Keep(const Block& solutions, std::int64_t begin, std::int64_t reading) const {
    const std::int64_t queries = memory_.queries;
    for (std::int64_t t = 0; t < reading; ++t) {
      for (std::int64_t r = 0; r < queries; ++r) {
        const T* const x = solutions.Row(2 * t * queries + r);
        const T* const z = solutions.Row((2 * t + 1) * queries + r);
        const std::int64_t at = ((begin + t) * queries + r) * s_.chunk.k_stride;
        std::copy(x, x + s_.chunk.keys_unit, s_.x + at);
        std::copy(z, z + s_.chunk.keys_unit, s_.z + at);
      }
    }
  }

 private:
  const Options& options_;
  const GradientMemory& m_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Carried<T>& carried_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_SIDES_INL_H_
