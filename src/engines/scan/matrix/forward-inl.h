// A matrix memory through its tokens: a group of key rows of one vector of columns stays in
// registers for a block of tokens. Compiled once for every target.

#if defined(TTR_SCAN_MATRIX_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_MATRIX_FORWARD_INL_H_
#undef TTR_SCAN_MATRIX_FORWARD_INL_H_
#else
#define TTR_SCAN_MATRIX_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/scan/matrix/load-inl.h"
#include "src/engines/scan/matrix/step-inl.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Fetches `rows` key rows from `row` on of a vector of columns from `column` on, of this memory or
/// of the next, towards the second-level cache.
template <class T>
HWY_INLINE void FetchRows(const Block<T>& block, std::int64_t column, std::int64_t row,
                          std::int64_t rows) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const bool own = row < block.key_dim;
  if (!own && block.next_state == nullptr) return;
  const T* const a = (own ? block.a + row : block.next_a) + column * block.a_stride;
  const T* const state = (own ? block.state + row * block.state_stride : block.next_state) + column;
  for (std::int64_t i = 0; i < kLanes; ++i) __builtin_prefetch(a + i * block.a_stride, 0, 2);
  for (std::int64_t r = 0; r < rows; ++r) __builtin_prefetch(state + r * block.state_stride, 0, 2);
}

/// `vectors` of columns side by side, some rows of all of them before the next: their lines adjoin.
template <bool WRITES, bool BEFORE, class T>
void ScanBlock(const Block<T>& block, std::int64_t vectors) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());

  std::int64_t row = 0;
  auto scan = [&](auto rows) HWY_ATTR {
    // Rates as they are given are taken by whole lines.
    constexpr std::int64_t kTimes = std::max<std::int64_t>(1, rows() == 8 ? kLine<T> / 8 : 1);
    const std::int64_t times = row + kTimes * rows() <= block.key_dim ? kTimes : 1;
    Block<T> at = block;
    for (std::int64_t v = 0; v < vectors; ++v, at = at.Next()) {
      if (block.a != nullptr && block.fetches) {
        FetchRows(block, v * kLanes, row + times * rows(), times * rows());
      }
      for (std::int64_t i = 0; i < times; ++i) {
        ScanRows<rows(), WRITES, BEFORE>(at, row + i * rows());
      }
    }
    row += times * rows();
  };
  while (row + 8 <= block.key_dim) scan(std::integral_constant<int, 8>());
  while (row + 4 <= block.key_dim) scan(std::integral_constant<int, 4>());
  while (row < block.key_dim) scan(std::integral_constant<int, 1>());
}

template <class T>
class MatrixForward {
 public:
  MatrixForward(const MatrixTask& task, const MatrixScratch<T>& scratch)
      : options_(task.options), memory_(task.memory), next_(task.next), s_(scratch) {}

  void Run() {
    for (std::int64_t begin = 0; begin < memory_.tokens; begin += kBlockTokens) {
      if (begin > 0 && memory_.saved.data != nullptr) SaveState(begin);
      RunBlock(begin, std::min(kBlockTokens, memory_.tokens - begin));
    }
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  static constexpr std::int64_t kStrip = MatrixScratch<T>::kStrip;

  T* State() const { return static_cast<T*>(memory_.state.data); }

  /// The state before token t.
  void SaveState(std::int64_t t) const {
    const MatrixStates &from = memory_.state, &to = memory_.saved;
    T* const saved = static_cast<T*>(to.data) + (t / kCheckpoint - 1) * to.stride;
    for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
      std::copy_n(State() + row * from.row_stride, memory_.columns, saved + row * to.row_stride);
    }
  }

  /// Runs a block of tokens on all columns.
  void RunBlock(std::int64_t begin, std::int64_t tokens) const {
    LoadTokens(options_, memory_, begin, tokens, s_);
    Block<T> block{};
    block.tokens = tokens;
    block.key_dim = memory_.key_dim;
    block.queries = memory_.q ? memory_.queries : 0;
    block.k = s_.k;
    block.q = s_.q;
    block.stride = MatrixScratch<T>::kRow;
    block.y_stride = output_row_;
    block.a_stride = memory_.a.stride;
    block.scale = static_cast<T>(options_.scale);
    block.fetches = RatesFillLines(memory_.key_dim, sizeof(T));
    for (std::int64_t first = 0; first < memory_.columns; first += kStrip) {
      const std::int64_t count = std::min(kStrip, memory_.columns - first);
      RunStrip(begin, first, count, block);
      if (memory_.q && !norm_) StoreOutputs(begin, tokens, first, count);
    }
    if (memory_.q && norm_) StoreOutputs(begin, tokens, 0, memory_.columns);
  }

