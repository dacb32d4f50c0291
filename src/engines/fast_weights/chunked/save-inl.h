// What a forward pass saves for the backward pass, as saved.h says. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_SAVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_SAVE_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_SAVE_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_SAVE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/saved.h"
#include "src/simd/prefetcher.h"
#include "src/simd/strided-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Saves what one memory has as the memory passes through its rows.
template <class T>
class BlockSaver {
 public:
  BlockSaver(const Options& options, const Memory& memory)
      : memory_(memory),
        sum_(options.denominator != Denominator::kNone),
        last_(SavedLayout::KeepsLast(options)),
        part_keys_(RoundUp(memory.dims.key_dim, kUnit)),
        keys_((options.phase ? 2 : 1) * part_keys_),
        values_(RoundUp(memory.dims.value_dim + (sum_ ? 1 : 0), kUnit)),
        matrices_(options.momentum ? 2 : 1),
        state_(static_cast<T*>(memory.saved.states)),
        errors_(options.erases() ? static_cast<T*>(memory.saved.errors) : nullptr),
        outputs_(static_cast<T*>(memory.saved.outputs)) {
    // The state before this slice's first row was saved in the last slice.
    const std::int64_t saved =
        memory.extent.from == 0 ? 0 : memory.extent.from / kGradientBlock + 1;
    if (state_ != nullptr) state_ += saved * numbers();
  }

  /// Is the state before row `row` saved?
  bool Wants(std::int64_t row) const {
    if (state_ == nullptr) return false;
    return row < memory_.dims.rows ? row % kGradientBlock == 0 : last_;
  }

  /// A strip of `width` value columns from `column` on, of the state that is saved.
  void SaveStrip(const T* strip, std::int64_t column, std::int64_t width) {
    constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
    constexpr std::int64_t kPiece = std::min<std::int64_t>(kUnit, 2 * kLanes);
    for (std::int64_t all = 0; all < matrices_ * keys_; all += kPiece) {
      // Channels `key` .. of a plane, in the strip of channels from k on of a matrix.
      const std::int64_t key = all % part_keys_, in_matrix = all % keys_;
      const std::int64_t k = in_matrix / (2 * kLanes) * (2 * kLanes), lanes = Lanes(k);
      T* const to = state_ + (all - in_matrix + k) * values_ + column * lanes + (in_matrix - k);
      // Rows of the strip are padded to lines only; behind those of a first plane are the second's.
      const std::int64_t rows = std::min(kPiece, RoundUp(memory_.dims.key_dim, kLine<T>) - key);
      const T* const from = strip + (all / part_keys_ * memory_.dims.key_dim + key) * width;
      if (rows > 0) sn::TransposeStrided(from, width, rows, width, to, lanes);
      const std::int64_t filled = std::clamp<std::int64_t>(memory_.dims.key_dim - key, 0, kPiece);
      for (std::int64_t v = 0; filled < kPiece && v < width; ++v) {
        std::fill(to + v * lanes + filled, to + v * lanes + kPiece, T(0));
      }
    }
    end_ = column + width;
  }

  /// The rest of the state, behind its last strip, and `sum` as a column; the next goes elsewhere.
  void FinishState(const T* sum) {
    const bool pads = memory_.extent.end_column == memory_.dims.value_dim;
    for (std::int64_t k = 0; pads && k < matrices_ * keys_;) {
      const std::int64_t lanes = Lanes(k % keys_);
      T* const to = state_ + k * values_;
      std::fill(to + end_ * lanes, to + values_ * lanes, T(0));
      if (sum_) {
        const std::int64_t filled = std::clamp<std::int64_t>(memory_.dims.key_dim - k, 0, lanes);
        std::fill(std::copy_n(sum + k, filled, to + memory_.dims.value_dim * lanes),
                  to + (memory_.dims.value_dim + 1) * lanes, T(0));
      }
      k += lanes;
    }
    state_ += numbers();
  }

  /// Adds what is saved of the rows from `begin` on, and their share of the state behind their
  /// block: stores that wait for memory would stop the kernel.
  void AddTo(std::int64_t begin, Prefetcher& prefetcher) const {
    if (state_ == nullptr) return;
    constexpr DType kType = DTypeOf<T>();
    const std::int64_t width = memory_.extent.end_column - memory_.extent.first_column;
    if (errors_ != nullptr)
      prefetcher.Add({errors_, kType, values_}, begin, memory_.extent.first_column, width);
    for (std::int64_t q = 0; outputs_ != nullptr && q < memory_.dims.queries; ++q) {
      prefetcher.Add({outputs_, kType, memory_.dims.queries * values_}, begin,
                     q * values_ + memory_.extent.first_column, width);
    }
    const std::int64_t block = begin / kGradientBlock + 1;
    if (!Wants(std::min(block * kGradientBlock, memory_.dims.rows))) return;
    T* const next = static_cast<T*>(memory_.saved.states) + block * numbers();
    const std::int64_t share = numbers() / kGradientBlock;
    prefetcher.Add({next, kType, share}, begin % kGradientBlock, 0, share);
  }

  /// Where the errors of row `row` go from `column` on; null where they are not saved.
  T* Errors(std::int64_t row, std::int64_t column) const {
    return errors_ == nullptr ? nullptr : errors_ + row * values_ + column;
  }
  std::int64_t errors_stride() const { return values_; }

  /// Where the first query's outputs of row `row` go from `column` on; those of the next query are
  /// values() further. Null where they are not saved.
  T* Outputs(std::int64_t row, std::int64_t column) const {
    return outputs_ == nullptr ? nullptr : outputs_ + row * outputs_stride() + column;
  }
  std::int64_t outputs_stride() const { return memory_.dims.queries * values_; }
  std::int64_t values() const { return values_; }

  /// Zeros behind the strips, which end at column `end`.
  void PadErrors(std::int64_t begin, std::int64_t last, std::int64_t end) const {
    if (errors_ == nullptr || memory_.extent.end_column < memory_.dims.value_dim || end >= values_)
      return;
    for (std::int64_t row = begin; row < last; ++row) {
      std::fill(errors_ + row * values_ + end, errors_ + (row + 1) * values_, T(0));
    }
  }

 private:
  static constexpr std::int64_t kUnit = SavedLayout::kUnit;

  /// Numbers of a saved state.
  std::int64_t numbers() const { return matrices_ * keys_ * values_; }

  /// Key channels of the strip that begins at k: those of adjoint/layout.h.
  std::int64_t Lanes(std::int64_t k) const {
    constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
    return keys_ - k > kLanes ? 2 * kLanes : kLanes;
  }

  const Memory& memory_;
  bool sum_, last_;
  // Planes of a pair are further channels, or with momentum matrices, of which each is one plane.
  std::int64_t part_keys_, keys_, values_, matrices_;
  T* state_;  // that is saved next
  T* errors_;
  T* outputs_;
  std::int64_t end_ = 0;  // of the strips
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_SAVE_INL_H_
