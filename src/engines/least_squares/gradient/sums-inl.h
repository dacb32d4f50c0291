// F + F^T and G of a sequence, from its end to its start. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_SUMS_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_SUMS_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_SUMS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// What is computed of a result: squares of kUnit rows and columns on its diagonal and
/// above.
struct UpperSquares {
  std::int64_t columns, steps;
  std::int64_t FirstColumn(std::int64_t i) const { return i / kUnit * kUnit; }
  std::int64_t FirstStep(std::int64_t) const { return 0; }
  std::int64_t Steps(std::int64_t, std::int64_t) const { return steps; }
};

/// F and G of gradient.h, in the scale of the stretch that is at hand.
template <class T>
class GradientSums {
 public:
  GradientSums(const GradientMemory& memory, const GradientScratch<T>& scratch,
               simd::Prefetcher& prefetcher)
      : m_(memory),
        memory_(memory.memory),
        s_(scratch),
        c_(scratch.chunk),
        prefetcher_(prefetcher) {}

  const Block<T>& f() const { return s_.f; }
  const Block<T>& b() const { return s_.backward.b; }

  /// The final state's gradients. Returns <F, A> + <G, B> with the A and B in the scratch.
  double Start() const {
    const std::int64_t dim = memory_.key_dim();
    linalg::ZeroRows(f(), 0, c_.keys_unit, c_.keys_unit);
    linalg::ZeroRows(b(), 0, c_.keys_unit, c_.values_unit);
    for (std::int64_t i = 0; i < dim; ++i) {
      if (m_.db) sn::LoadRow(m_.db, i, 0, memory_.value_dim(), b().Row(i));
      if (m_.da) sn::LoadRow(m_.da, i, 0, dim, f().Row(i));
    }
    double past = 0;
    for (std::int64_t i = 0; i < dim; ++i) {
      for (std::int64_t j = i; j < dim; ++j) {
        const T sum = f().Row(i)[j] + f().Row(j)[i];
        f().Row(i)[j] = f().Row(j)[i] = sum;
        const double product = static_cast<double>(sum) * static_cast<double>(c_.a.Row(i)[j]);
        past += i == j ? product / 2 : product;
      }
      for (std::int64_t j = 0; j < memory_.value_dim(); ++j) {
        past += static_cast<double>(b().Row(i)[j]) * static_cast<double>(c_.b.Row(i)[j]);
      }
    }
    return past;
  }

  void Fade(double g) const {
    if (g == 1) return;
    if (g == 0) {
      linalg::ZeroRows(f(), 0, c_.keys_unit, c_.keys_unit);
      linalg::ZeroRows(b(), 0, c_.keys_unit, c_.values_unit);
      return;
    }
    for (std::int64_t i = 0; i < c_.keys_unit; ++i) {
      sn::Multiply(f().Row(i), c_.keys_unit, static_cast<T>(g));
      sn::Multiply(b().Row(i), c_.values_unit, static_cast<T>(g));
    }
  }

  /// F + F^T -= Z^T X + X^T Z, of `rows` rows: squares of kUnit rows on the diagonal and above it,
  /// then below.
  void SubtractPairs(const Block<T>& x, const Block<T>& z, std::int64_t rows) const {
    const UpperSquares upper{c_.keys_unit, rows};
    ln::Multiply<ln::Into::kSubtract>(Left<T>::Transposed(z), x, c_.keys_unit, upper, f(),
                                      &prefetcher_);
    ln::Multiply<ln::Into::kSubtract>(Left<T>::Transposed(x), z, c_.keys_unit, upper, f(),
                                      &prefetcher_);
    for (std::int64_t i = kUnit; i < c_.keys_unit; i += kUnit) {
      ln::Transpose(f().Columns(i), i, kUnit, f().Rows(i));
    }
  }

  /// G += X^T dY.
  void AddValues(const Block<T>& x, const Block<T>& dy, std::int64_t rows) const {
    ln::Multiply<ln::Into::kAdd>(Left<T>::Transposed(x), dy, c_.keys_unit,
                                 ln::Whole{c_.values_unit, rows}, b(), &prefetcher_);
  }

  /// dK = K (F + F^T) + V G^T and dV = K G of `rows` tokens that were written before.
  void GradientsOf(std::int64_t rows, const Block<T>& dk, const Block<T>& dv) const {
    const Block<T>& bt = s_.backward.bt;
    ln::Transpose(b(), c_.keys_unit, c_.values_unit, bt);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(c_.k), f(), rows,
                                 ln::Whole{c_.keys_unit, c_.keys_unit}, dk, &prefetcher_);
    ln::Multiply<ln::Into::kAdd>(Left<T>::Of(c_.v), bt, rows,
                                 ln::Whole{c_.keys_unit, c_.values_unit}, dk, &prefetcher_);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(c_.k), b(), rows,
                                 ln::Whole{c_.values_unit, c_.keys_unit}, dv, &prefetcher_);
  }

  /// Writes the gradients of the initial state; the one by A gets alpha A more.
  void Finish(double alpha) const {
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      sn::Multiply(f().Row(i), memory_.key_dim(), T(0.5));
      const T* const a = static_cast<const T*>(memory_.state.a) + i * memory_.state.a_stride;
      for (std::int64_t j = 0; j < memory_.key_dim() && alpha != 0; ++j) {
        f().Row(i)[j] += static_cast<T>(alpha) * a[j];
      }
      if (m_.da_initial) sn::StoreRow(f().Row(i), i, 0, memory_.key_dim(), m_.da_initial);
      if (m_.db_initial) sn::StoreRow(b().Row(i), i, 0, memory_.value_dim(), m_.db_initial);
    }
  }

 private:
  const GradientMemory& m_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Scratch<T>& c_;
  simd::Prefetcher& prefetcher_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_SUMS_INL_H_
