// Gradients by importances of 0, and by weights of 0 in a state. Compiled once for every target.

#if defined(TTR_KERNEL_REGRESSION_SLOPES_AT_ZERO_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_SLOPES_AT_ZERO_INL_H_
#undef TTR_KERNEL_REGRESSION_SLOPES_AT_ZERO_INL_H_
#else
#define TTR_KERNEL_REGRESSION_SLOPES_AT_ZERO_INL_H_
#endif

#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/kernel_regression/gradient.h"
#include "src/engines/kernel_regression/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

/// The gradient by the importance, or weight, of a pair that has none, on the side where it has
/// some: products of what the fits of k(K, q) and of V dy leave at its key, over the ridge.
template <class T>
class SlopesAtZero {
 public:
  static constexpr std::int64_t kWide = kPanel<T>;

  SlopesAtZero(const Task& task, const MemoryGradient& gradient, const Factor<T>& factor,
               const GradientScratch<T>& scratch, const Solutions<T>& solutions)
      : options_(task.options),
        m_(task.memory),
        g_(gradient),
        f_(factor),
        s_(scratch),
        solutions_(solutions) {}

  void Store() const {
    for (std::int64_t i = 0; g_.dstate_weight && i < m_.visible.held; ++i) {
      if (cn::OffsetOf(m_, i) == -std::numeric_limits<double>::infinity()) {
        StoreSlope(i, i, g_.dstate_weight);
      }
    }
    if (!g_.dimportance || !m_.importance) return;
    for (std::int64_t t = 0; t < m_.visible.tokens; ++t) {
      if (sn::LoadOne<double>(m_.importance, t) == 0) {
        StoreSlope(m_.visible.held + t, t, g_.dimportance);
      }
    }
  }

 private:
  void StoreSlope(std::int64_t pair, std::int64_t row, const Rows& to) const {
    const double slope = SlopeOf(pair);
    sn::StoreRow(&slope, row, 0, 1, to);
  }

  /// The slope of pair `pair`; 0 where it is not finite.
  double SlopeOf(std::int64_t pair) const {
    T *const key = s_.row, *const value = s_.spare;
    cn::KeysOf(m_).Load(pair, m_.key_dim, key);
    cn::ValuesOf(m_).Load(pair, m_.value_dim, value);
    const std::int64_t seen = SeenPairs(m_);
    double* const kernels = solutions_.products;  // which are summed up by now
    for (std::int64_t j = 0; j < seen; ++j) {
      const double gain = static_cast<double>(f_.gains[j]);
      kernels[j] = GainedKernel(options_, m_, key, f_.keys.Row(j), none_, gain);
    }
    double sum = 0;
    for (std::int64_t at = 0; at < m_.rows; ++at) {
      if (m_.visible.End(at / m_.queries) > pair) sum += LeftOver(at, key, value);
    }
    return std::isfinite(sum) ? sum / m_.ridge : 0;
  }

  /// What query `at` leaves of k(key, q), times what it leaves of value . dy.
  double LeftOver(std::int64_t at, const T* key, const T* value) const {
    const common::Place place = common::Place::Of(m_, at);
    T* const row = s_.queries.row;
    cn::LoadQuery(m_, place, 1, row);
    double kernel = GainedKernel(options_, m_, key, static_cast<const T*>(row), none_, none_);
    sn::LoadRow(g_.dy.Of(place.query), place.token, 0, m_.value_dim, row);
    double product = sn::WideDot(m_.value_dim, value, static_cast<const T*>(row));
    const std::int64_t block = at / kBlock, column = at % kBlock, end = m_.visible.End(place.token);
    const SolutionBlock<T> from = solutions_.Of(m_, f_.extent, block);
    const std::int64_t rows = RowsOfQueries(m_.visible, m_.queries, m_.rows, block, f_.extent);
    const std::int64_t first = column / kWide * rows * kWide + column % kWide;
    for (std::int64_t j = 0; j < end; ++j) {
      kernel -= solutions_.products[j] * static_cast<double>(from.a[first + j * kWide]);
      product -= solutions_.products[j] * static_cast<double>(from.b[first + j * kWide]);
    }
    return kernel * product;
  }

  const Options& options_;
  const Memory& m_;
  const MemoryGradient& g_;
  const Factor<T>& f_;
  const GradientScratch<T>& s_;
  const Solutions<T>& solutions_;
  const double none_ = options_.kernel == Kernel::kLinear ? 1 : 0;  // what a gain of 1 is
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_SLOPES_AT_ZERO_INL_H_
