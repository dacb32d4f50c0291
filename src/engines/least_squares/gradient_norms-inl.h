// The path of gradients through |A|_F, where the ridge is relative to it. Compiled once for every
// target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_NORMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_NORMS_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_NORMS_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_NORMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/gradient_layout.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/strided-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// c of a part's tokens, and w / c.
template <class T>
void FindScales(const Memory& memory, const Part& part, const GradientScratch<T>& s) {
  double log_c = 0;
  s.c[0] = 1;
  for (std::int64_t i = 0; i < part.tokens; ++i) {
    if (i > 0) s.c[i] = std::exp(log_c += LogDecay(memory, part.first + i));
    const double importance =
        memory.importance ? sn::LoadOne<double>(memory.importance, part.first + i) : 1;
    s.weight[i] = importance / s.c[i];
  }
}

/// Has the i-th row of a part's tokens a gradient? Those that do not may hold anything.
inline bool Counts(const GradientMemory& m, const Part& part, std::int64_t i) {
  const Rows& importance = m.memory.importance;
  return i < part.tokens &&
         (!importance || m.dimportance || sn::LoadOne<double>(importance, part.first + i) != 0);
}

/// R = |A|_F diag(ridge) adds s_t A_t / |A_t|_F to dL/dA_t, s_t = ridge . diag(dL/dR_t). Within a
/// part, A_t = c_t (A_0 + sum_{j <= t} w_j / c_j k_j k_j^T), so that all of it is
///
///     alpha A_0 + sum_j S_j w_j / c_j k_j k_j^T
///
/// with S_j the sum over t >= j of c_t^2 s_t / |A_t|_F and of the later parts' alpha, alpha = S_1.
/// The first term waits for what A_0 is made of; A_0 k_i, which a token needs of it, is kept from
/// the way forward.
template <class T>
class GradientNorms {
 public:
  using Block = ln::Block<T>;
  using Left = ln::Left<T>;

  GradientNorms(const GradientMemory& memory, const GradientScratch<T>& scratch)
      : m_(memory), memory_(memory.memory), s_(scratch), c_(scratch.chunk) {}

  /// Forward, A in the scratch as the part begins: |A_t|_F of its answering tokens; A_0 k_i.
  void Find(const Part& part) const {
    const Block a{s_.f, c_.k_stride};
    double squares = CopyMemory(a);
    if (part.tokens == 0) {
      std::fill(s_.norm + part.begin, s_.norm + part.begin + part.reading, std::sqrt(squares));
      return;
    }
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    const Block keys{s_.dk, c_.k_stride};
    const Block products = ProductsOf(part.first);
    const Block gram{s_.kz, s_.rows_stride};
    LoadKeys(part, keys);
    ln::Multiply<ln::Into::kSet>(Left::Of(keys), a, unit, ln::Whole{c_.keys_unit, c_.keys_unit},
                                 products);
    Gram(keys, unit, gram);
    FindScales(memory_, part, s_);
    for (std::int64_t t = 0; t < part.tokens; ++t) {
      if (s_.weight[t] != 0) {
        double sum = 2 * Dot(keys.Row(t), products.Row(t));
        for (std::int64_t j = 0; j <= t; ++j) {
          const double product = static_cast<double>(gram.Row(t)[j]);
          sum += (j < t ? 2 : 1) * s_.weight[j] * product * product;
        }
        squares += s_.weight[t] * sum;
      }
      if (t < part.reading) s_.norm[part.begin + t] = s_.c[t] * std::sqrt(squares);
    }
  }

  /// Backward: s_t of the part's j-th answering token.
  void Set(const Part& part, std::int64_t j, double s) const {
    const double c = part.tokens == 0 ? 1 : s_.c[j];
    const double norm = s_.norm[part.begin + j];
    s_.sums[j] = norm == 0 ? 0 : c * c * s / norm;
  }

  /// And all of them, with the later parts' alpha, to dK and to F + F^T.
  void Add(const Part& part, const Block& keys, const Block& dk, const Block& f) {
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    for (std::int64_t j = std::max(part.tokens, part.reading) - 1; j >= 0; --j) {
      if (j < part.reading) alpha_ += s_.sums[j];
      s_.sums[j] = alpha_;
    }
    if (unit == 0) return;
    const Block gram{s_.kz, s_.rows_stride};
    const Block scaled{s_.g, c_.k_stride};
    Gram(keys, unit, gram);
    for (std::int64_t i = 0; i < part.tokens; ++i) {
      for (std::int64_t j = 0; j < part.tokens; ++j) {
        gram.Row(i)[j] *= static_cast<T>(2 * s_.sums[std::max(i, j)] * s_.weight[j]);
      }
      const T before = static_cast<T>(2 * s_.sums[i]);
      const T own = static_cast<T>(2 * s_.sums[i] * s_.weight[i]);
      const T* const product = ProductsOf(part.first).Row(i);
      for (std::int64_t v = 0; v < c_.keys_unit; ++v) {
        dk.Row(i)[v] += before * product[v];
        scaled.Row(i)[v] = own * keys.Row(i)[v];
      }
    }
    ln::Multiply<ln::Into::kAdd>(Left::Of(gram), keys, unit, ln::Whole{c_.keys_unit, unit}, dk);
    ln::Multiply<ln::Into::kAdd>(Left::Transposed(scaled), keys, c_.keys_unit,
                                 ln::Whole{c_.keys_unit, part.tokens}, f);
  }

  void Fade(double g) { alpha_ *= g * g; }

  /// The gradient of the A that the first part starts from is alpha A more.
  double alpha() const { return alpha_; }

 private:
  Block ProductsOf(std::int64_t token) const { return {s_.ak + token * c_.k_stride, c_.k_stride}; }

  /// All of A. Returns the sum of its squares.
  double CopyMemory(const Block& a) const {
    double squares = 0;
    for (std::int64_t i = 0; i < c_.keys_unit; ++i) {
      const T* const row = c_.a + i * c_.a_stride;
      a.Row(i)[i] = row[i];
      for (std::int64_t j = i + 1; j < c_.keys_unit; ++j) a.Row(i)[j] = a.Row(j)[i] = row[j];
      const double own = static_cast<double>(row[i]);
      squares += own * own + 2 * sn::WideDot(c_.keys_unit - i - 1, row + i + 1, row + i + 1);
    }
    return squares;
  }

  /// Gram matrix of rows, in columns that it makes of them.
  void Gram(const Block& rows, std::int64_t unit, const Block& gram) const {
    const Block columns{s_.xt, s_.rows_stride};
    sn::TransposeStrided(rows.data, rows.stride, unit, c_.keys_unit, columns.data, columns.stride);
    ln::Multiply<ln::Into::kSet>(Left::Of(rows), columns, unit, ln::Whole{unit, c_.keys_unit},
                                 gram);
  }

  /// Keys as they are.
  void LoadKeys(const Part& part, const Block& keys) const {
    for (std::int64_t i = 0; i < RoundUp(part.tokens, kUnit); ++i) {
      LoadScaled(memory_.k, part.first + i, memory_.key_dim, Counts(m_, part, i) ? T(1) : T(0),
                 keys.Row(i), c_.keys_unit);
    }
  }

  double Dot(const T* a, const T* b) const { return sn::WideDot(memory_.key_dim, a, b); }

  const GradientMemory& m_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Scratch<T>& c_;
  double alpha_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_NORMS_INL_H_
