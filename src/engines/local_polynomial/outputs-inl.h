// Outputs of some queries. Compiled once for every target.

#if defined(TTR_LOCAL_POLYNOMIAL_OUTPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LOCAL_POLYNOMIAL_OUTPUTS_INL_H_
#undef TTR_LOCAL_POLYNOMIAL_OUTPUTS_INL_H_
#else
#define TTR_LOCAL_POLYNOMIAL_OUTPUTS_INL_H_
#endif

#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/local_polynomial/exact-inl.h"
#include "src/engines/local_polynomial/fits-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

template <class T>
class Outputs {
 public:
  Outputs(const Task& task, const Scratch<T>& scratch)
      : task_(task),
        m_(task.memory),
        s_(scratch),
        fits_(task, scratch.weights, scratch.fit, scratch.means, 1) {}

  void Run() {
    fits_.Run([](std::int64_t, std::int64_t) { return static_cast<const Block<T>*>(nullptr); });
    linalg::ZeroRows(s_.y, 0, kQueries, ValueWidth());
    fits_.weights().ForBlocks(
        [&](std::int64_t first, std::int64_t count) { AddValues(first, count); });
    for (std::int64_t i = 0; i < task_.count; ++i) Store(i);
  }

 private:
  std::int64_t ValueWidth() const { return linalg::RoundUp(m_.value_dim, kUnit); }

  void AddValues(std::int64_t first, std::int64_t count) {
    if (!fits_.weights().Share(first, count)) return;
    cn::LoadPairs(cn::ValuesOf(m_), first, count, m_.value_dim, s_.v);
    const std::int64_t non_finite = cn::SetNonfiniteAside(s_.v, count, ValueWidth(), s_.non_finite);
    fits_.Weigh(first, count, s_.e);
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.e), s_.v,
                                 linalg::RoundUp(task_.count, kStrip),
                                 ln::Whole{ValueWidth(), count}, s_.y);
    // Values that are not finite go only to queries that give them weight.
    for (std::int64_t at = 0; at < non_finite; ++at) {
      const std::int64_t j = s_.non_finite[at];
      cn::ValuesOf(m_).Load(first + j, m_.value_dim, s_.row);
      for (std::int64_t i = 0; i < task_.count; ++i) {
        const T e = s_.e.Row(j)[i];
        if (e == 0) continue;
        for (std::int64_t c = 0; c < m_.value_dim; ++c) s_.y.Row(i)[c] += e * s_.row[c];
      }
    }
  }

  void Store(std::int64_t i) const {
    const common::Place place = common::Place::Of(m_, task_.first + i);
    T* const y = s_.y.Row(i);
    std::int8_t status = 0;
    if (fits_.weights().Alone(i)) {
      status = 3;  // kSingular
    } else if (fits_.NeedsExact(i)) {
      const ExactFit fit(task_, task_.first + i, m_.value_dim, [&](std::int64_t pair, double* v) {
        cn::ValuesOf(m_).Load(pair, m_.value_dim, v);
      });
      fit.Predict(y);
      if (fit.singular()) status = 1;  // kRegularised
    } else if (fits_.HasLeastNorm(i)) {
      status = 1;
    }
    if (task_.options.output_norm != OutputNorm::kNone) {
      const bool rms = task_.options.output_norm == OutputNorm::kRms;
      sn::DivideByNorm(y, m_.value_dim, rms ? static_cast<double>(m_.value_dim) : 1, 0);
    }
    if (m_.y) sn::StoreRow(y, place.token, 0, m_.value_dim, m_.y.Of(place.query));
    if (status != 0 && m_.status) {
      const simd::Rows rows = m_.status.Of(place.query);
      static_cast<std::int8_t*>(rows.data)[place.token * rows.stride] = status;
    }
  }

  const Task& task_;
  const Memory& m_;
  const Scratch<T>& s_;
  Fits<T> fits_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#endif  // TTR_LOCAL_POLYNOMIAL_OUTPUTS_INL_H_
