// Gradients of a block of pairs, from all queries that see them. Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_PAIR_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_PAIR_GRADIENT_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_PAIR_GRADIENT_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_PAIR_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

template <class T>
class PairGradients : GradientBlocks<T> {
  using Base = GradientBlocks<T>;
  using Base::g_, Base::m_, Base::s_, Base::task_;

 public:
  PairGradients(const GradientTask& task, const GradientScratch<T>& scratch)
      : Base(task, scratch) {}

  void Run() {
    const std::int64_t whole = linalg::RoundUp(task_.count, kUnit);
    linalg::ZeroRows(s_.dk, 0, whole, this->KeyWidth());
    linalg::ZeroRows(s_.dv, 0, whole, this->ValueWidth());
    std::fill(s_.ds_sums, s_.ds_sums + kPairs, T(0));
    std::fill(s_.e_sums, s_.e_sums + kPairs, T(0));
    std::fill(s_.weights.marks, s_.weights.marks + kPairs, T(0));
    bool loaded = false;
    for (std::int64_t first = 0; first < m_.rows; first += kQueries) {
      const std::int64_t count = std::min(kQueries, m_.rows - first);
      const Range seen = common::QueryBlock(m_, first).SeenBy(0, count);
      if (seen.first >= task_.first + task_.count || seen.end <= task_.first) continue;
      AddQueries({.options = task_.options,
                  .memory = m_,
                  .monomials = task_.monomials,
                  .first = first,
                  .count = count},
                 loaded);
      loaded = true;
    }
    Store(loaded);
  }

 private:
  static std::int64_t Lanes() { return Fit<T>::Lanes(); }

  void AddQueries(const Task& queries, bool loaded) {
    const FitRecord<T> record = this->RecordOf(queries.first);
    WeightScratch<T> scratch = s_.weights;
    scratch.tops = record.tops;
    scratch.sums = record.sums;
    scratch.hits = record.hits;
    Weights<T> weights(queries, scratch);
    if (!loaded) {
      weights.LoadKeys(task_.first, task_.count);
      this->LoadValues(task_.first, task_.count);
    }
    weights.LoadOffsets(task_.first, task_.count);
    if (!weights.Share(task_.first, task_.count)) return;
    for (std::int64_t i = 0; i < queries.count; ++i) {  // which may be NaN
      if (weights.Alone(i)) linalg::ZeroRows(s_.weights.scaled, i, i + 1, this->KeyWidth());
    }
    this->LoadOutputGradients(queries.first, queries.count);
    this->TakeNumbers(task_.count);
    Differentiate(record);
    StoreBias(queries);
    const std::int64_t columns = linalg::RoundUp(task_.count, kUnit);
    linalg::ZeroRows(s_.e, task_.count, columns, kQueries);
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(s_.e), s_.dy, columns,
                                 ln::Whole{this->ValueWidth(), kQueries}, s_.dv);
    this->TakeKernelSlopes(scratch, weights.width(), queries.count, task_.count,
                           [](std::int64_t, T) {});
    SumSlopes(queries.count);
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.rows), s_.weights.scaled, columns,
                                 ln::Whole{this->KeyWidth(), kQueries}, s_.dk);
  }

  void Differentiate(const FitRecord<T>& record) const {
    const ln::SystemTag<T> d;
    const Slopes<T> slopes(task_.monomials, record, s_);
    for (std::int64_t j = 0; j < task_.count; ++j) {
      const bool marked = m_.weighted && s_.weights.marks[j] != 0;
      for (std::int64_t vector = 0; vector < Fit<T>::Vectors(); ++vector) {
        const std::int64_t lane = vector * Lanes();
        const auto share = hn::Load(d, s_.weights.p.Row(j) + lane);
        if (hn::AllTrue(d, hn::Eq(share, hn::Zero(d)))) {
          hn::Store(share, d, s_.ds.Row(j) + lane);
          hn::Store(share, d, s_.e.Row(j) + lane);
          continue;
        }
        const auto active = marked ? hn::Zero(d) : share;
        const auto a = hn::Load(d, s_.a.Row(j) + lane);
        const auto gradient =
            slopes.template Of<true>(vector, s_.weights.k.Row(j), {share, active, a});
        hn::Store(gradient.ds, d, s_.ds.Row(j) + lane);
        hn::Store(gradient.e, d, s_.e.Row(j) + lane);
        slopes.AddAdjoint(s_.dk.Row(j));
      }
      if (m_.weighted) {
        s_.ds_sums[j] += sn::Sum(kQueries, static_cast<const T*>(s_.ds.Row(j)));
      }
      // A marked pair takes no part in the gradient of its key.
      if (marked) std::fill(s_.ds.Row(j), s_.ds.Row(j) + kQueries, T(0));
    }
  }

  /// Gradients by logarithms of shares are those by the bias of each query.
  void StoreBias(const Task& queries) const {
    if (!g_.dbias) return;
    const common::QueryBlock block(m_, queries.first);
    T row[kPairs];
    for (std::int64_t i = 0; i < queries.count; ++i) {
      for (std::int64_t j = 0; j < task_.count; ++j) row[j] = s_.ds.Row(j)[i];
      const common::Place place = block.PlaceOf(i);
      sn::StoreRow(row, place.token, task_.first, task_.count, g_.dbias.Of(place.query));
    }
  }

  void SumSlopes(std::int64_t queries) const {
    if (!this->ByDistance()) return;
    for (std::int64_t i = 0; i < queries; ++i) {
      for (std::int64_t j = 0; j < task_.count; ++j) s_.e_sums[j] += s_.rows.Row(i)[j];
    }
  }

  void Store(bool loaded) const {
    const cn::PairGradientRows<T> rows(m_, g_, s_.row, s_.spare);
    for (std::int64_t j = 0; j < task_.count; ++j) {
      const std::int64_t pair = task_.first + j;
      if (loaded && this->ByDistance()) {
        sn::AddScaled(m_.key_dim, -s_.e_sums[j], static_cast<const T*>(s_.weights.k.Row(j)),
                      s_.dk.Row(j));
      }
      rows.StorePair(pair, s_.dk.Row(j), s_.dv.Row(j));
      const auto sum = static_cast<double>(s_.ds_sums[j]);
      if (pair >= m_.visible.held && m_.weighted) g_.pair_sums[pair - m_.visible.held] = sum;
      if (pair < m_.visible.held && g_.dstate_log_weight) {
        sn::StoreRow(&sum, pair, 0, 1, g_.dstate_log_weight);
      }
    }
  }
};

/// Sums over queries and pairs become gradients.
inline void FinishAs(const GradientTask& task) {
  const Memory& m = task.memory;
  const MemoryGradient& g = task.gradient;
  const auto sum = [&](const double* numbers) {
    double total = 0;
    for (std::int64_t i = 0; i < m.rows; ++i) total += numbers[i];
    return total;
  };
  if (g.dbandwidth != nullptr) {
    *g.dbandwidth = m.bandwidth == 0 ? 0 : sum(g.width_sums) / m.bandwidth;
  }
  if (g.dridge != nullptr) *g.dridge = sum(g.ridge_sums);
  cn::WeightsGradient(m, g, g.pair_sums, nullptr).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_PAIR_GRADIENT_INL_H_
