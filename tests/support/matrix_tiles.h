// Matrix tiles (AMX) for tests on processors without them: their instructions, which such a
// processor does not know, are carried out as Intel's manual defines them where they raise SIGILL.
#pragma once

#include "src/simd/processor.h"

namespace ttr::test {

// Can tiles multiply here: by the processor, or by this emulation of them? Kernels that use them
// have other instructions as well (AVX512-BF16), which are not emulated.
bool HasMatrixTiles();

// Products of bfloat16 are made in this way for the length of a test. While it is by tiles and the
// processor has none, SIGILL is handled here.
class WithBf16Products {
 public:
  explicit WithBf16Products(simd::Bf16Products products);
  ~WithBf16Products();
  WithBf16Products(const WithBf16Products&) = delete;
  WithBf16Products& operator=(const WithBf16Products&) = delete;

 private:
  const simd::Bf16Products products_;
};

// Instructions of tiles that were emulated so far, by any thread.
long EmulatedTileInstructions();

}  // namespace ttr::test