  void RunStrip(std::int64_t begin, std::int64_t first, std::int64_t count, Block<T>& block) const {
    if (memory_.k) {
      const std::int64_t transposed = given_rates_ ? first + count / kLanes * kLanes : first;
      if (begin == 0) LoadRates(memory_, transposed, first + count, s_);
      LoadStrip(memory_, begin, block.tokens, first, count, s_);
    }
    // Many tokens take a vector of columns each time, which stays in the first-level cache with
    // them; a single one needs everything once.
    const std::int64_t most = block.tokens == 1 ? std::max<std::int64_t>(count / kLanes, 1) : 1;
    for (std::int64_t c = 0, vectors; c < count; c += vectors * kLanes) {
      vectors = c == 0 ? most : 1;
      const std::int64_t column = first + c;
      block.v = s_.v + c;
      block.dt = s_.dt + c;
      block.y = s_.y + (norm_ ? column : c);
      block.rates = s_.rates + column * memory_.key_dim;
      if (count - c >= kLanes) {
        WholeVectors(column, vectors, block);
      } else {
        Tail(column, count - c, block);
      }
    }
  }

  void WholeVectors(std::int64_t column, std::int64_t vectors, Block<T>& block) const {
    block.a = block.next_a = block.next_state = nullptr;
    if (given_rates_) {
      block.a = static_cast<const T*>(memory_.a.data) + column * memory_.a.stride;
      if (next_.tokens == 1) {
        block.next_a = static_cast<const T*>(next_.a.data) + column * memory_.a.stride;
        block.next_state = static_cast<const T*>(next_.state.data) + column;
      }
    }
    block.state = State() + column;
    block.state_stride = memory_.state.row_stride;
    Scan(block, vectors);
  }

  /// Runs fewer columns than a vector, by way of a copy.
  void Tail(std::int64_t column, std::int64_t count, Block<T>& block) const {
    T* const state = State() + column;
    const std::int64_t stride = memory_.state.row_stride;
    block.a = block.next_a = block.next_state = nullptr;
    block.state = s_.state;
    block.state_stride = kLanes;
    for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
      std::copy_n(state + row * stride, count, s_.state + row * kLanes);
    }
    Scan(block, 1);
    for (std::int64_t row = 0; memory_.k && row < memory_.key_dim; ++row) {
      std::copy_n(s_.state + row * kLanes, count, state + row * stride);
    }
  }

  void Scan(const Block<T>& block, std::int64_t vectors) const {
    if (!memory_.k) {
      ScanBlock<false, false>(block, vectors);
    } else if (options_.read_before) {
      ScanBlock<true, true>(block, vectors);
    } else {
      ScanBlock<true, false>(block, vectors);
    }
  }

  void StoreOutputs(std::int64_t begin, std::int64_t tokens, std::int64_t first,
                    std::int64_t count) const {
    for (std::int64_t query = 0; query < memory_.queries; ++query) {
      const Rows rows = memory_.y.Of(query);
      for (std::int64_t t = 0; t < tokens; ++t) {
        T* const row = s_.y + (query * kBlockTokens + t) * output_row_;
        if (norm_) sn::DivideByNorm(row, count, options_.NormLength(count), 0);
        sn::StoreRow(row, begin + t, first, count, rows);
      }
    }
  }

  const Options& options_;
  const Matrix &memory_, &next_;
  const MatrixScratch<T>& s_;
  const bool norm_ = options_.output_norm != OutputNorm::kNone;
  const std::int64_t output_row_ = MatrixScratch<T>::OutputRow(norm_, memory_.columns);
  /// A single token takes the rates as they are given, if it can.
  const bool given_rates_ = memory_.k && memory_.tokens == 1 && memory_.a.dtype == DTypeOf<T>();
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_MATRIX_FORWARD_INL_H_
