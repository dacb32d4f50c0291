// Files that are whole or not there: written beside their target, synced, then renamed.
//
// Failures of the system (no permission, disk full) throw ttr::SystemError and leave the old file
// as it was. The temporary file goes when the object does, and when SIGINT, SIGTERM or SIGHUP ends
// the program (a handler is installed on first use, unless the program has its own).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace ttr::report {

class AtomicFile {
 public:
  // Opens a temporary file in the folder of `path`, which must exist. A link is followed; what is
  // not a regular file (a pipe, /dev/stdout) is written in place.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Appends; large pieces go out at once, small ones are gathered.
  void Write(std::string_view bytes);

  // Writes what was gathered and syncs it, so that a following Commit() can hardly fail: to replace
  // several files together, Prepare() all of them first.
  void Prepare();

  // Makes the new content visible under the target's name. Nothing may be written afterwards.
  void Commit();

 private:
  void Flush();
  void Close();
  void Discard();
  [[noreturn]] void Fail(const char* action, int error);

  std::filesystem::path path_;
  std::string temporary_;  // Empty when written in place.
  std::string buffer_;
  int file_ = -1;
  int slot_ = -1;  // Place in the table that the signal handler clears.
};

// The whole content of a file in one call.
void WriteFile(const std::filesystem::path& path, std::string_view content);

// Creates the folder and those above it.
void EnsureFolder(const std::filesystem::path& folder);

}  // namespace ttr::report
