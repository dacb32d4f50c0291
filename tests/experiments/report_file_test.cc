#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>

#include "experiments/report/atomic_file.h"
#include "experiments/report/progress.h"
#include "experiments/report/utf8.h"
#include "tests/experiments/report_support.h"
#include "ttr/error.h"

namespace ttr::report {
namespace {

namespace fs = std::filesystem;

TEST(Files, SystemFailuresNameTheFile) {
  const TemporaryFolder folder;
  try {
    WriteFile(folder / "none/a.csv", "x");
    FAIL() << "a missing folder was accepted";
  } catch (const SystemError& error) {
    EXPECT_NE(std::string(error.what()).find("none/a.csv"), std::string::npos);
  }
  WriteFile(folder / "file", "x");
  EXPECT_EQ(ReadAll(folder / "file"), "x");
  EXPECT_THROW(EnsureFolder(folder / "file"), SystemError);
  EnsureFolder(folder / "a/b/c");
  EXPECT_TRUE(fs::is_directory(folder / "a/b/c"));
}

// Runs `body` in a process of its own and returns how that ended.
template <typename Body>
int StatusOf(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    body();
    _exit(99);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

TEST(Files, InterruptRemovesTheTemporaryFileAndEndsTheProgram) {
  const TemporaryFolder folder;
  WriteFile(folder / "a", "old");
  for (const int number : {SIGINT, SIGTERM}) {
    const int status = StatusOf([&] {
      std::signal(number, SIG_DFL);  // not the test program's own
      RemoveTemporariesOnSignals();
      AtomicFile file(folder / "a");
      file.Write("new");
      file.Prepare();
      if (folder.Count() != 2) _exit(98);
      raise(number);
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), number);
    EXPECT_EQ(ReadAll(folder / "a"), "old");
    EXPECT_EQ(folder.Count(), 1);
  }
}

TEST(Progress, LineShowsShareElapsedAndRest) {
  EXPECT_EQ(ProgressLine("work", 5, 20, 10, 80),
            "work  ███████▌                         5/20  0:10  0:30 left");
  EXPECT_EQ(ProgressLine("work", 20, 20, 3700, 80),
            "work  ██████████████████████████████  20/20  1:01:40");
  EXPECT_EQ(ProgressLine("rows", 500, 0, 10, 80), "rows  500  0:10  50/s");
}

TEST(Progress, LineNeverExceedsTheTerminal) {
  for (int width = 1; width < 90; ++width) {
    for (const std::int64_t done : {0, 7, 1000, 2000}) {
      EXPECT_LE(DisplayWidth(ProgressLine("gedächtnis\n", done, 1000, 12.5, width)), width);
    }
  }
}

std::string ReadAvailable(int file) {
  fcntl(file, F_SETFL, O_NONBLOCK);
  std::string out;
  char buffer[4096];
  for (ssize_t n = read(file, buffer, sizeof buffer); n > 0;
       n = read(file, buffer, sizeof buffer)) {
    out.append(buffer, static_cast<std::size_t>(n));
  }
  return out;
}

TEST(Progress, TellsAPipeOfLongWorkInWholeLines) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  {
    Progress brief("brief", 3, {.file = ends[1]});
    brief.Advance(3);
    Progress progress("work", 3, {.file = ends[1], .line_interval = std::chrono::seconds(0)});
    progress.Advance(1);
    progress.Advance(2);
    Progress quiet("quiet", 3,
                   {.quiet = true, .file = ends[1], .line_interval = std::chrono::seconds(0)});
    quiet.Advance(3);
  }
  EXPECT_EQ(ReadAvailable(ends[0]),
            ProgressLine("work", 1, 3, 0, 80) + "\n" + ProgressLine("work", 3, 3, 0, 80) + "\n");
  close(ends[0]);
  close(ends[1]);
}

TEST(Progress, DrawsOnATerminalUnlessQuiet) {
  const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
  ASSERT_GE(terminal, 0);
  ASSERT_EQ(grantpt(terminal), 0);
  ASSERT_EQ(unlockpt(terminal), 0);
  const int file = open(ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(file, 0);
  {
    Progress progress("silent", 3, {.quiet = true, .file = file});
    progress.Advance(3);
  }
  EXPECT_EQ(ReadAvailable(terminal), "");
  {
    Progress progress("loud", 3, {.file = file});
    progress.Advance(3);
  }
  const std::string drawn = ReadAvailable(terminal);
  EXPECT_NE(drawn.find("loud"), std::string::npos);
  EXPECT_NE(drawn.find("3/3"), std::string::npos);
  EXPECT_TRUE(drawn.ends_with("\r\x1b[K")) << "the line must be wiped at the end";
  close(file);
  close(terminal);
}

}  // namespace
}  // namespace ttr::report
