/// What Highway's targets do not tell of the processor.
#pragma once

namespace ttr::simd {

/// Does it multiply pairs of bfloat16 (bf16_pairs-inl.h): AVX512-BF16, or BFDOT of 64-bit Arm?
bool HasBf16Pairs();

/// Does it so in the time of as many products of float? Zen 4 takes two thirds of the time for a
/// whole pass of float32; Intel's AVX512-BF16 takes 1.4 to 1.7 times as long (its processors have
/// matrix tiles for it). On Arm an instruction has the rate of the one for floats.
bool MultipliesBf16PairsFast();

}  // namespace ttr::simd
