// Gradients of pairs, queries and weights to where they belong. Compiled once for every target.

#if defined(TTR_COMMON_PAIR_GRADIENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_PAIR_GRADIENTS_INL_H_
#undef TTR_COMMON_PAIR_GRADIENTS_INL_H_
#else
#define TTR_COMMON_PAIR_GRADIENTS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/core/forgets_all.h"
#include "src/engines/common/pair_gradients.h"
#include "src/engines/common/pairs-inl.h"
#include "src/engines/common/queries.h"
#include "src/simd/unit_length-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

/// Adds a pair's gradient in the final state, if it stays there.
template <class T>
void AddFinalGradient(const KeptPairs& m, const PairGradients& g, const Rows& final,
                      std::int64_t pair, std::int64_t channels, T* gradient, T* room) {
  if (!final) return;
  const std::int64_t row = pair - (m.all() - g.final_place.After(m.visible.held, m.visible.tokens));
  if (row < 0) return;
  sn::LoadRow(final, row, 0, channels, room);
  for (std::int64_t c = 0; c < channels; ++c) gradient[c] += room[c];
}

/// Stores a gradient. If `x` is given, the row before it was made unit length, goes through that.
template <class T>
void StoreGradientRow(T* gradient, const T* x, const Rows& to, std::int64_t row,
                      std::int64_t channels, T* room) {
  if (!to) return;
  if (x != nullptr) {
    sn::UnitGradientOf(channels, x, 1, sn::kUnitEps, gradient, room, gradient);
  }
  sn::StoreRow(gradient, row, 0, channels, to);
}

/// Stores dk and dv of pair `pair`; `room` and `spare` are room for a row each.
template <class T>
void StorePairGradient(const KeptPairs& m, const PairGradients& g, std::int64_t pair, T* dk, T* dv,
                       T* room, T* spare) {
  const bool old = pair < m.visible.held;
  const std::int64_t row = old ? pair : pair - m.visible.held;
  AddFinalGradient(m, g, g.final_k, pair, m.key_dim, dk, spare);
  AddFinalGradient(m, g, g.final_v, pair, m.value_dim, dv, spare);
  const bool normalises = m.normalises && !old;
  if (normalises) sn::LoadRow(m.k, row, 0, m.key_dim, room);
  StoreGradientRow(dk, normalises ? room : nullptr, old ? g.dstate_k : g.dk, row, m.key_dim, spare);
  StoreGradientRow(dv, static_cast<const T*>(nullptr), old ? g.dstate_v : g.dv, row, m.value_dim,
                   spare);
}

/// Rows of the gradients of pairs and queries, from where an engine sums them up.
template <class T>
class PairGradientRows {
 public:
  /// `row`, `spare`: room for the longer of a key and a value.
  PairGradientRows(const QueriedPairs& pairs, const PairGradients& gradients, T* row, T* spare)
      : m_(pairs), g_(gradients), row_(row), spare_(spare) {}

  void StorePair(std::int64_t pair, T* dk, T* dv) const {
    StorePairGradient(m_, g_, pair, dk, dv, row_, spare_);
  }
  void StoreQuery(const Place& place, T* dq) const {
    if (m_.normalises) sn::LoadRow(m_.q.Of(place.query), place.token, 0, m_.key_dim, row_);
    StoreGradientRow(dq, m_.normalises ? row_ : nullptr, g_.dq.Of(place.query), place.token,
                     m_.key_dim, spare_);
  }

 private:
  const QueriedPairs& m_;
  const PairGradients& g_;
  T *row_, *spare_;
};

/// Gradients of decays and importance from those by the logarithms of weights. log w of a pair at
/// token t is its offset and the total of decays up to t, since the last token that forgot all; the
/// offset of a pair of the call lacks the total up to itself. So the gradient by a total is that of
/// its queries less that of its pair, and a decay has the sum of those by later totals.
class WeightsGradient {
 public:
  /// `pair_sums`: by log w of every pair of the call, to which those of the final state are added;
  /// `query_sums`: by those of all pairs of every query, null where they are 0.
  WeightsGradient(const QueriedPairs& pairs, const PairGradients& gradients, double* pair_sums,
                  const double* query_sums)
      : m_(pairs), g_(gradients), pair_sums_(pair_sums), query_sums_(query_sums) {}

  void Run() const {
    if (!m_.weighted) return;
    const QueryBlock block(m_, 0);
    double by_totals = AddFinal();
    std::int64_t query = m_.rows - 1;
    for (std::int64_t t = m_.visible.tokens - 1; t >= 0; --t) {
      for (; query_sums_ != nullptr && query >= 0 && block.Written(block.TokenOf(query)) == t;
           --query) {
        by_totals += query_sums_[query];
      }
      const double pair = pair_sums_[t];
      const bool counts = !m_.importance || sn::LoadOne<double>(m_.importance, t) != 0;
      if (counts) by_totals -= pair;
      StoreToken(t, pair, by_totals);
      if (Forgets(t)) by_totals = 0;
    }
  }

 private:
  bool Forgets(std::int64_t t) const {
    return m_.log_decay && ForgetsAll(sn::LoadOne<double>(m_.log_decay, t));
  }

  void StoreToken(std::int64_t t, double pair, double by_totals) const {
    if (g_.dlog_decay) {
      const double gradient = Forgets(t) ? 0 : by_totals;
      sn::StoreRow(&gradient, t, 0, 1, g_.dlog_decay);
    }
    if (g_.dlog_importance) sn::StoreRow(&pair, t, 0, 1, g_.dlog_importance);
    if (g_.dimportance) {
      const double importance = sn::LoadOne<double>(m_.importance, t);
      // A pair of importance 0 was weighed as if it were 1.
      const double gradient = importance == 0 ? pair : pair / importance;
      sn::StoreRow(&gradient, t, 0, 1, g_.dimportance);
    }
  }

  /// What the final state's weights add to sums by pairs; the sum of it all.
  double AddFinal() const {
    if (!g_.final_log_weight) return 0;
    const std::int64_t held = m_.visible.held, all = m_.all();
    const std::int64_t dropped = all - g_.final_place.After(held, m_.visible.tokens);
    const std::int64_t tokens = m_.visible.tokens;
    const std::int64_t forgotten = tokens > 0 ? m_.weights.forgotten[tokens - 1] : 0;
    double sum = 0;
    for (std::int64_t i = std::max(dropped, forgotten); i < all; ++i) {
      // A weight of 0 stays 0.
      if (std::isinf(OffsetOf(m_, i))) continue;
      const double gradient = sn::LoadOne<double>(g_.final_log_weight, i - dropped);
      sum += gradient;
      if (i >= held) {
        pair_sums_[i - held] += gradient;
      } else if (g_.dstate_log_weight) {
        const double total = sn::LoadOne<double>(g_.dstate_log_weight, i) + gradient;
        sn::StoreRow(&total, i, 0, 1, g_.dstate_log_weight);
      }
    }
    return sum;
  }

  const QueriedPairs& m_;
  const PairGradients& g_;
  double* pair_sums_;
  const double* query_sums_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_PAIR_GRADIENTS_INL_H_
