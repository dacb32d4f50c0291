#include "ttr/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/parallel/workers.h"
#include "ttr/error.h"

namespace ttr {
namespace {

void ExpectRunsEveryTaskOnce(Executor& executor) {
  for (const std::int64_t count : {0, 1, 2, 1000}) {
    std::vector<std::atomic<int>> calls(static_cast<std::size_t>(count));
    executor.Run(count, [&](std::int64_t i) { ++calls[static_cast<std::size_t>(i)]; });
    for (const auto& n : calls) EXPECT_EQ(n.load(), 1);
  }
}

TEST(Executor, RunsEveryTaskOnce) {
  ExpectRunsEveryTaskOnce(SequentialExecutor());
  ExpectRunsEveryTaskOnce(DefaultExecutor());
  for (const int threads : {1, 2, 7}) {
    const auto executor = MakeExecutor(threads);
    EXPECT_EQ(executor->threads(), threads);
    ExpectRunsEveryTaskOnce(*executor);
  }
}

TEST(Executor, ThrowsAgainWhatATaskThrew) {
  for (const int threads : {1, 2}) {
    const auto executor = MakeExecutor(threads);
    EXPECT_THROW(executor->Run(10,
                               [](std::int64_t i) {
                                 if (i == 3) throw std::out_of_range("three");
                               }),
                 std::out_of_range);
    ExpectRunsEveryTaskOnce(*executor);
  }
}

TEST(Executor, RefusesNoThreads) {
  EXPECT_THROW(MakeExecutor(0), Error);
  EXPECT_THROW(MakeExecutor(-1), Error);
  EXPECT_THROW(MakeExecutor(1000000), Error);
}

TEST(Executor, SequentialRunsInOrder) {
  std::vector<std::int64_t> order;
  SequentialExecutor().Run(3, [&](std::int64_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::int64_t>{0, 1, 2}));
  EXPECT_EQ(SequentialExecutor().threads(), 1);
}

// The default executor is made once a process, so each value is tried in a process of its own.
TEST(ExecutorDeathTest, TtrThreadsSetsTheDefault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        setenv("TTR_THREADS", "3", 1);
        std::exit(DefaultExecutor().threads() == 3 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  for (const char* bad : {"0", "-2", "two", "3x", "99999999999"}) {
    EXPECT_EXIT(
        {
          setenv("TTR_THREADS", bad, 1);
          // Every use reports it, not the first alone.
          for (int use = 0; use < 2; ++use) {
            try {
              DefaultExecutor();
              std::exit(1);
            } catch (const Error& error) {
              if (std::string(error.what()).find("TTR_THREADS must be") == std::string::npos) {
                std::exit(2);
              }
            }
          }
          std::exit(0);
        },
        testing::ExitedWithCode(0), "");
  }
}

TEST(Workers, GiveEachItemToOneWorkerAtATime) {
  const auto executor = MakeExecutor(2);
  std::vector<std::atomic<int>> calls(500);
  std::vector<std::atomic<int>> busy(2);
  RunOnWorkers(*executor, 2, 500, [&](std::int64_t item, int worker) {
    const auto slot = static_cast<std::size_t>(worker);
    EXPECT_EQ(busy[slot].fetch_add(1), 0);
    ++calls[static_cast<std::size_t>(item)];
    busy[slot].fetch_sub(1);
  });
  for (const auto& n : calls) EXPECT_EQ(n.load(), 1);
}

}  // namespace
}  // namespace ttr
