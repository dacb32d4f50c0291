#include "ttr/util/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "ttr/error.h"

namespace ttr {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kGather = std::size_t{1} << 16;

// What RemoveTemporaries() unlinks. Fixed storage and atomics: a signal handler may neither lock
// nor allocate. A file that finds no free slot is still removed by its destructor.
struct Slot {
  std::atomic<bool> taken = false;
  std::atomic<bool> armed = false;
  char path[PATH_MAX] = {};
};
std::array<Slot, 32> slots;
static_assert(std::atomic<bool>::is_always_lock_free);

int TakeSlot(const std::string& path) {
  if (path.size() >= PATH_MAX) return -1;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    bool expected = false;
    if (!slots[i].taken.compare_exchange_strong(expected, true)) continue;
    std::memcpy(slots[i].path, path.c_str(), path.size() + 1);
    slots[i].armed.store(true);
    return static_cast<int>(i);
  }
  return -1;
}

void FreeSlot(int slot) {
  if (slot < 0) return;
  slots[static_cast<std::size_t>(slot)].armed.store(false);
  slots[static_cast<std::size_t>(slot)].taken.store(false);
}

// The rename itself is durable only once the folder is. Some file systems refuse to sync one; the
// file is complete all the same.
void SyncFolder(const fs::path& folder) {
  const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return;
  fsync(file);
  close(file);
}

[[noreturn]] void Throw(const fs::path& path, std::string_view action, int error) {
  throw SystemError("cannot " + std::string(action) + " " + path.string() + ": " +
                    std::generic_category().message(error));
}

/// What a symbolic link stands for is written, be it there or not; the link stays.
void FollowLinks(fs::path& path) {
  constexpr int kMost = 40;  // as Linux follows
  const fs::path given = path;
  std::error_code error;
  for (int links = 0; fs::is_symlink(path, error); ++links) {
    if (links == kMost) Throw(given, "write", ELOOP);
    const fs::path target = fs::read_symlink(path, error);
    if (error) Throw(given, "write", error.value());
    path = path.parent_path() / target;  // an absolute one stands alone
  }
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path) : path_(path) {
  FollowLinks(path_);
  struct stat old = {};
  const bool exists = stat(path_.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) Throw(path_, "write", EISDIR);
  if (exists && !S_ISREG(old.st_mode)) {
    file_ = open(path_.c_str(), O_WRONLY | O_CLOEXEC);
    if (file_ < 0) Throw(path_, "write", errno);
    return;
  }
  // Renaming needs no permission on the old file, but a person who took it away meant something.
  if (exists && access(path_.c_str(), W_OK) != 0) Throw(path_, "write", errno);

  // A short name: one made from the target's could be too long for the file system.
  static std::atomic<unsigned> counter = 0;
  do {
    const std::string name =
        ".ttr-" + std::to_string(getpid()) + "-" + std::to_string(counter++) + ".tmp";
    temporary_ = (path_.parent_path() / name).string();
    file_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (file_ < 0 && errno == EEXIST);
  if (file_ < 0) Throw(path_, "write", errno);
  slot_ = TakeSlot(temporary_);
  if (exists && fchmod(file_, old.st_mode & 07777) != 0) Fail("set the mode of", errno);
}

AtomicFile::~AtomicFile() { Discard(); }

void AtomicFile::Write(std::string_view bytes) {
  if (buffer_.size() + bytes.size() > kGather) Flush();
  if (bytes.size() > kGather) {
    WriteOut(bytes);
  } else {
    buffer_ += bytes;
  }
}

void AtomicFile::Write(const void* data, std::size_t bytes) {
  Write(std::string_view(static_cast<const char*>(data), bytes));
}

void AtomicFile::Flush() {
  WriteOut(buffer_);
  buffer_.clear();
}

void AtomicFile::WriteOut(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail("write", errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void AtomicFile::Prepare() {
  if (file_ < 0) return;
  Flush();
  if (!temporary_.empty() && fsync(file_) != 0) Fail("sync", errno);
  Close();
}

void AtomicFile::Close() {
  const int file = file_;
  file_ = -1;
  if (file >= 0 && close(file) != 0 && errno != EINTR) Fail("close", errno);
}

void AtomicFile::Commit() {
  Prepare();
  if (temporary_.empty()) return;
  if (rename(temporary_.c_str(), path_.c_str()) != 0) Fail("replace", errno);
  temporary_.clear();
  FreeSlot(slot_);
  slot_ = -1;
  SyncFolder(path_.has_parent_path() ? path_.parent_path() : fs::path("."));
}

void AtomicFile::RemoveTemporaries() noexcept {
  for (const Slot& slot : slots) {
    if (slot.armed.load()) unlink(slot.path);
  }
}

void AtomicFile::Discard() noexcept {
  if (file_ >= 0) close(file_);
  file_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
  FreeSlot(slot_);
  slot_ = -1;
}

void AtomicFile::Fail(std::string_view action, int error) {
  Discard();
  Throw(path_, action, error);
}

}  // namespace ttr
