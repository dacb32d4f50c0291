/// How much engines keep in the caches, by how much these hold: the one place of numbers that
/// depend on it at run time. (Blocks of a fixed size are constants beside their kernels.)
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace ttr::simd {

/// Bytes, unless they are said to be numbers. The defaults are those of the machine on which
/// kernels were tuned, a Zen 4 with 32 KB, 1 MB and 32 MB.
struct Caches {
  /// A state that stays in the first level while a token reads and writes it.
  std::int64_t first_level = 32 << 10;

  /// Memories that are worked on in turn, a few rows of each: half of the second level.
  std::int64_t in_turn = 512 << 10;

  /// Numbers of a state that is fetched while another of its size is updated: both, of floats, are
  /// half of the second level.
  std::int64_t numbers_ahead = 1 << 16;

  /// States that stay from token to token: half of the last level.
  std::int64_t kept_states = 16 << 20;

  /// Outputs of so many bytes or more are written past the caches: no cache would hold them until
  /// they are read again, and a line that is written whole need not be read before. Half of the
  /// last level; for the gradient of an input a sixteenth, as it is not read next.
  std::int64_t uncached_outputs = 16 << 20;
  std::int64_t uncached_gradients = 2 << 20;
};

/// Bytes of every level of data cache in a folder as /sys/devices/system/cpu/cpu0/cache, which says
/// it of the first processor; nothing where the system has none. (The C library's own figures are
/// wrong on some machines.)
std::vector<std::int64_t> ReadCacheLevels(const std::string& folder);
std::vector<std::int64_t> CacheLevels();  // of this machine

/// Caches with levels of so many bytes; a level that is not listed is the default's. A second level
/// smaller than the default's changes nothing: with half of it, on a Zen 3, kernels are as fast
/// with these numbers.
Caches CachesOf(const std::vector<std::int64_t>& levels);

/// The caches of this machine, asked once.
const Caches& TheCaches();

/// TheCaches() from now on, for tests; this machine's again where null. Not to be called while
/// anything runs, nor between a call and what is made for it (scratch, what is saved).
void ForceCaches(const Caches* caches);

}  // namespace ttr::simd
