#include "src/simd/processor.h"

#include <atomic>
#include <cstdlib>
#include <string>

#include "ttr/error.h"
#include "ttr/target.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstring>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace ttr::simd {
namespace {

constexpr Bf16Products kAll[] = {Bf16Products::kFloat32, Bf16Products::kPairs,
                                 Bf16Products::kTiles};

#if defined(__x86_64__)

bool IsAmd() {
  unsigned highest = 0, vendor[3] = {};
  if (__get_cpuid(0, &highest, &vendor[0], &vendor[2], &vendor[1]) == 0) return false;
  return std::memcmp(vendor, "AuthenticAMD", sizeof(vendor)) == 0;
}

/// Has the processor AMX-TILE and AMX-BF16?
bool HasTiles() {
  constexpr unsigned kTile = 1u << 24, kBf16 = 1u << 22;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTile) != 0 && (d & kBf16) != 0;
}

/// Asks the system for the registers of tiles, for all threads of this process.
bool MayUseTiles() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

Bf16Processor Ask() {
  Bf16Processor processor;
  processor.has_pairs = __builtin_cpu_supports("avx512bf16") != 0;
  processor.has_fast_pairs = processor.has_pairs && IsAmd();
  // Factors are rounded by instructions of AVX512-BF16.
  processor.has_tiles = processor.has_pairs && HasTiles();
  processor.may_use_tiles = processor.has_tiles && MayUseTiles();
  return processor;
}

#elif defined(__aarch64__) && defined(__linux__)

Bf16Processor Ask() {
  const bool has = (getauxval(AT_HWCAP2) & HWCAP2_BF16) != 0;
  return {.has_pairs = has, .has_fast_pairs = has};
}

#else

Bf16Processor Ask() { return {}; }

#endif

bool Has(const Bf16Processor& processor, Bf16Products products) {
  switch (products) {
    case Bf16Products::kTiles: return processor.may_use_tiles;
    case Bf16Products::kPairs: return processor.has_pairs;
    default: return true;
  }
}

std::atomic<const Bf16Products*> forced{nullptr};

}  // namespace

std::string_view NameOf(Bf16Products products) {
  constexpr std::string_view kNames[] = {"float32", "pairs", "tiles"};
  return kNames[static_cast<int>(products)];
}

const Bf16Processor& TheBf16Processor() {
  static const Bf16Processor processor = Ask();
  return processor;
}

Bf16Products ChooseBf16Products(const Bf16Processor& processor, std::string_view name) {
  if (name.empty()) {
    if (processor.may_use_tiles) return Bf16Products::kTiles;
    return processor.has_fast_pairs ? Bf16Products::kPairs : Bf16Products::kFloat32;
  }
  std::string names;
  for (const Bf16Products products : kAll) {
    if (!Has(processor, products)) continue;
    if (NameOf(products) == name) return products;
    names += (names.empty() ? "" : ", ") + std::string(NameOf(products));
  }
  if (processor.has_tiles && !processor.may_use_tiles) names += " (the system refuses tiles)";
  throw Error("target", "TTR_BFLOAT16_PRODUCTS", "one of " + names,
              "\"" + std::string(name) + "\"");
}

Bf16Products ChosenBf16Products() {
  if (const Bf16Products* products = forced.load(std::memory_order_relaxed)) return *products;
  static const Bf16Products products = [] {
    const char* const name = std::getenv("TTR_BFLOAT16_PRODUCTS");
    return ChooseBf16Products(TheBf16Processor(), name == nullptr ? "" : name);
  }();
  return products;
}

void ForceBf16Products(const Bf16Products* products) { forced = products; }

}  // namespace ttr::simd

namespace ttr {

std::string_view BFloat16Products() { return simd::NameOf(simd::ChosenBf16Products()); }

bool MatrixTilesRefused() {
  const simd::Bf16Processor& processor = simd::TheBf16Processor();
  return processor.has_tiles && !processor.may_use_tiles;
}

}  // namespace ttr
