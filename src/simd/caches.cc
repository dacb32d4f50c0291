#include "src/simd/caches.h"

#include <algorithm>
#include <atomic>
#include <fstream>

namespace ttr::simd {
namespace {

std::atomic<const Caches*> forced{nullptr};

}  // namespace

std::vector<std::int64_t> ReadCacheLevels(const std::string& folder) {
  std::vector<std::int64_t> levels;
  for (int index = 0;; ++index) {
    const auto file = [&](const char* name) {
      return std::ifstream(folder + "/index" + std::to_string(index) + "/" + name);
    };
    std::string type;
    std::int64_t kilobytes = 0;
    if (!(file("type") >> type) || !(file("size") >> kilobytes) || kilobytes <= 0) return levels;
    if (type != "Instruction") levels.push_back(kilobytes << 10);
  }
}

std::vector<std::int64_t> CacheLevels() {
  return ReadCacheLevels("/sys/devices/system/cpu/cpu0/cache");
}

Caches CachesOf(const std::vector<std::int64_t>& levels) {
  Caches caches;
  if (!levels.empty()) caches.first_level = levels[0];
  if (levels.size() > 1) {
    caches.in_turn = std::max(caches.in_turn, levels[1] / 2);
    caches.numbers_ahead = std::max(caches.numbers_ahead, levels[1] / 16);
    caches.kept_states = caches.uncached_outputs = levels.back() / 2;
    caches.uncached_gradients = levels.back() / 16;
  }
  return caches;
}

const Caches& TheCaches() {
  if (const Caches* caches = forced.load(std::memory_order_relaxed)) return *caches;
  static const Caches caches = CachesOf(CacheLevels());
  return caches;
}

void ForceCaches(const Caches* caches) { forced = caches; }

}  // namespace ttr::simd
