#include "tests/support/guarded.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <system_error>

namespace ttr::test {

Guarded::Guarded(std::size_t bytes, std::size_t alignment) : size_(bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  mapped_ = ((bytes + alignment + page - 1) / page + 1) * page;
  void* const memory =
      mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  memory_ = static_cast<std::byte*>(memory);
  page_ = memory_ + mapped_ - page;
  std::memset(memory_, static_cast<int>(kUntouched), mapped_ - page);
  if (mprotect(page_, page, PROT_NONE) != 0) {
    throw std::system_error(errno, std::generic_category(), "mprotect");
  }
  begin_ = page_ - bytes;
  begin_ -= reinterpret_cast<std::uintptr_t>(begin_) % alignment;
}

Guarded::~Guarded() { munmap(memory_, mapped_); }

bool Guarded::Whole() const {
  const auto untouched = [](std::byte byte) { return byte == kUntouched; };
  return std::all_of(memory_, begin_, untouched) && std::all_of(begin_ + size_, page_, untouched);
}

}  // namespace ttr::test
