#include "src/parallel/team.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "ttr/executor.h"

namespace ttr {
namespace {

// Says that it has threads, and runs one task after the other.
class OneByOne final : public Executor {
 public:
  explicit OneByOne(bool backwards) : backwards_(backwards) {}
  int threads() const override { return 3; }
  void Run(std::int64_t count, const std::function<void(std::int64_t)>& task) override {
    for (std::int64_t i = 0; i < count; ++i) task(backwards_ ? count - 1 - i : i);
  }

 private:
  bool backwards_;
};

// Every phase reads what the one before left.
void ExpectPhasesInOrder(Executor& executor, int items, int threads) {
  constexpr std::int64_t kPhases = 200, kCount = 37, kUnit = 4;
  std::vector<std::vector<std::int64_t>> numbers(static_cast<std::size_t>(items),
                                                 std::vector<std::int64_t>(kCount));
  RunInTeams(executor, items, threads, [&](std::int64_t item, Team& team) {
    std::vector<std::int64_t>& own = numbers[static_cast<std::size_t>(item)];
    EXPECT_EQ(team.threads(), threads);
    for (std::int64_t phase = 0; phase < kPhases; ++phase) {
      const std::vector<std::int64_t> before = own;
      team.Divide(kCount, kUnit, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_EQ(begin % kUnit, 0);
        EXPECT_TRUE(end % kUnit == 0 || end == kCount);
        for (std::int64_t i = begin; i < end; ++i) own[i] = before[kCount - 1 - i] + 1;
      });
    }
  });
  for (const auto& own : numbers) {
    for (const std::int64_t n : own) EXPECT_EQ(n, kPhases);
  }
}

TEST(Team, GoesThroughItsPhasesTogether) {
  for (const int threads : {1, 2, 5}) {
    const auto executor = MakeExecutor(threads);
    ExpectPhasesInOrder(*executor, 1, threads);
    ExpectPhasesInOrder(*executor, 3, threads);
  }
}

TEST(Team, DoesNotWaitForThoseThatDoNotCome) {
  for (const bool backwards : {false, true}) {
    OneByOne executor(backwards);
    ExpectPhasesInOrder(executor, 2, 3);
  }
}

TEST(Team, LetsItsHelpersGoWhereTheLeaderThrows) {
  const auto executor = MakeExecutor(2);
  EXPECT_THROW(
      RunInTeams(*executor, 2, 2, [](std::int64_t, Team&) { throw std::out_of_range("a leader"); }),
      std::out_of_range);
}

TEST(Team, HasNothingToDoWithNothing) {
  Team alone;
  std::int64_t calls = 0;
  alone.Divide(0, 4, [&](std::int64_t begin, std::int64_t end) { calls += begin + end; });
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace ttr
