/// Threads that work on one thing together, phase by phase, and meet after every phase.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <thread>

#include "ttr/executor.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ttr {

/// One thread leads and calls Divide(); those that come after it take pieces until it is through.
/// Nobody waits for a thread that has not come: where the executor runs its tasks one by one, the
/// leader does every piece. A phase costs some tenths of a microsecond, where a call of the
/// executor costs ten times that, because helpers wait for the next phase awake.
class Team {
 public:
  /// A team of the leader alone.
  Team() = default;
  explicit Team(int threads) : threads_(threads) {}
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int threads() const { return threads_; }

  /// body(begin, end) for ranges that make up [0, count), each of whole units but the last, on any
  /// threads of the team. Returns when all are done. Only the leader calls it, and not from a body.
  /// A body may not throw.
  template <class Body>
  void Divide(std::int64_t count, std::int64_t unit, const Body& body) {
    const std::int64_t units = (count + unit - 1) / unit;
    const std::int64_t pieces = std::min<std::int64_t>(threads_, units);
    if (pieces <= 1) return body(std::int64_t{0}, count);
    const Cut<Body> cut{body, count, unit, units, pieces};
    RunPieces(pieces, &Cut<Body>::Run, &cut);
  }

  /// What a task of the executor does: lead() in the first that comes.
  template <class Lead>
  void Join(const Lead& lead) {
    if (led_.exchange(true, std::memory_order_relaxed)) return Help();
    const End end{over_};
    lead();
  }

 private:
  using Piece = void (*)(const void* cut, std::int64_t piece);

  template <class Body>
  struct Cut {
    const Body& body;
    std::int64_t count, unit, units, pieces;

    static void Run(const void* cut, std::int64_t piece) {
      const Cut& c = *static_cast<const Cut*>(cut);
      const auto bound = [&](std::int64_t p) {
        return std::min(p * c.units / c.pieces * c.unit, c.count);
      };
      c.body(bound(piece), bound(piece + 1));
    }
  };

  /// Lets the helpers go, also where the leader throws.
  struct End {
    std::atomic<bool>& over;
    ~End() { over.store(true, std::memory_order_release); }
  };

  /// A wait that is short: awake at first, then others may have the processor.
  class Wait {
   public:
    void Again() {
      if (++tries_ > kAwake) return std::this_thread::yield();
#if defined(__x86_64__)
      _mm_pause();
#endif
    }

   private:
    static constexpr int kAwake = 2000;
    int tries_ = 0;
  };

  void RunPieces(std::int64_t pieces, Piece run, const void* cut) {
    run_ = run;
    cut_ = cut;
    done_.store(0, std::memory_order_relaxed);
    left_.store(pieces, std::memory_order_release);
    while (TakePiece()) {
    }
    for (Wait wait; done_.load(std::memory_order_acquire) < pieces;) wait.Again();
  }

  /// One of those that are left, if there is one. What run_ and cut_ say holds until it is done.
  bool TakePiece() {
    std::int64_t left = left_.load(std::memory_order_relaxed);
    do {
      if (left == 0) return false;
    } while (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acquire,
                                          std::memory_order_relaxed));
    run_(cut_, left - 1);
    done_.fetch_add(1, std::memory_order_release);
    return true;
  }

  void Help() {
    for (Wait wait; !over_.load(std::memory_order_acquire);) {
      if (TakePiece()) {
        wait = Wait();
      } else {
        wait.Again();
      }
    }
  }

  static constexpr std::size_t kLine = 64;

  int threads_ = 1;
  Piece run_ = nullptr;
  const void* cut_ = nullptr;
  alignas(kLine) std::atomic<std::int64_t> left_{0};
  alignas(kLine) std::atomic<std::int64_t> done_{0};
  alignas(kLine) std::atomic<bool> led_{false};
  std::atomic<bool> over_{false};
};

/// lead(item, team) for every item in [0, items), all at once, each by a team of so many threads.
template <class Lead>
void RunInTeams(Executor& executor, std::int64_t items, int threads, const Lead& lead) {
  std::deque<Team> teams;  // whose elements stay where they are
  for (std::int64_t item = 0; item < items; ++item) teams.emplace_back(threads);
  executor.Run(items * threads, [&](std::int64_t task) {
    const std::int64_t item = task % items;
    Team& team = teams[static_cast<std::size_t>(item)];
    team.Join([&] { lead(item, team); });
  });
}

}  // namespace ttr
