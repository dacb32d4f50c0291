/// What Highway's targets do not say of the processor: how it multiplies bfloat16.
#pragma once

#include <string_view>

namespace ttr::simd {

/// How products of bfloat16 are made.
enum class Bf16Products {
  kFloat32,  // not at all: factors are widened
  kPairs,    // two in a lane (bf16_pairs-inl.h): AVX512-BF16, or BFDOT of 64-bit Arm
  kTiles,    // by matrix tiles (bf16_tiles.h): AMX
};

/// "float32", "pairs" or "tiles".
std::string_view NameOf(Bf16Products products);

/// What decides: the processor's instructions, and what the system allows this process.
struct Bf16Processor {
  bool has_pairs = false;
  /// Are they quicker than to multiply floats? On Zen 4 a pass takes two thirds of the time;
  /// Intel's take 1.4 to 1.7 times as long. On Arm by counted instructions, .66 to .96 of them:
  /// none was timed.
  bool has_fast_pairs = false;
  bool has_tiles = false;
  /// Their registers are large: a process asks for them, and a system may have none to give.
  bool may_use_tiles = false;
};

/// This processor, asked once.
const Bf16Processor& TheBf16Processor();

/// The quickest way: tiles where they may be used, pairs where they are fast; or the one of this
/// name, whether it is quick or not. Throws ttr::Error where `name`, the value of
/// TTR_BFLOAT16_PRODUCTS, is none that the processor has; empty is no name.
Bf16Products ChooseBf16Products(const Bf16Processor& processor, std::string_view name);

/// The choice of this process. Throws as above.
Bf16Products ChosenBf16Products();

/// ChosenBf16Products() from now on, for tests; as it was where `products` is null. Not to be
/// called while kernels run.
void ForceBf16Products(const Bf16Products* products);

}  // namespace ttr::simd
