/// What Highway's targets do not tell of the processor.
#pragma once

namespace ttr::simd {

/// Does it multiply pairs of bfloat16 (bf16_pairs-inl.h): AVX512-BF16, or BFDOT of 64-bit Arm?
bool HasBf16Pairs();

/// Is that quicker than to multiply floats? On Zen 4 a pass takes two thirds of the time; Intel's
/// AVX512-BF16 takes 1.4 to 1.7 times as long (its processors have matrix tiles for it). On Arm by
/// counted instructions, .66 to .96 of them: none was timed.
bool MultipliesBf16PairsFast();

}  // namespace ttr::simd
