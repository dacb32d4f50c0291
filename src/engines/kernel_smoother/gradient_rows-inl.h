// Gradients of pairs and queries from sums of products to where they belong. Compiled once for
// every target.

#if defined(TTR_KERNEL_SMOOTHER_GRADIENT_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_GRADIENT_ROWS_INL_H_
#undef TTR_KERNEL_SMOOTHER_GRADIENT_ROWS_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_GRADIENT_ROWS_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/pair_gradients-inl.h"
#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

template <class T>
class GradientRows {
 public:
  GradientRows(const GradientTask& task, const GradientScratch<T>& scratch)
      : options_(task.options), m_(task.memory), g_(task.gradient), s_(scratch) {}

  /// Pair `pair`, which is row i of its block.
  void StorePair(std::int64_t pair, std::int64_t i) const {
    const bool old = pair < m_.visible.held;
    const std::int64_t row = old ? pair : pair - m_.visible.held;
    if (common::IsByDistance(options_.kernel) && s_.sums.e[i] != 0) {
      for (std::int64_t c = 0; c < m_.key_dim; ++c) {
        s_.sums.dk.Row(i)[c] -= s_.sums.e[i] * s_.k.Row(i)[c];
      }
    }
    cn::StorePairGradient(m_, g_, pair, s_.sums.dk.Row(i), s_.sums.dv.Row(i), s_.row, s_.spare);
    const auto sum = static_cast<double>(s_.sums.ds[i]);
    if (!old && m_.weighted) g_.pair_sums[row] = sum;
    if (old && g_.dstate_log_weight) sn::StoreRow(&sum, row, 0, 1, g_.dstate_log_weight);
  }

  void StoreQueries(std::int64_t query, const Block<T>& dq) const {
    const cn::PairGradientRows<T> rows(m_, g_, s_.row, s_.spare);
    for (std::int64_t i = 0; i < std::min(kQueries, m_.rows - query); ++i) {
      const Place place = Place::Of(m_, query + i);
      T* const row = dq.Row(i);
      if (common::IsByDistance(options_.kernel)) {
        LoadQuery(m_, place, 1, s_.row);
        for (std::int64_t c = 0; c < m_.key_dim; ++c)
          row[c] -= row[linalg::RoundUp(m_.key_dim, kUnit)] * s_.row[c];
      } else if (options_.scale != 1) {
        sn::Multiply(row, m_.key_dim, static_cast<T>(options_.scale));
      }
      rows.StoreQuery(place, row);
    }
  }

 private:
  const Options& options_;
  const Memory& m_;
  const MemoryGradient& g_;
  const GradientScratch<T>& s_;
};

/// dy . y of a block of queries, from means that were saved.
template <class T>
void TakeSumsAs(const GradientTask& task, const void* means) {
  const Memory& m = task.memory;
  const std::int64_t count = std::min(kQueries, m.rows - task.first);
  ScratchLayout layout(task.scratch);
  T* const row = GradientScratch<T>(m.key_dim, m.value_dim, layout).row;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t at = task.first + i, t = at / m.queries;
    sn::LoadRow(task.gradient.dy.Of(at - t * m.queries), t, 0, m.value_dim, row);
    const T* const mean = static_cast<const T*>(means) + at * m.value_dim;
    static_cast<T*>(task.gradient.sums.dots)[at] =
        static_cast<T>(sn::WideDot(m.value_dim, mean, row));
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_GRADIENT_ROWS_INL_H_
