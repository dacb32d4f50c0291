// A memory, compiled for every target.

#include "src/engines/kernel_dictionary/task.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/kernel_dictionary/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/kernel_dictionary/memory-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_dictionary {
namespace HWY_NAMESPACE {

void Run(const Options& options, const Memory& memory, std::byte* scratch) {
  common::ScratchLayout layout(scratch);
  const Scratch s({options.budget, memory.key_dim, memory.value_dim}, layout);
  if (options.kernel == Kernel::kLinear) {
    return Dictionary<Kernel::kLinear>(options, memory, s).Run();
  }
  cn::WithKernel(options.kernel, [&](auto unit) {
    constexpr Kernel kKernel = decltype(unit)::kKernel;
    if constexpr (common::FactsOf(kKernel).positive_definite) {
      Dictionary<kKernel>(options, memory, s).Run();
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_dictionary
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace ttr::kernel_dictionary {

HWY_EXPORT(Run);

void RunMemory(const Options& options, const Memory& memory, std::byte* scratch) {
  TTR_DISPATCH(Run)(options, memory, scratch);
}

}  // namespace ttr::kernel_dictionary

#endif  // HWY_ONCE
