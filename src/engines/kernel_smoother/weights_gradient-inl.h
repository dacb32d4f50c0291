// Gradients of decays, importance and the bandwidth from sums of ds. Compiled once for every
// target.

#if defined(TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
#undef TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

/// log w of a pair at token t is its offset and the total of decays up to t, since the last token
/// that forgot all; the offset of a pair of the call lacks the total up to itself. So the gradient
/// by a total is that of its queries less that of its pair, and a decay has the sum of those by
/// later totals.
class WeightsGradient {
 public:
  explicit WeightsGradient(const GradientTask& task) : m_(task.memory), g_(task.gradient) {}

  void Run() const {
    StoreBandwidth();
    if (!m_.weighted || m_.sight.tokens == 0) return;
    const double final_sum = AddFinal();
    const QueryBlock block(m_, 0);
    double by_totals = final_sum;
    std::int64_t query = m_.rows - 1;
    for (std::int64_t t = m_.sight.tokens - 1; t >= 0; --t) {
      for (; query >= 0 && block.Written(block.TokenOf(query)) == t; --query) {
        by_totals += g_.query_sums[query];
      }
      const double pair = g_.pair_sums[t];
      const bool counts = !m_.importance || sn::LoadOne<double>(m_.importance, t) != 0;
      if (counts) by_totals -= pair;
      StoreToken(t, pair, by_totals);
      if (Forgets(t)) by_totals = 0;
    }
  }

 private:
  bool Forgets(std::int64_t t) const {
    return m_.log_decay && std::isinf(sn::LoadOne<double>(m_.log_decay, t));
  }

  void StoreToken(std::int64_t t, double pair, double by_totals) const {
    if (g_.dlog_decay) {
      const double gradient = Forgets(t) ? 0 : by_totals;
      sn::StoreRow(&gradient, t, 0, 1, g_.dlog_decay);
    }
    if (g_.dlog_importance) sn::StoreRow(&pair, t, 0, 1, g_.dlog_importance);
    if (g_.dimportance) {
      const double importance = sn::LoadOne<double>(m_.importance, t);
      // At 0 the pair was weighed as if it were 1.
      const double gradient = importance == 0 ? pair : pair / importance;
      sn::StoreRow(&gradient, t, 0, 1, g_.dimportance);
    }
  }

  /// What the final state's weights add to sums by pairs; the sum of it all.
  double AddFinal() const {
    if (!g_.final_log_weight) return 0;
    const std::int64_t held = m_.sight.held, all = held + m_.sight.tokens;
    const std::int64_t dropped = all - g_.final_place.After(held, m_.sight.tokens);
    double sum = 0;
    for (std::int64_t i = std::max(dropped, m_.weights.forgotten[m_.sight.tokens - 1]); i < all;
         ++i) {
      // A weight of 0 stays 0.
      if (std::isinf(OffsetOf(m_, i))) continue;
      const double gradient = sn::LoadOne<double>(g_.final_log_weight, i - dropped);
      sum += gradient;
      if (i >= held) {
        g_.pair_sums[i - held] += gradient;
      } else if (g_.dstate_log_weight) {
        const double total = sn::LoadOne<double>(g_.dstate_log_weight, i) + gradient;
        sn::StoreRow(&total, i, 0, 1, g_.dstate_log_weight);
      }
    }
    return sum;
  }

  void StoreBandwidth() const {
    if (g_.dbandwidth == nullptr) return;
    double sum = 0;
    for (std::int64_t i = 0; i < m_.rows; ++i) sum += g_.width_sums[i];
    *g_.dbandwidth = m_.bandwidth == 0 ? 0 : sum / m_.bandwidth;
  }

  const Memory& m_;
  const MemoryGradient& g_;
};

inline void FinishAs(const GradientTask& task) { WeightsGradient(task).Run(); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_WEIGHTS_GRADIENT_INL_H_
