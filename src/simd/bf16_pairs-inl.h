// Products of bfloat16 by the instructions that processors have for them: AVX512-BF16, and BFDOT of
// 64-bit Arm. A lane holds a pair of factors, and an instruction adds both products to its float.
// Compiled once for every target; where TTR_HAS_BF16_PAIRS is 0 there is nothing of it.

#if defined(TTR_SIMD_BF16_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SIMD_BF16_PAIRS_INL_H_
#undef TTR_SIMD_BF16_PAIRS_INL_H_
#else
#define TTR_SIMD_BF16_PAIRS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

#undef TTR_BF16_PAIRS_OF_X86
#undef TTR_BF16_PAIRS_OF_ARM
#define TTR_BF16_PAIRS_OF_X86 (HWY_ARCH_X86_64 && HWY_TARGET <= HWY_AVX3)
#define TTR_BF16_PAIRS_OF_ARM (HWY_ARCH_ARM_A64 && HWY_TARGET < HWY_EMU128)
#undef TTR_HAS_BF16_PAIRS
#define TTR_HAS_BF16_PAIRS (TTR_BF16_PAIRS_OF_X86 || TTR_BF16_PAIRS_OF_ARM)

HWY_BEFORE_NAMESPACE();
namespace ttr::simd {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Wide = hn::ScalableTag<float>;
using Pairs = hn::ScalableTag<std::uint32_t>;

// Instructions by their names: compilers have them for targets of their own only. Both processors
// have the same functions and class.

#if TTR_BF16_PAIRS_OF_X86

/// sum + the products of both halves of every lane.
HWY_INLINE hn::Vec<Wide> AddProducts(hn::Vec<Wide> sum, hn::Vec<Pairs> a, hn::Vec<Pairs> b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}

/// Four pairs that lie together, each of which multiplies all lanes.
class FourPairs {
 public:
  HWY_INLINE explicit FourPairs(const std::uint32_t* from) : from_(from) {}
  /// sum + the products of pair PAIR with every lane of b.
  template <int PAIR>
  HWY_INLINE hn::Vec<Wide> AddProducts(hn::Vec<Wide> sum, hn::Vec<Pairs> b) const {
    return HWY_NAMESPACE::AddProducts(sum, hn::Set(Pairs(), from_[PAIR]), b);
  }

 private:
  const std::uint32_t* from_;
};

/// The lanes of `low`, rounded, and behind them those of `high`.
HWY_INLINE hn::Vec<Pairs> RoundBoth(hn::Vec<Wide> low, hn::Vec<Wide> high) {
  hn::Vec<Pairs> both;
  asm("vcvtne2ps2bf16 %2, %1, %0" : "=v"(both.raw) : "v"(high.raw), "v"(low.raw));
  return both;
}

/// Lane i of blocks of so many lanes of both: low in the lower half, high in the upper.
template <int LANES>
HWY_INLINE hn::Vec<Pairs> Pair(hn::Vec<Wide> low, hn::Vec<Wide> high) {
  struct Order {
    std::uint16_t at[2 * hn::MaxLanes(Wide())];
  };
  alignas(64) static constexpr Order kOrder = [] {
    Order order{};
    for (int half = 0; half < static_cast<int>(2 * hn::MaxLanes(Wide())); ++half) {
      const int lane = half / 2;
      order.at[half] =
          static_cast<std::uint16_t>(lane / LANES * 2 * LANES + lane % LANES + half % 2 * LANES);
    }
    return order;
  }();
  hn::Vec<Pairs> both = RoundBoth(low, high);
  both.raw = _mm512_permutexvar_epi16(_mm512_load_si512(kOrder.at), both.raw);
  return both;
}

#elif TTR_BF16_PAIRS_OF_ARM

HWY_INLINE hn::Vec<Wide> AddProducts(hn::Vec<Wide> sum, hn::Vec<Pairs> a, hn::Vec<Pairs> b) {
  asm(".arch_extension bf16\n\tbfdot %0.4s, %1.8h, %2.8h" : "+w"(sum.raw) : "w"(a.raw), "w"(b.raw));
  return sum;
}

class FourPairs {
 public:
  HWY_INLINE explicit FourPairs(const std::uint32_t* from) : pairs_(hn::LoadU(Pairs(), from)) {}
  template <int PAIR>
  HWY_INLINE hn::Vec<Wide> AddProducts(hn::Vec<Wide> sum, hn::Vec<Pairs> b) const {
    asm(".arch_extension bf16\n\tbfdot %0.4s, %1.8h, %2.2h[%3]"
        : "+w"(sum.raw)
        : "w"(b.raw), "w"(pairs_.raw), "i"(PAIR));
    return sum;
  }

 private:
  hn::Vec<Pairs> pairs_;
};

HWY_INLINE hn::Vec<Pairs> RoundBoth(hn::Vec<Wide> low, hn::Vec<Wide> high) {
  hn::Vec<Pairs> both;
  asm(".arch_extension bf16\n\tbfcvtn %0.4h, %1.4s\n\tbfcvtn2 %0.8h, %2.4s"
      : "=&w"(both.raw)
      : "w"(low.raw), "w"(high.raw));
  return both;
}

template <int LANES>
HWY_INLINE hn::Vec<Pairs> Pair(hn::Vec<Wide> low, hn::Vec<Wide> high) {
  static_assert(LANES == hn::MaxLanes(Wide()));
  const hn::Repartition<std::uint16_t, Pairs> halves;
  const auto both = hn::BitCast(halves, RoundBoth(low, high));
  const auto upper = hn::ConcatUpperUpper(halves, both, both);
  return hn::BitCast(Pairs(), hn::InterleaveLower(halves, both, upper));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace ttr::simd
HWY_AFTER_NAMESPACE();

#endif  // TTR_SIMD_BF16_PAIRS_INL_H_
