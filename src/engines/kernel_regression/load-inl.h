// Pairs and queries of one memory into the form that its factor wants. Compiled once for every
// target.

#if defined(TTR_KERNEL_REGRESSION_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_LOAD_INL_H_
#undef TTR_KERNEL_REGRESSION_LOAD_INL_H_
#else
#define TTR_KERNEL_REGRESSION_LOAD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/queries-inl.h"
#include "src/engines/kernel_regression/kernels-inl.h"
#include "src/engines/kernel_regression/pair_scale.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

/// Fills a block of pairs.
template <class T>
class PairLoader {
 public:
  PairLoader(const Task& task, const Factor<T>& factor)
      : options_(task.options), m_(task.memory), f_(factor) {}

  void Load(std::int64_t block) const {
    f_.nonfinite_keys[block] = kNone;
    f_.nonfinite_values[block] = 0;
    const std::int64_t first = block * f_.extent.block;
    for (std::int64_t i = first; i < first + f_.extent.block; ++i) {
      if (i >= m_.all() || !LoadPair(i, block)) LeaveOut(i, T(1));
    }
  }

 private:
  /// Gives a pair without weight the row of a unit matrix.
  void LeaveOut(std::int64_t i, T diagonal) const {
    std::fill(f_.keys.Row(i), f_.keys.Row(i) + f_.keys.stride, T(0));
    std::fill(f_.e.Row(i), f_.e.Row(i) + f_.e.stride, T(0));
    f_.gains[i] = NoGain<T>(options_.kernel);
    f_.diagonal[i] = diagonal;
    f_.inverse[i] = 0;
  }

  /// Loads a pair. False where it has no weight, or is not finite.
  bool LoadPair(std::int64_t i, std::int64_t block) const {
    const double log_weight = m_.weighted ? cn::OffsetOf(m_, i) : 0;
    if (log_weight == -std::numeric_limits<double>::infinity()) return false;
    T* const key = f_.keys.Row(i);
    cn::KeysOf(m_).Load(i, m_.key_dim, key);
    std::fill(key + m_.key_dim, key + f_.keys.stride, T(0));
    const bool finite = cn::IsFinite(key, linalg::RoundUp(m_.key_dim, kUnit));
    if (!finite || !(log_weight < std::numeric_limits<double>::infinity())) {
      f_.nonfinite_keys[block] = std::min(f_.nonfinite_keys[block], i);
      return false;
    }
    const PairScale scale(options_, m_.ridge, sn::SumOfSquares(key, m_.key_dim), log_weight);
    if (scale.none()) {
      LeaveOut(i, T(0));
      return true;
    }
    const T gain = static_cast<T>(scale.gain);
    f_.gains[i] = gain;
    f_.diagonal[i] = static_cast<T>(scale.Diagonal(static_cast<double>(gain)));
    f_.inverse[i] = static_cast<T>(scale.Inverse(static_cast<double>(gain)));
    LoadValue(i, block, static_cast<T>(scale.Factor(static_cast<double>(gain))));
    return true;
  }

  void LoadValue(std::int64_t i, std::int64_t block, T factor) const {
    T* const value = f_.e.Row(i);
    cn::ValuesOf(m_).Load(i, m_.value_dim, value);
    std::fill(value + m_.value_dim, value + f_.e.stride, T(0));
    if (!cn::IsFinite(value, linalg::RoundUp(m_.value_dim, kUnit))) {
      f_.nonfinite_values[block] = 1;
      for (std::int64_t c = 0; c < m_.value_dim; ++c) {
        if (!std::isfinite(value[c])) value[c] = 0;
      }
    }
    sn::Multiply(value, m_.value_dim, factor);
  }

  const Options& options_;
  const Memory& m_;
  const Factor<T>& f_;
};

/// Finds the pairs from which prefixes are not finite: in all channels, and channel by channel.
template <class T>
void FindNonfiniteAs(const Task& task, const Factor<T>& f, T* row) {
  const Memory& m = task.memory;
  f.progress->good = 0;
  f.progress->nonfinite = kNone;
  if (f.progress->done == 0) f.progress->least = 1;
  std::fill(f.nonfinite_from, f.nonfinite_from + m.value_dim, kNone);
  for (std::int64_t block = 0; block < f.extent.blocks; ++block) {
    const std::int64_t first = block * f.extent.block;
    if (first >= m.all()) break;
    f.progress->nonfinite = std::min(f.progress->nonfinite, f.nonfinite_keys[block]);
    if (f.nonfinite_values[block] == 0) continue;
    for (std::int64_t i = first; i < std::min(first + f.extent.block, m.all()); ++i) {
      if (f.gains[i] == NoGain<T>(task.options.kernel)) continue;
      cn::ValuesOf(m).Load(i, m.value_dim, row);
      for (std::int64_t c = 0; c < m.value_dim; ++c) {
        if (!std::isfinite(row[c])) f.nonfinite_from[c] = std::min(f.nonfinite_from[c], i);
      }
    }
  }
}

/// Is k . q scaled under this kernel?
inline bool HasScale(Kernel kernel) {
  return kernel == Kernel::kExponential || kernel == Kernel::kLinear;
}

/// A kernel of the distance at one squared distance: its logarithm, and the slopes of the logarithm
/// as LogKernel has them.
struct AtDistance {
  double log = 0, along = 0, by_width = 0;
};

inline AtDistance OfDistance(Kernel kernel, double squares, double bandwidth) {
  AtDistance at;
  cn::WithKernel(kernel, [&](auto unit) HWY_ATTR {
    if constexpr (decltype(unit)::kByDistance) {
      const hn::CappedTag<double, 1> d;
      const auto x = hn::Set(d, squares),
                 width = hn::Set(d, cn::WidthOf<double>(kernel, bandwidth));
      at = {hn::GetLane(unit.Of(d, x, width)), hn::GetLane(unit.Along(d, x, width)),
            hn::GetLane(unit.ByWidth(d, x, width))};
    }
  });
  return at;
}

/// k(a, b) of one pair of rows times the gains of both, in double.
template <class T>
double GainedKernel(const Options& options, const Memory& m, const T* a, const T* b, double left,
                    double right) {
  if (HasScale(options.kernel)) {
    const double dot = options.scale * sn::WideDot(m.key_dim, a, b);
    return options.kernel == Kernel::kLinear ? dot * left * right : std::exp(dot + left + right);
  }
  double squares = 0;
  for (std::int64_t c = 0; c < m.key_dim; ++c) {
    const double x = static_cast<double>(a[c]) - static_cast<double>(b[c]);
    squares += x * x;
  }
  return std::exp(left + right + OfDistance(options.kernel, squares, m.bandwidth).log);
}

/// Rows of keys as columns, scaled where the kernel scales k . q.
template <class T>
void LoadColumns(const Options& options, const Block<T>& rows, std::int64_t count,
                 std::int64_t key_dim, const Block<T>& kt) {
  const std::int64_t dk = linalg::RoundUp(key_dim, kUnit);
  ln::Transpose(rows, count, dk, kt);
  if (!HasScale(options.kernel) || options.scale == 1) return;
  for (std::int64_t c = 0; c < key_dim; ++c) {
    sn::Multiply(kt.Row(c), count, static_cast<T>(options.scale));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_LOAD_INL_H_
