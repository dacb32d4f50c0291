// Backward through a sequence: from x and z of every output to the gradients of what was written.
// Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gradient/exact-inl.h"
#include "src/engines/least_squares/gradient/iterative-inl.h"
#include "src/engines/least_squares/gradient/norm_slope-inl.h"
#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/gradient/sides-inl.h"
#include "src/engines/least_squares/gradient/sums-inl.h"
#include "src/engines/least_squares/iterative/block_preconditioner-inl.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Gradients in the notation of gradient.h. Within a stretch, in its scale, a row for each output,
///
///     dK = K (F + F^T) + V G^T - triu(K X^T) Z + (triu(V dY^T) - triu(K Z^T)) X
///     dV = K G + triu(K X^T) dY
///     F + F^T -= Z^T X + X^T Z,   G += X^T dY
template <class T>
class GradientBackward {
 public:
  GradientBackward(const Options& options, const GradientMemory& memory,
                   const GradientScratch<T>& scratch)
      : options_(options),
        m_(memory),
        memory_(memory.memory),
        s_(scratch),
        c_(scratch.chunk),
        from_(scratch.solutions),
        b_(scratch.backward),
        sums_(memory, scratch, prefetcher_),
        blocks_(memory_.key_dim(), c_.keys_unit,
                options.descends() ? scratch.iteration->p.block : 0, from_.blocks),
        norm_slope_(memory, scratch) {}
  GradientBackward(const GradientBackward&) = delete;
  GradientBackward& operator=(const GradientBackward&) = delete;

  void Run(std::int64_t stretches) {
    past_ = sums_.Start();
    if (m_.dridge != nullptr) std::fill(m_.dridge, m_.dridge + memory_.key_dim(), 0.0);
    for (std::int64_t p = stretches - 1; p >= 0; --p) {
      const Stretch& stretch = from_.stretches[p];
      Fade(stretch.end);
      FindScales(memory_, stretch, s_);
      Gather(stretch);
      FetchBefore(p);
      if (stretch.tokens > 0) sums_.GradientsOf(RoundUp(stretch.tokens, kUnit), dk(), dv());
      if (stretch.reading > 0) AddOutputs(stretch);
      if (options_.depends_on_norm()) norm_slope_.Add(stretch, c_.k, dk(), s_.f);
      if (stretch.tokens > 0) WriteTokens(stretch);
      WriteQueries(stretch);
      Fade(stretch.decay);
    }
    sums_.Finish(norm_slope_.alpha());
  }

 private:
  const Block<T>& dk() const { return b_.dk; }
  const Block<T>& dv() const { return b_.dv; }
  /// dL/dy of a stretch.
  const Block<T>& dy() const { return c_.y; }
  /// Rows of a stretch, whole units.
  std::int64_t RowsOf(const Stretch& stretch) const {
    return RoundUp(stretch.reading * memory_.queries, kUnit);
  }
  bool ridged() const { return options_.ridge != Ridge::kInState; }

  void Fade(double g) {
    sums_.Fade(g);
    norm_slope_.Fade(g);
  }

  /// c of the token that the stretch's j-th reading token sees last.
  double ScaleOf(const Stretch& stretch, std::int64_t j) const {
    return stretch.tokens == 0 ? 1 : s_.c[j];
  }

  /// Rows of a stretch in an array of the whole sequence: in place, or if they are no whole units
  /// filled up with zeros in `room`, which has the same stride.
  Block<T> StretchRows(const Block<T>& whole, const Stretch& stretch, std::int64_t count,
                       const Block<T>& room) const {
    const std::int64_t rows = stretch.reading * memory_.queries;
    const Block<T> in_place = whole.Rows(stretch.begin * memory_.queries);
    if (rows % kUnit == 0) return in_place;
    linalg::CopyRows(in_place, rows, count, room);
    linalg::ZeroRows(room, rows, RoundUp(rows, kUnit), count);
    return room;
  }

  void FindSolutions(const Block<T>& x, const Block<T>& z, const Stretch& stretch) {
    x_ = StretchRows(x, stretch, c_.keys_unit, c_.q);
    z_ = StretchRows(z, stretch, c_.keys_unit, s_.forward.solutions);
  }

