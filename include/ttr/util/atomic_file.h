/// Files that are whole or not there: written beside their target, synced, then renamed. A crash at
/// any moment leaves the old file or the new one.
///
///     ttr::AtomicFile file("report.csv");
///     file.Write(text);
///     file.Commit();
///
/// Failures of the system (no permission, disk full) throw SystemError, remove the temporary file
/// and leave the old file as it was. The destructor does the same when Commit() was not reached.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace ttr {

class AtomicFile {
 public:
  /// Opens a temporary file in the folder of `path`, which must exist. A link is followed; what is
  /// not a regular file (a pipe, /dev/stdout) is written in place. A file that one may not write is
  /// not replaced either, and a new file takes over the mode of the old one.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends. Small pieces are gathered, large ones go out at once.
  void Write(std::string_view bytes);
  void Write(const void* data, std::size_t bytes);

  /// Writes what was gathered and syncs it, so that a following Commit() can hardly fail: to
  /// replace several files together, Prepare() all of them first. Nothing may be written
  /// afterwards.
  void Prepare();

  /// Makes the new content visible under the target's name.
  void Commit();

  /// Removes the temporary files of all objects that live. For signal handlers that end the
  /// program: async-signal-safe. (The library installs no handler itself.)
  static void RemoveTemporaries() noexcept;

 private:
  void Flush();
  void WriteOut(std::string_view bytes);
  void Close();
  void Discard() noexcept;
  [[noreturn]] void Fail(std::string_view action, int error);

  std::filesystem::path path_;
  std::string temporary_;  // empty where written in place
  std::string buffer_;
  int file_ = -1;
  int slot_ = -1;  // place in the table that RemoveTemporaries() reads
};

}  // namespace ttr
