// A block's rows of a memory that is read when all is written: backward/whole.h. Compiled once for
// every target.

#if defined(TTR_FAST_WEIGHTS_BACKWARD_WHOLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_BACKWARD_WHOLE_INL_H_
#undef TTR_FAST_WEIGHTS_BACKWARD_WHOLE_INL_H_
#else
#define TTR_FAST_WEIGHTS_BACKWARD_WHOLE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/whole.h"
#include "src/engines/fast_weights/operands/rows-inl.h"
#include "src/linalg/blocks-inl.h"
#include "src/linalg/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;

template <class T>
class WholeRows {
 public:
  WholeRows(const Options& options, BackwardRows<T>& rows)
      : options_(options),
        rows_(rows),
        keys_(rows.key_stride),
        values_(rows.value_stride),
        count_(RoundUp(rows.count, ln::kTileRows)),
        factors_(rows.whole.factors +
                 rows.first / kGradientBlock * (options.phase ? 2 : 1) * rows.key_stride) {}

  void Run(WholePass pass) {
    switch (pass) {
      case WholePass::kDecays: return TakeDecays();
      case WholePass::kOutputs: return Outputs();
      case WholePass::kQueries: return TakeQueries();
      case WholePass::kWrites: return TakeWrites();
    }
  }

 private:
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  using Block = ln::Block<T>;
  using Left = ln::Left<T>;

  static constexpr std::int64_t Lanes() { return hn::MaxLanes(D()); }

  Block Query(std::int64_t q) const { return {rows_.query + q * rows_.rows * keys_, keys_}; }
  Block OutputRows(T* of, std::int64_t q) const { return {of + q * rows_.rows * values_, values_}; }

  /// The product of all.
  void TakeDecays() {
    if (!options_.by_channel()) {
      factors_[0] = 1;
      for (std::int64_t r = 0; r < rows_.count; ++r) factors_[0] *= rows_.decay[r];
      return;
    }
    std::fill_n(factors_, keys_, T(1));
    if (options_.phase) std::fill_n(factors_ + keys_, keys_, T(0));
    for (std::int64_t r = 0; r < rows_.count; ++r) {
      for (std::int64_t k = 0; k < keys_; k += Lanes()) Fade(r, k);
    }
  }

  /// Vector k of the factors by the decay of row r.
  void Fade(std::int64_t r, std::int64_t k) {
    const D d;
    const std::int64_t at = r * keys_ + k;
    const V gate = hn::Load(d, rows_.gates + at);
    const V real = hn::Mul(gate, hn::Load(d, factors_ + k));
    if (!options_.phase) return hn::Store(real, d, factors_ + k);
    const V imaginary = hn::Mul(gate, hn::Load(d, factors_ + keys_ + k));
    const V cosine = hn::Load(d, rows_.rotation.cosines + at),
            sine = hn::Load(d, rows_.rotation.sines + at);
    hn::Store(hn::NegMulAdd(imaginary, sine, hn::Mul(real, cosine)), d, factors_ + k);
    hn::Store(hn::MulAdd(real, sine, hn::Mul(imaginary, cosine)), d, factors_ + keys_ + k);
  }

  void Outputs() {
    const ln::Whole all{values_, keys_};
    for (std::int64_t q = 0; q < rows_.queries; ++q) {
      ln::Multiply<ln::Into::kSet>(Left::Of(Query(q)), Block{rows_.whole.memory, values_}, count_,
                                   all, OutputRows(rows_.whole.y, q));
    }
  }

  void TakeQueries() {
    for (std::int64_t q = 0; q < rows_.queries; ++q) {
      const Block dy = OutputRows(rows_.dy, q);
      ln::Multiply<ln::Into::kSet>(Left::Of(dy), Block{rows_.d_initial, keys_}, count_,
                                   ln::Whole{keys_, rows_.value_dim},
                                   Block{rows_.d.query + q * rows_.rows * keys_, keys_});
      ln::Multiply<ln::Into::kAdd>(Left::Transposed(Query(q)), dy, keys_,
                                   ln::Whole{values_, rows_.count}, Block{rows_.d_final, values_});
    }
  }

