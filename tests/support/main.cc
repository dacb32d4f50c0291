// The main function of every test program. Many tests share a process, so one that fails, or takes
// the process with it, says how to run it alone.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ttr/target.h"

namespace {

constexpr int kSkipped = 77;  // as cmake/TtrTargets.cmake tells ctest

// The command line that runs the test of the moment alone; a handler of signals may read no string.
char alone[1000] = "";

std::string NamedTarget() {
  const char* const name = std::getenv("TTR_TARGET");
  return name == nullptr ? "" : name;
}

class Hints : public testing::EmptyTestEventListener {
 public:
  explicit Hints(const std::string& program)
      : command_((NamedTarget().empty() ? "" : "TTR_TARGET=" + NamedTarget() + " ") + program) {}

  void OnTestStart(const testing::TestInfo& test) override {
    std::snprintf(alone, sizeof(alone), "To run it alone: %s --gtest_filter='%s.%s'\n",
                  command_.c_str(), test.test_suite_name(), test.name());
  }
  void OnTestEnd(const testing::TestInfo& test) override {
    if (test.result()->Failed()) std::fputs(alone, stdout);
  }

 private:
  const std::string command_;
};

void Tell(int signal) {
  const auto written = write(STDERR_FILENO, alone, std::strlen(alone));
  static_cast<void>(written);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// SIGTERM is what ctest sends when time is up. A sanitizer's handler tells more, and stays.
void TellOfSignals() {
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTERM}) {
    struct sigaction now = {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler == SIG_DFL) std::signal(signal, Tell);
  }
}

// Was this compiled for the named target, which the processor lacks?
bool LacksTarget() {
  const auto has = [](const std::vector<std::string>& targets) {
    return std::find(targets.begin(), targets.end(), NamedTarget()) != targets.end();
  };
  return has(ttr::CompiledTargets()) && !has(ttr::SupportedTargets());
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (LacksTarget()) {
    std::printf("This processor has no %s\n", NamedTarget().c_str());
    return kSkipped;
  }
  testing::UnitTest::GetInstance()->listeners().Append(new Hints(argv[0]));
  TellOfSignals();
  return RUN_ALL_TESTS();
}
