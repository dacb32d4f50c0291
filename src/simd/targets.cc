#include "src/simd/targets.h"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "hwy/highway.h"
#include "ttr/error.h"
#include "ttr/target.h"

namespace ttr {
namespace {

std::string Names(const std::vector<std::int64_t>& targets) {
  std::string names;
  for (const std::int64_t target : targets) {
    names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  }
  return names;
}

// In Highway a lower bit is a better target.
std::vector<std::int64_t> BestFirst(std::int64_t bits) {
  std::vector<std::int64_t> targets;
  for (; bits != 0; bits &= bits - 1) targets.push_back(bits & -bits);
  return targets;
}

std::vector<std::int64_t> Usable() {
  return simd::UsableTargets(HWY_TARGETS, hwy::SupportedTargets());
}

std::int64_t Find(std::string_view what, std::string_view name) {
  const std::vector<std::int64_t> usable = Usable();
  for (const std::int64_t target : usable) {
    if (hwy::TargetName(target) == name) return target;
  }
  throw Error("target", what, "one of " + Names(usable), "\"" + std::string(name) + "\"");
}

std::int64_t DefaultTarget() {
  const char* variable = std::getenv("TTR_TARGET");
  if (variable == nullptr || *variable == '\0') return Usable().front();
  return Find("TTR_TARGET", variable);
}

// 0: not forced.
std::atomic<std::int64_t> forced_target{0};

std::int64_t Chosen() {
  if (const std::int64_t forced = forced_target.load(std::memory_order_relaxed)) return forced;
  static const std::int64_t target = DefaultTarget();
  return target;
}

}  // namespace

std::vector<std::string> CompiledTargets() {
  std::vector<std::string> names;
  for (const std::int64_t target : BestFirst(HWY_TARGETS)) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

std::vector<std::string> SupportedTargets() {
  std::vector<std::string> names;
  for (const std::int64_t target : Usable()) names.emplace_back(hwy::TargetName(target));
  return names;
}

std::string_view ChosenTarget() { return hwy::TargetName(Chosen()); }

void ForceTarget(std::string_view name) { forced_target = name.empty() ? 0 : Find("name", name); }

namespace simd {

std::vector<std::int64_t> UsableTargets(std::int64_t compiled, std::int64_t supported) {
#if HWY_ARCH_ARM
  // Highway does not count NEON as supported where AES, which no kernel uses, is missing.
  supported |= HWY_NEON;
#endif
  if ((compiled & supported) == 0) {
    throw SystemError("this ttr was compiled for processors with " + Names(BestFirst(compiled)) +
                      ", and this one has " + Names(BestFirst(supported)) +
                      ": build it here, or with TTR_TARGETS=all for every processor");
  }
  return BestFirst(compiled & supported);
}

std::size_t ChosenIndex() {
  const std::int64_t target = Chosen();
#if (HWY_TARGETS & (HWY_TARGETS - 1)) == 0
  static_cast<void>(target);
  return 0;
#else
  // Highway's arithmetic from a target to its place in a table, on a choice of our own.
  hwy::ChosenTarget choice;
  choice.Update(target);
  return choice.GetIndex();
#endif
}

}  // namespace simd
}  // namespace ttr