  void TakeWrites() {
    ln::Multiply<ln::Into::kSet>(Left::Of(Block{rows_.value, values_}),
                                 Block{rows_.d_initial, keys_}, count_,
                                 ln::Whole{keys_, rows_.value_dim}, Block{rows_.d.write, keys_});
    for (std::int64_t r = rows_.count - 1; r >= 0; --r) {
      options_.by_channel() ? FadeChannels(r) : FadeRow(r);
    }
    SumDecays();
    // Keys as the memory holds them at the end stand where queries did.
    ln::Multiply<ln::Into::kSet>(Left::Of(Query(0)), Block{rows_.d_final, values_}, count_,
                                 ln::Whole{values_, keys_}, Block{rows_.d.value, values_});
  }

  /// Row r from v_r N^T to dw_r and db_r, w_r . dw_r, and f_r w_r.
  void FadeRow(std::int64_t r) {
    const D d;
    const bool forgotten = factors_[0] == 0;
    const T step = forgotten ? T(0) : rows_.step[r], factor = factors_[0] * step;
    T* const d_write = rows_.d.write + r * keys_;
    const T* const write = rows_.write + r * keys_;
    T* const held = rows_.query + r * keys_;
    rows_.d.step[r] = forgotten ? T(0) : factors_[0] * Dot(write, d_write, keys_);
    rows_.d.decay[r] = step * rows_.d.step[r];
    for (std::int64_t k = 0; k < keys_; k += Lanes()) {
      const V f = hn::Set(d, factor), zero = hn::Zero(d);
      hn::Store(factor == 0 ? zero : hn::Mul(f, hn::Load(d, write + k)), d, held + k);
      hn::Store(factor == 0 ? zero : hn::Mul(f, hn::Load(d, d_write + k)), d, d_write + k);
    }
    factors_[0] *= rows_.decay[r];
  }

  /// FadeRow() for decays by channel: every channel has a factor of its own, and w (.) dw goes to
  /// the gradients of their decays.
  void FadeChannels(std::int64_t r) {
    const D d;
    const V zero = hn::Zero(d), step = hn::Set(d, rows_.step[r]);
    V by_step = zero;
    for (std::int64_t k = 0; k < keys_; k += Lanes()) {
      const std::int64_t at = r * keys_ + k;
      const V write = hn::Load(d, rows_.write + at), by_held = hn::Load(d, rows_.d.write + at);
      const V factor = hn::Load(d, factors_ + k);
      const auto some = hn::Ne(factor, zero);
      const V overlap = hn::Mul(write, by_held);
      by_step = hn::Add(by_step, hn::IfThenElseZero(some, hn::Mul(factor, overlap)));
      const V f = hn::Mul(step, factor);
      hn::Store(hn::IfThenElseZero(some, hn::Mul(f, write)), d, rows_.query + at);
      hn::Store(hn::IfThenElseZero(some, hn::Mul(f, by_held)), d, rows_.d.write + at);
      hn::Store(hn::IfThenElseZero(some, hn::Mul(f, overlap)), d, rows_.d.gates + at);
      if (options_.phase) {
        const V imaginary = hn::Load(d, factors_ + keys_ + k);
        const V across = hn::Mul(hn::Mul(step, imaginary), overlap);
        hn::Store(hn::IfThenElseZero(hn::Ne(imaginary, zero), hn::Neg(across)), d,
                  rows_.d_phase + at);
      }
      Fade(r, k);
    }
    rows_.d.step[r] = hn::GetLane(hn::SumOfLanes(d, by_step));
  }

  /// From what each row says of the decays behind it to their gradients: sums over the rows before.
  void SumDecays() {
    if (!options_.by_channel()) return SumBefore(rows_.d.decay, 1, rows_.whole.sums);
    SumBefore(rows_.d.gates, keys_, rows_.whole.sums);
    if (options_.phase) SumBefore(rows_.d_phase, keys_, rows_.whole.sums + keys_);
  }
  void SumBefore(T* HWY_RESTRICT x, std::int64_t stride, T* HWY_RESTRICT sums) {
    for (std::int64_t r = 0; r < rows_.count; ++r, x += stride) {
      for (std::int64_t k = 0; k < stride; ++k) {
        const T own = x[k];
        x[k] = sums[k];
        sums[k] += own;
      }
    }
  }

  const Options& options_;
  BackwardRows<T>& rows_;
  std::int64_t keys_, values_;
  std::int64_t count_;  // rows, in whole tiles
  T* factors_;          // of the block
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_WHOLE_INL_H_
