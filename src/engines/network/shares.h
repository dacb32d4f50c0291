/// How the threads of a call share its memories.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/network/work.h"
#include "src/parallel/team.h"

namespace ttr::network {

/// Each thread has memories of its own; where there are fewer memories than threads, each memory
/// has a team, which divides the products of a chunk.
struct Shares {
  int workers;   // memories at once
  int team = 1;  // threads of each

  Shares(const Work& work, int threads) : workers(common::WorkersOf(threads, work.memories())) {
    const std::int64_t tokens = std::min({work.options.mini_batch, kBlock, work.sizes.tokens});
    const double flops = static_cast<double>(tokens) * FlopsPerToken(work.sizes.shape);
    if (workers == 0 || tokens < 2 * kRowsWorthThread || flops < kFlopsWorthTeam) return;
    team = std::min(threads / workers, static_cast<int>(tokens / kRowsWorthThread));
  }

  /// run(memory, scratch of the worker that has it, its team)
  template <class Run>
  void ForMemories(const Work& work, Executor& executor, const common::WorkerScratch& room,
                   const Run& run) const {
    if (team <= 1) {
      return room.Run(executor, work.memories(), [&](std::int64_t item, std::byte* own) {
        Team alone;
        run(item, own, alone);
      });
    }
    RunInTeams(executor, workers, team, [&](std::int64_t item, Team& together) {
      run(item, room.Of(static_cast<int>(item)), together);
    });
  }

 private:
  /// A chunk of fewer flops is over before a team has met some five times.
  static constexpr double kFlopsWorthTeam = 4e5;
  /// Tokens that keep the registers of a product busy.
  static constexpr std::int64_t kRowsWorthThread = 4;
};

}  // namespace ttr::network
