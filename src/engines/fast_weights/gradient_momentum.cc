#include "src/engines/fast_weights/gradient_momentum.h"

#include <algorithm>

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/gradient_momentum.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/gradient_momentum-inl.h"
#include "src/engines/fast_weights/gradient_momentum_layout.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights::gradient {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Every gradient is a sum over value columns.
template <class T>
void ZeroGradients(const MomentumCall<T>& call, const MomentumScratch<T>& scratch) {
  const std::int64_t tokens = call.sizes.tokens;
  for (const GradientRows<T>& rows : {call.d_write, call.d_erase}) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      std::fill_n(rows.data + t * rows.stride, scratch.keys, T(0));
    }
  }
  for (std::int64_t p = 0; p < call.sizes.queries; ++p) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      T* const d_query = call.d_query.data + p * call.d_query.head_stride;
      std::fill_n(d_query + t * call.d_query.stride, scratch.keys, T(0));
    }
  }
  for (T* numbers : {call.d_step, call.d_decay, call.d_erase_decay, call.d_momentum}) {
    std::fill_n(numbers, tokens, T(0));
  }
}

/// Where a pair has its key channel k, of the first column.
template <class T>
std::int64_t PlaceOf(std::int64_t k) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  return k / kLanes * kLanes * kMomentumColumns + k % kLanes;
}

/// Columns of a pair of memories, transposed.
template <class T>
void LoadPair(const MomentumCall<T>& call, const MomentumScratch<T>& scratch, std::int64_t column,
              const T* first, const T* second, T* to) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  std::fill_n(to, scratch.pair, T(0));
  for (std::int64_t k = 0; k < call.sizes.key_dim; ++k) {
    const std::int64_t from = k * call.state_stride + column;
    for (int c = 0; c < kMomentumColumns; ++c) {
      T* const place = to + PlaceOf<T>(k) + c * kLanes;
      place[0] = first[from + c];
      place[scratch.part] = second[from + c];
    }
  }
}

template <class T>
void StorePair(const MomentumCall<T>& call, const MomentumScratch<T>& scratch, std::int64_t column,
               const T* from, T* first, T* second) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  for (std::int64_t k = 0; k < call.sizes.key_dim; ++k) {
    const std::int64_t to = k * call.state_stride + column;
    for (int c = 0; c < kMomentumColumns; ++c) {
      const T* const place = from + PlaceOf<T>(k) + c * kLanes;
      first[to + c] = place[0];
      second[to + c] = place[scratch.part];
    }
  }
}

/// A few value columns through the whole sequence and back.
template <class T>
void RunColumns(const MomentumCall<T>& call, const MomentumScratch<T>& scratch,
                std::int64_t column) {
  const std::int64_t tokens = call.sizes.tokens, pair = scratch.pair;
  const std::int64_t last = tokens == 0 ? 0 : (tokens - 1) / kMomentumBlock;
  LoadPair(call, scratch, column, call.initial, call.initial_second, scratch.checkpoints);
  for (std::int64_t block = 0; block < last; ++block) {
    const T* from = scratch.checkpoints + block * pair;
    T* const to = scratch.checkpoints + (block + 1) * pair;
    for (std::int64_t i = 0; i < kMomentumBlock; ++i) {
      Step(call, {block * kMomentumBlock + i, i, column}, scratch, from, to);
      from = to;
    }
  }
  LoadPair(call, scratch, column, call.d_final, call.d_final_second, scratch.adjoint);
  for (std::int64_t block = last; block >= 0; --block) {
    const std::int64_t first = block * kMomentumBlock;
    const std::int64_t count = std::min<std::int64_t>(kMomentumBlock, tokens - first);
    T* const memories = scratch.memories;
    std::copy_n(scratch.checkpoints + block * pair, pair, memories);
    for (std::int64_t i = 0; i < count; ++i) {
      const MomentumToken at{first + i, i, column};
      Step(call, at, scratch, memories + i * pair, memories + (i + 1) * pair);
    }
    for (std::int64_t i = count - 1; i >= 0; --i) {
      const MomentumToken at{first + i, i, column};
      Unstep(call, at, scratch, memories + i * pair, memories + (i + 1) * pair);
    }
  }
  StorePair(call, scratch, column, scratch.adjoint, call.d_initial, call.d_initial_second);
}

template <class T>
void RunMomentum(const MomentumCall<T>& call, std::byte* memory) {
  const MomentumScratch<T> scratch(call.sizes, memory);
  ZeroGradients(call, scratch);
  for (std::int64_t column = 0; column < call.sizes.value_dim; column += kMomentumColumns) {
    RunColumns(call, scratch, column);
  }
}

void RunMomentumFloat(const MomentumCall<float>& call, std::byte* scratch) {
  RunMomentum(call, scratch);
}
void RunMomentumDouble(const MomentumCall<double>& call, std::byte* scratch) {
  RunMomentum(call, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights::gradient
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {
namespace gradient {

HWY_EXPORT(RunMomentumFloat);
HWY_EXPORT(RunMomentumDouble);

}  // namespace gradient

template <class T>
std::size_t MomentumScratchBytes(const MomentumSizes& sizes) {
  return gradient::MomentumScratch<T>(sizes, nullptr).bytes;
}
template std::size_t MomentumScratchBytes<float>(const MomentumSizes& sizes);
template std::size_t MomentumScratchBytes<double>(const MomentumSizes& sizes);

void RunMomentumGradient(const MomentumCall<float>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunMomentumFloat)(call, scratch);
}

void RunMomentumGradient(const MomentumCall<double>& call, std::byte* scratch) {
  using namespace gradient;
  TTR_DISPATCH(RunMomentumDouble)(call, scratch);
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
