#include "experiments/report/atomic_file.h"

#include <csignal>
#include <string>
#include <system_error>

#include "ttr/error.h"

namespace ttr::report {
namespace {

void RemoveAndRaise(int signal) {
  AtomicFile::RemoveTemporaries();
  // The handler was reset to the default by SA_RESETHAND: the program ends as if there were none.
  raise(signal);
}

}  // namespace

void WriteFile(const std::filesystem::path& path, std::string_view content) {
  AtomicFile file(path);
  file.Write(content);
  file.Commit();
}

void EnsureFolder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && !std::filesystem::is_directory(folder, error)) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (error) {
    throw SystemError("cannot create the folder " + folder.string() + ": " + error.message());
  }
}

void RemoveTemporariesOnSignals() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction old = {};
    if (sigaction(signal, nullptr, &old) != 0 || old.sa_handler != SIG_DFL) continue;
    struct sigaction action = {};
    action.sa_handler = RemoveAndRaise;
    sigemptyset(&action.sa_mask);
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace ttr::report