  /// Keys and values as they are (those that do not count as zeros), and the stretch's dL/dy.
  void Gather(const Stretch& stretch) {
    for (std::int64_t i = 0; i < RoundUp(stretch.tokens, kUnit); ++i) {
      const std::int64_t t = stretch.first + i;
      const T counts = Counts(m_, stretch, i) ? T(1) : T(0);
      LoadScaled(memory_.k, t, memory_.key_dim(), counts, c_.k.Row(i), c_.keys_unit);
      LoadScaled(memory_.v, t, memory_.value_dim(), counts, c_.v.Row(i), c_.values_unit);
    }
    GatherOutputGradients(m_, stretch.begin, stretch.reading, c_);
  }

  /// The rows of the stretch before stretch p are fetched while that one is worked on.
  void FetchBefore(std::int64_t p) {
    if (p == 0) {
      prefetcher_ = simd::Prefetcher(0);
      return;
    }
    const Stretch& stretch = from_.stretches[p - 1];
    prefetcher_ = simd::Prefetcher(std::max(stretch.tokens, stretch.reading));
    prefetcher_.Add(memory_.k, stretch.first, 0, memory_.key_dim());
    prefetcher_.Add(memory_.v, stretch.first, 0, memory_.value_dim());
    prefetcher_.Add(m_.dk, stretch.first, 0, memory_.key_dim());
    prefetcher_.Add(m_.dv, stretch.first, 0, memory_.value_dim());
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      prefetcher_.Add(OutputGradients(m_, r), stretch.begin, 0, memory_.value_dim());
      if (!m_.dq) continue;
      prefetcher_.Add(HeadOf(m_.dq, m_.dq_head_stride, r), stretch.begin, 0, memory_.key_dim());
    }
    // Tiles of the products that fetch.
    prefetcher_.Start(TilesOf<T>(1, c_.chunk, 2 * c_.keys_unit + c_.values_unit) +
                      TilesOf<T>(1, c_.keys_unit, c_.keys_unit + c_.values_unit));
  }

  /// What the stretch's own outputs ask of its keys and values, and of all that was before.
  void AddOutputs(const Stretch& stretch) {
    if (ridged()) std::fill(s_.diagonal, s_.diagonal + stretch.reading * c_.keys_unit, 0.0);
    for (std::int64_t p = 0; p < stretch.pairs; ++p) {
      const std::int64_t pair = p * from_.more.outputs;
      FindSolutions(from_.more.x.Rows(pair), from_.more.z.Rows(pair), stretch);
      SubtractPair(stretch);
    }
    FindSolutions(from_.x, from_.z, stretch);
    if (stretch.has_products) {
      AddSavedProducts(stretch);
      SubtractPast(stretch);
    } else {
      if (!options_.descends()) SubtractPair(stretch);
      AddValues(stretch);
    }
    sums_.AddValues(x_, dy(), RowsOf(stretch));
    if (ridged() || options_.depends_on_norm()) AddRidgesAndNorms(stretch);
    if (blocks_.any()) {
      blocks_.Add({stretch.begin, stretch.reading}, stretch.tokens, c_.k, dk(), s_.f);
    }
    for (std::int64_t j = 0; j < stretch.reading && stretch.tokens == 0; ++j) {
      past_ += from_.worth[stretch.begin + j];
    }
  }

  /// -Z X^T of the rows of a pair:
  ///
  ///     dK -= triu(K X^T) Z + triu(K Z^T) X,   F + F^T -= Z^T X + X^T Z
  void SubtractPair(const Stretch& stretch) {
    const std::int64_t unit = RoundUp(stretch.tokens, kUnit);
    if (unit > 0) {
      SeenProducts(stretch, c_.k, x_, c_.keys_unit, b_.xt, b_.kx);
      SeenProducts(stretch, c_.k, z_, c_.keys_unit, b_.zt, b_.kz);
      const ln::UpperLeft seen{c_.keys_unit, RowsOf(stretch), memory_.queries};
      ln::Multiply<ln::Into::kSubtract>(Left<T>::Of(b_.kx), z_, unit, seen, dk());
      ln::Multiply<ln::Into::kSubtract>(Left<T>::Of(b_.kz), x_, unit, seen, dk());
    }
    SubtractPast(stretch);
  }

  void SubtractPast(const Stretch& stretch) {
    sums_.SubtractPairs(x_, z_, RowsOf(stretch));
    for (std::int64_t j = 0; j < stretch.reading * memory_.queries && ridged(); ++j) {
      double* const diagonal = s_.diagonal + j / memory_.queries * c_.keys_unit;
      for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
        diagonal[i] -= static_cast<double>(z_.Row(j)[i]) * static_cast<double>(x_.Row(j)[i]);
      }
    }
  }

  /// products = triu(left rows^T), left the keys or values of the stretch and zero where an output
  /// does not see a token, `dim` numbers a row; `columns` becomes the transpose of `rows`.
  void SeenProducts(const Stretch& stretch, const Block<T>& left, const Block<T>& rows,
                    std::int64_t dim, const Block<T>& columns, const Block<T>& products) const {
    const std::int64_t unit = RoundUp(stretch.tokens, kUnit);
    ln::Transpose(rows, RowsOf(stretch), dim, columns);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(left), columns, unit,
                                 ln::UpperResult{RowsOf(stretch), dim, memory_.queries}, products);
    linalg::ZeroBelowStairs(products, unit, RowsOf(stretch), memory_.queries, stretch.tokens);
  }

  /// What the stretch's outputs ask of its own keys and values, from products that were saved:
  ///
  ///     dK -= triu(K X^T) Z - triu(V dY^T - K Z^T) X,   dV += triu(K X^T) dY
  void AddSavedProducts(const Stretch& stretch) {
    const std::int64_t unit = RoundUp(stretch.tokens, kUnit);
    const Block<T> kx = StretchRows(from_.kx, stretch, unit, b_.stretch_kx);
    const Block<T> rest = StretchRows(from_.rest, stretch, unit, b_.stretch_rest);
    const ln::UpperLeft keys{c_.keys_unit, RowsOf(stretch), memory_.queries};
    const ln::UpperLeft values{c_.values_unit, RowsOf(stretch), memory_.queries};
    ln::Multiply<ln::Into::kSubtract>(Left<T>::Transposed(kx), z_, unit, keys, dk());
    ln::Multiply<ln::Into::kAdd>(Left<T>::Transposed(rest), x_, unit, keys, dk());
    ln::Multiply<ln::Into::kAdd>(Left<T>::Transposed(kx), dy(), unit, values, dv());
  }

  /// dK += triu(V dY^T) X, dV += triu(K X^T) dY.
  void AddValues(const Stretch& stretch) {
    const std::int64_t unit = RoundUp(stretch.tokens, kUnit);
    if (unit == 0) return;
    // Without descent, the pair of x and z has left K X^T.
    if (options_.descends()) SeenProducts(stretch, c_.k, x_, c_.keys_unit, b_.xt, b_.kx);
    SeenProducts(stretch, c_.v, dy(), c_.values_unit, s_.dyt, b_.vdy);
    ln::Multiply<ln::Into::kAdd>(Left<T>::Of(b_.vdy), x_, unit,
                                 ln::UpperLeft{c_.keys_unit, RowsOf(stretch), memory_.queries},
                                 dk());
    ln::Multiply<ln::Into::kAdd>(Left<T>::Of(b_.kx), dy(), unit,
                                 ln::UpperLeft{c_.values_unit, RowsOf(stretch), memory_.queries},
                                 dv());
  }

  /// dL/dR and dL/d|A|_F of the stretch's reading tokens, and what a constant ridge takes from the
  /// worth of A: it does not grow with A.
  void AddRidgesAndNorms(const Stretch& stretch) {
    for (std::int64_t j = 0; j < stretch.reading; ++j) {
      const std::int64_t token = stretch.begin + j;
      double by_norm = options_.iteration.relative ? from_.bound_slope[token] : 0;
      const double by_ridge = ridged() ? AddRidge(stretch, j, by_norm) : 0;
      if (options_.ridge == Ridge::kRelative) {
        by_norm += by_ridge;
      } else {
        from_.worth[token] -= by_ridge;
      }
      if (options_.depends_on_norm()) norm_slope_.Set(stretch, j, by_norm);
    }
  }

  /// Adds dL/dR of the stretch's j-th reading token to dL/dridge, `by_bound` to that of the largest
  /// ridge, which bounds steps. Returns ridge . diag(dL/dR).
  double AddRidge(const Stretch& stretch, std::int64_t j, double by_bound) {
    const std::int64_t token = stretch.begin + j, dim = memory_.key_dim();
    double* const diagonal = s_.diagonal + j * c_.keys_unit;
    const double size = options_.ridge == Ridge::kRelative ? from_.norm[token] : 1;
    const double inverse = 1 / ScaleOf(stretch, j);
    for (std::int64_t i = 0; i < dim && blocks_.any(); ++i) {
      diagonal[i] += blocks_.Diagonal(token, i);
    }
    for (std::int64_t i = 0; i < dim; ++i) diagonal[i] *= inverse;
    diagonal[std::max_element(memory_.ridge, memory_.ridge + dim) - memory_.ridge] += by_bound;
    for (std::int64_t i = 0; i < dim && m_.dridge != nullptr; ++i) {
      m_.dridge[i] += size * diagonal[i];
    }
    return sn::WideDot(dim, memory_.ridge, diagonal);
  }

  /// Stores dK and dV times w / c, and the gradients of every token's numbers, the last token
  /// first.
  void WriteTokens(const Stretch& stretch) {
    for (std::int64_t i = stretch.tokens - 1; i >= 0; --i) {
      const std::int64_t t = stretch.first + i;
      if (i < stretch.reading) past_ += from_.worth[stretch.begin + i];
      const double weight = ImportanceOf(memory_, t);
      const double c = s_.c[i];
      T* const key_gradient = dk().Row(i);
      T* const value_gradient = dv().Row(i);
      const double by_weight = (sn::WideDot(memory_.key_dim(), c_.k.Row(i), key_gradient) +
                                sn::WideDot(memory_.value_dim(), c_.v.Row(i), value_gradient)) /
                               (2 * c);
      if (m_.dimportance) StoreNumber(by_weight, t, m_.dimportance);
      StoreScaled(key_gradient, weight / c, t, memory_.key_dim(), m_.dk);
      StoreScaled(value_gradient, weight / c, t, memory_.value_dim(), m_.dv);
      if (weight != 0) past_ -= weight * by_weight;
      if (stretch.decay == 0 && i == 0) past_ = 0;
      if (m_.dlog_decay) StoreNumber(past_, t, m_.dlog_decay);
    }
  }

  static void StoreNumber(double x, std::int64_t t, const Rows& to) {
    const T number = static_cast<T>(x);
    sn::StoreRow(&number, t, 0, 1, to);
  }

  static void StoreScaled(T* row, double factor, std::int64_t t, std::int64_t count,
                          const Rows& to) {
    if (!to) return;
    if (factor == 0) {
      std::fill(row, row + count, T(0));  // a token that does not count may not be finite
    } else {
      sn::Multiply(row, count, static_cast<T>(factor));
    }
    sn::StoreRow(row, t, 0, count, to);
  }

  /// dq = scale z.
  void WriteQueries(const Stretch& stretch) {
    if (!m_.dq) return;
    const Block<T> rows = from_.z.Rows(stretch.begin * memory_.queries);
    for (std::int64_t j = 0; j < stretch.reading * memory_.queries; ++j) {
      StoreScaled(rows.Row(j), options_.scale, stretch.begin + j / memory_.queries,
                  memory_.key_dim(), HeadOf(m_.dq, m_.dq_head_stride, j % memory_.queries));
    }
  }

  const Options& options_;
  const GradientMemory& m_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Scratch<T>& c_;
  const SolutionScratch<T>& from_;
  const BackwardScratch<T>& b_;
  simd::Prefetcher prefetcher_{0};
  const GradientSums<T> sums_;
  const BlockSlope<T> blocks_;
  NormSlope<T> norm_slope_;
  Block<T> x_{}, z_{};  // solutions of a stretch, in whole units of rows
  double past_ = 0;     // <F, A> + <G, B> of what was written before
};

template <class T>
void RunGradient(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                 std::byte* scratch) {
  ScratchLayout layout(scratch);
  const GradientScratch<T> s(options, sizes, layout);
  std::fill_n(s.solutions.worth, memory.memory.tokens, 0.0);
  if (options.iteration.relative) std::fill_n(s.solutions.bound_slope, memory.memory.tokens, 0.0);
  const std::int64_t stretches = options.iterates()
                                     ? IterativeSolutions<T>(options, memory, s).Run()
                                     : ExactSolutions<T>(options, memory, s).Run();
  GradientBackward<T>(options, memory, s).Run(stretches);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
