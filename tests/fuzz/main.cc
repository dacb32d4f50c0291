// One fuzzer as libFuzzer calls it; TTR_FUZZER is its name in fuzzers.h.
#include "tests/fuzz/fuzzers.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ttr::fuzz::TTR_FUZZER({data, size});
  return 0;
}
