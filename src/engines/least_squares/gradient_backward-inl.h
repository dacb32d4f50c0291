// Backward through a sequence: from x and z of every answer to the gradients of what was written.
// Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/gradient_blocks-inl.h"
#include "src/engines/least_squares/gradient_forward-inl.h"
#include "src/engines/least_squares/gradient_iterations-inl.h"
#include "src/engines/least_squares/gradient_layout.h"
#include "src/engines/least_squares/gradient_norms-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/simd/strided-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// Of a result, squares of kUnit rows and columns: those on the diagonal and above it.
struct UpperSquares {
  std::int64_t columns, steps;
  std::int64_t FirstColumn(std::int64_t i) const { return i / kUnit * kUnit; }
  std::int64_t FirstStep(std::int64_t) const { return 0; }
  std::int64_t Steps(std::int64_t, std::int64_t) const { return steps; }
};

/// In the words of gradient.h, F + F^T and G carried from the end to the start; within a part, in
/// its scale, a row an answer,
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
        blocks_(options, memory.memory, scratch),
        norms_(memory, scratch) {}

  void Run(std::int64_t parts) {
    Start();
    for (std::int64_t p = parts - 1; p >= 0; --p) {
      const Part& part = s_.parts[p];
      Fade(part.end);
      FindScales(memory_, part, s_);
      Gather(part);
      FetchBefore(p);
      if (part.tokens > 0) Begin(part);
      if (part.reading > 0) Answer(part);
      if (options_.ridge == Ridge::kRelative) norms_.Add(part, keys(), dk(), f());
      if (part.tokens > 0) WriteTokens(part);
      WriteQueries(part);
      Fade(part.decay);
    }
    Finish();
  }

 private:
  using Block = ln::Block<T>;
  using Left = ln::Left<T>;

  Block f() const { return {s_.f, c_.k_stride}; }
  Block gradient_b() const { return {s_.gradient_b, c_.b_stride}; }
  Block keys() const { return {c_.k, c_.k_stride}; }
  Block values() const { return {c_.v, c_.v_stride}; }
  Block dy() const { return {c_.y, c_.y_stride}; }
  Block dk() const { return {s_.dk, c_.k_stride}; }
  Block dv() const { return {s_.dv, c_.v_stride}; }
  /// Solutions of a part, in whole units of rows.
  Block x() const { return x_; }
  Block z() const { return z_; }

  /// The final state's gradients, and what all of the past is worth by them.
  void Start() {
    const std::int64_t dim = memory_.key_dim;
    for (std::int64_t i = 0; i < c_.keys_unit; ++i) {
      std::fill(f().Row(i), f().Row(i) + c_.keys_unit, T(0));
      std::fill(gradient_b().Row(i), gradient_b().Row(i) + c_.values_unit, T(0));
      if (i >= dim) continue;
      if (m_.db) sn::LoadRow(m_.db, i, 0, memory_.value_dim, gradient_b().Row(i));
      if (m_.da) sn::LoadRow(m_.da, i, 0, dim, f().Row(i));
    }
    past_ = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      for (std::int64_t j = i; j < dim; ++j) {
        const T sum = f().Row(i)[j] + f().Row(j)[i];
        f().Row(i)[j] = f().Row(j)[i] = sum;
        const double product =
            static_cast<double>(sum) * static_cast<double>(c_.a[i * c_.a_stride + j]);
        past_ += i == j ? product / 2 : product;
      }
      for (std::int64_t j = 0; j < memory_.value_dim; ++j) {
        past_ += static_cast<double>(gradient_b().Row(i)[j]) *
                 static_cast<double>(c_.b[i * c_.b_stride + j]);
      }
    }
    if (m_.dridge != nullptr) std::fill(m_.dridge, m_.dridge + dim, 0.0);
  }

  void Fade(double g) {
    if (g == 1) return;
    norms_.Fade(g);
    for (std::int64_t i = 0; i < c_.keys_unit; ++i) {
      if (g == 0) {
        std::fill(f().Row(i), f().Row(i) + c_.keys_unit, T(0));
        std::fill(gradient_b().Row(i), gradient_b().Row(i) + c_.values_unit, T(0));
      } else {
        sn::Multiply(f().Row(i), c_.keys_unit, static_cast<T>(g));
        sn::Multiply(gradient_b().Row(i), c_.values_unit, static_cast<T>(g));
      }
    }
  }

  /// c of the token that the part's j-th answering token sees last.
  double ScaleOf(const Part& part, std::int64_t j) const { return part.tokens == 0 ? 1 : s_.c[j]; }

  /// Rows of a part in an array of the whole sequence, of `count` numbers as far apart as in
  /// `room`: where they lie, or if they are no whole units filled up with zeros in `room`.
  Block RowsOf(T* whole, const Part& part, std::int64_t count, const Block& room) {
    const std::int64_t rows = part.reading * memory_.queries;
    const Block there{whole + part.begin * memory_.queries * room.stride, room.stride};
    if (rows % kUnit == 0) return there;
    for (std::int64_t j = 0; j < RoundUp(rows, kUnit); ++j) {
      if (j < rows) {
        std::copy(there.Row(j), there.Row(j) + count, room.Row(j));
      } else {
        std::fill(room.Row(j), room.Row(j) + count, T(0));
      }
    }
    return room;
  }

  void FindSolutions(T* x, T* z, const Part& part) {
    x_ = RowsOf(x, part, c_.keys_unit, {c_.q, c_.k_stride});
    z_ = RowsOf(z, part, c_.keys_unit, {s_.solutions, c_.k_stride});
  }

  /// Keys and values as they are (those that do not count as zeros), and the part's answers.
  void Gather(const Part& part) {
    for (std::int64_t i = 0; i < RoundUp(part.tokens, kUnit); ++i) {
      const std::int64_t t = part.first + i;
      const T counts = Counts(m_, part, i) ? T(1) : T(0);
      LoadScaled(memory_.k, t, memory_.key_dim, counts, keys().Row(i), c_.keys_unit);
      LoadScaled(memory_.v, t, memory_.value_dim, counts, values().Row(i), c_.values_unit);
    }
    GatherAnswerGradients(m_, part.begin, part.reading, c_);
  }

  /// The rows of the part before part p are fetched while that one is worked on.
  void FetchBefore(std::int64_t p) {
    if (p == 0) {
      ahead_ = Prefetcher(0);
      return;
    }
    const Part& part = s_.parts[p - 1];
    ahead_ = Prefetcher(std::max(part.tokens, part.reading));
    ahead_.Add(memory_.k, part.first, 0, memory_.key_dim);
    ahead_.Add(memory_.v, part.first, 0, memory_.value_dim);
    ahead_.Add(m_.dk, part.first, 0, memory_.key_dim);
    ahead_.Add(m_.dv, part.first, 0, memory_.value_dim);
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      ahead_.Add(OfQuery(m_.dy, m_.dy_head_stride, r), part.begin, 0, memory_.value_dim);
      if (!m_.dq) continue;
      ahead_.Add(OfQuery(m_.dq, m_.dq_head_stride, r), part.begin, 0, memory_.key_dim);
    }
    // Tiles of the products that fetch.
    ahead_.Start(TilesOf<T>(1, s_.chunk.chunk, 2 * c_.keys_unit + c_.values_unit) +
                 TilesOf<T>(1, c_.keys_unit, c_.keys_unit + c_.values_unit));
  }

  /// products = triu(left right^T), zero where an answer does not see a token.
  void Products(const Part& part, const Block& left, const Block& right_columns, std::int64_t dim,
                const Block& products) {
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    const std::int64_t columns = RoundUp(part.reading * memory_.queries, kUnit);
    ln::Multiply<ln::Into::kSet>(Left::Of(left), right_columns, unit,
                                 ln::UpperResult{columns, dim, memory_.queries}, products);
    for (std::int64_t i = 0; i < unit; ++i) {
      const std::int64_t unseen = std::min(i * memory_.queries, columns);
      std::fill(products.Row(i), products.Row(i) + unseen, T(0));
    }
  }

  /// What later tokens ask of the part's keys and values.
  void Begin(const Part& part) {
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    const Block gradient_bt{s_.gradient_bt, c_.k_stride};
    sn::TransposeStrided(s_.gradient_b, c_.b_stride, c_.keys_unit, c_.values_unit, gradient_bt.data,
                         gradient_bt.stride);
    ln::Multiply<ln::Into::kSet>(Left::Of(keys()), f(), unit, ln::Whole{c_.keys_unit, c_.keys_unit},
                                 dk(), &ahead_);
    ln::Multiply<ln::Into::kAdd>(Left::Of(values()), gradient_bt, unit,
                                 ln::Whole{c_.keys_unit, c_.values_unit}, dk(), &ahead_);
    ln::Multiply<ln::Into::kSet>(Left::Of(keys()), gradient_b(), unit,
                                 ln::Whole{c_.values_unit, c_.keys_unit}, dv(), &ahead_);
  }

  /// What the part's own answers ask of them, and of all that was before.
  void Answer(const Part& part) {
    const bool ridged = options_.ridge != Ridge::kInState;
    if (ridged) std::fill(s_.diagonal, s_.diagonal + part.reading * c_.keys_unit, 0.0);
    const std::int64_t pair = memory_.tokens * memory_.queries * c_.k_stride;
    for (std::int64_t p = 0; p < part.pairs; ++p) {
      FindSolutions(s_.more_x + p * pair, s_.more_z + p * pair, part);
      SubtractPair(part, ridged);
    }
    FindSolutions(s_.x, s_.z, part);
    if (part.told) {
      AddTold(part);
      SubtractPast(part, ridged);
    } else {
      if (!options_.descends()) SubtractPair(part, ridged);
      AddValues(part);
    }
    AddPastValues(part);
    if (ridged) AddRidge(part);
    if (blocks_.any()) blocks_.Add(part, keys(), dk(), f());
    for (std::int64_t j = 0; j < part.reading && part.tokens == 0; ++j) {
      past_ += s_.worth[part.begin + j];
    }
  }

  /// -Z X^T of the rows of a pair:
  ///
  ///     dK -= triu(K X^T) Z + triu(K Z^T) X,   F + F^T -= Z^T X + X^T Z
  void SubtractPair(const Part& part, bool ridged) {
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    const std::int64_t rows = RoundUp(part.reading * memory_.queries, kUnit);
    if (unit > 0) {
      const Block kx = SeenBy(part, x(), {s_.xt, s_.rows_stride}, {s_.kx, s_.rows_stride});
      const Block kz = SeenBy(part, z(), {s_.zt, s_.rows_stride}, {s_.kz, s_.rows_stride});
      const ln::UpperLeft seen{c_.keys_unit, rows, memory_.queries};
      ln::Multiply<ln::Into::kSubtract>(Left::Of(kx), z(), unit, seen, dk());
      ln::Multiply<ln::Into::kSubtract>(Left::Of(kz), x(), unit, seen, dk());
    }
    SubtractPast(part, ridged);
  }

  /// F + F^T -= Z^T X + X^T Z: squares of kUnit rows on the diagonal and above it, then below.
  void SubtractPast(const Part& part, bool ridged) {
    const UpperSquares upper{c_.keys_unit, RoundUp(part.reading * memory_.queries, kUnit)};
    ln::Multiply<ln::Into::kSubtract>(Left::Transposed(z()), x(), c_.keys_unit, upper, f(),
                                      &ahead_);
    ln::Multiply<ln::Into::kSubtract>(Left::Transposed(x()), z(), c_.keys_unit, upper, f(),
                                      &ahead_);
    for (std::int64_t i = kUnit; i < c_.keys_unit; i += kUnit) {
      sn::TransposeStrided(f().data + i, c_.k_stride, i, kUnit, f().Row(i), c_.k_stride);
    }
    for (std::int64_t j = 0; j < part.reading * memory_.queries && ridged; ++j) {
      double* const diagonal = s_.diagonal + j / memory_.queries * c_.keys_unit;
      for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
        diagonal[i] -= static_cast<double>(z().Row(j)[i]) * static_cast<double>(x().Row(j)[i]);
      }
    }
  }

  /// triu(K X^T) of rows X, which it transposes.
  Block SeenBy(const Part& part, const Block& rows, const Block& columns, const Block& products) {
    sn::TransposeStrided(rows.data, rows.stride, RoundUp(part.reading * memory_.queries, kUnit),
                         c_.keys_unit, columns.data, columns.stride);
    Products(part, keys(), columns, c_.keys_unit, products);
    return products;
  }

  /// What the part's answers ask of its own keys and values, from products that were kept:
  ///
  ///     dK -= triu(K X^T) Z - triu(V dY^T - K Z^T) X,   dV += triu(K X^T) dY
  void AddTold(const Part& part) {
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    const std::int64_t rows = RoundUp(part.reading * memory_.queries, kUnit);
    const Block kx = RowsOf(s_.kx_rows, part, unit, {s_.part_kx, s_.tokens_stride});
    const Block rest = RowsOf(s_.rest_rows, part, unit, {s_.part_rest, s_.tokens_stride});
    const ln::UpperLeft keys{c_.keys_unit, rows, memory_.queries};
    const ln::UpperLeft values{c_.values_unit, rows, memory_.queries};
    ln::Multiply<ln::Into::kSubtract>(Left::Transposed(kx), z(), unit, keys, dk());
    ln::Multiply<ln::Into::kAdd>(Left::Transposed(rest), x(), unit, keys, dk());
    ln::Multiply<ln::Into::kAdd>(Left::Transposed(kx), dy(), unit, values, dv());
  }

  /// dK += triu(V dY^T) X, dV += triu(K X^T) dY.
  void AddValues(const Part& part) {
    const std::int64_t unit = RoundUp(part.tokens, kUnit);
    const std::int64_t rows = RoundUp(part.reading * memory_.queries, kUnit);
    if (unit > 0) {
      const Block kx{s_.kx, s_.rows_stride};  // where the pair of x and z has left its product
      if (options_.descends()) SeenBy(part, x(), {s_.xt, s_.rows_stride}, kx);
      const Block dyt{s_.dyt, s_.rows_stride};
      const Block vdy{s_.vdy, s_.rows_stride};
      sn::TransposeStrided(dy().data, dy().stride, rows, c_.values_unit, dyt.data, dyt.stride);
      Products(part, values(), dyt, c_.values_unit, vdy);
      ln::Multiply<ln::Into::kAdd>(Left::Of(vdy), x(), unit,
                                   ln::UpperLeft{c_.keys_unit, rows, memory_.queries}, dk());
      ln::Multiply<ln::Into::kAdd>(Left::Of(kx), dy(), unit,
                                   ln::UpperLeft{c_.values_unit, rows, memory_.queries}, dv());
    }
  }

  /// G += X^T dY.
  void AddPastValues(const Part& part) {
    const std::int64_t rows = RoundUp(part.reading * memory_.queries, kUnit);
    ln::Multiply<ln::Into::kAdd>(Left::Transposed(x()), dy(), c_.keys_unit,
                                 ln::Whole{c_.values_unit, rows}, gradient_b(), &ahead_);
  }

  /// dL/dR, and what it takes from the worth of A: a constant ridge does not grow with A.
  void AddRidge(const Part& part) {
    for (std::int64_t j = 0; j < part.reading; ++j) {
      double* const diagonal = s_.diagonal + j * c_.keys_unit;
      const bool relative = options_.ridge == Ridge::kRelative;
      const double size = relative ? s_.norm[part.begin + j] : 1;
      const double inverse = 1 / ScaleOf(part, j);
      for (std::int64_t i = 0; i < memory_.key_dim && blocks_.any(); ++i) {
        diagonal[i] += blocks_.Diagonal(part.begin + j, i);
      }
      for (std::int64_t i = 0; i < memory_.key_dim; ++i) diagonal[i] *= inverse;
      for (std::int64_t i = 0; i < memory_.key_dim && m_.dridge != nullptr; ++i) {
        m_.dridge[i] += size * diagonal[i];
      }
      const double sum = sn::WideDot(memory_.key_dim, memory_.ridge, diagonal);
      if (relative) {
        norms_.Set(part, j, sum);
      } else {
        s_.worth[part.begin + j] -= sum;
      }
    }
  }

  /// dK and dV times w / c to their places, and the numbers of every token, the last one first.
  void WriteTokens(const Part& part) {
    for (std::int64_t i = part.tokens - 1; i >= 0; --i) {
      const std::int64_t t = part.first + i;
      if (i < part.reading) past_ += s_.worth[part.begin + i];
      const double weight = memory_.importance ? sn::LoadOne<double>(memory_.importance, t) : 1;
      const double c = s_.c[i];
      T* const key_gradient = dk().Row(i);
      T* const value_gradient = dv().Row(i);
      const double by_weight = (sn::WideDot(memory_.key_dim, keys().Row(i), key_gradient) +
                                sn::WideDot(memory_.value_dim, values().Row(i), value_gradient)) /
                               (2 * c);
      if (m_.dimportance) StoreNumber(by_weight, t, m_.dimportance);
      StoreScaled(key_gradient, weight / c, t, memory_.key_dim, m_.dk);
      StoreScaled(value_gradient, weight / c, t, memory_.value_dim, m_.dv);
      if (weight != 0) past_ -= weight * by_weight;
      if (part.decay == 0 && i == 0) past_ = 0;
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
  void WriteQueries(const Part& part) {
    if (!m_.dq) return;
    T* row = s_.z + part.begin * memory_.queries * c_.k_stride;
    for (std::int64_t t = part.begin; t < part.begin + part.reading; ++t) {
      for (std::int64_t r = 0; r < memory_.queries; ++r, row += c_.k_stride) {
        const Rows to = OfQuery(m_.dq, m_.dq_head_stride, r);
        StoreScaled(row, options_.scale, t, memory_.key_dim, to);
      }
    }
  }

  void Finish() {
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      sn::Multiply(f().Row(i), memory_.key_dim, T(0.5));
      const T* const a = static_cast<const T*>(memory_.a) + i * memory_.a_stride;
      for (std::int64_t j = 0; j < memory_.key_dim && norms_.alpha() != 0; ++j) {
        f().Row(i)[j] += static_cast<T>(norms_.alpha()) * a[j];
      }
      if (m_.da_initial) sn::StoreRow(f().Row(i), i, 0, memory_.key_dim, m_.da_initial);
      if (m_.db_initial) sn::StoreRow(gradient_b().Row(i), i, 0, memory_.value_dim, m_.db_initial);
    }
  }

  const Options& options_;
  const GradientMemory& m_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Scratch<T>& c_;
  const GradientBlocks<T> blocks_;
  GradientNorms<T> norms_;
  Prefetcher ahead_{0};
  Block x_{}, z_{};
  double past_ = 0;  // <F, A> + <G, B> of what was written before
};

template <class T>
void RunGradient(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                 std::byte* scratch) {
  const GradientScratch<T> s(options, sizes, scratch);
  std::fill(s.worth, s.worth + memory.memory.tokens, 0.0);
  const std::int64_t parts = options.iterates() ? GradientIterations<T>(options, memory, s).Run()
                                                : GradientForward<T>(options, memory, s).Run();
  GradientBackward<T>(options, memory, s).Run(parts);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_BACKWARD_INL_H_
