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

// Best first: in Highway a lower bit is a better target.
std::vector<std::int64_t> Usable() {
  std::vector<std::int64_t> targets;
  std::int64_t bits = hwy::SupportedTargets() & HWY_TARGETS;
  // Of NEON without AES, which no kernel uses, Highway says that it is not supported.
  if (bits == 0) bits = HWY_STATIC_TARGET;
  for (; bits != 0; bits &= bits - 1) targets.push_back(bits & -bits);
  return targets;
}

std::int64_t Find(std::string_view what, std::string_view name) {
  std::string names;
  for (const std::int64_t target : Usable()) {
    if (hwy::TargetName(target) == name) return target;
    names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(target));
  }
  throw Error("target", what, "one of " + names, "\"" + std::string(name) + "\"");
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

std::vector<std::string> SupportedTargets() {
  std::vector<std::string> names;
  for (const std::int64_t target : Usable()) names.emplace_back(hwy::TargetName(target));
  return names;
}

std::string_view ChosenTarget() { return hwy::TargetName(Chosen()); }

void ForceTarget(std::string_view name) { forced_target = name.empty() ? 0 : Find("name", name); }

namespace simd {

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
