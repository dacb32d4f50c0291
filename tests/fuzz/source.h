// Choices out of bytes: a byte each, and where they are used up the first of all there are.
#pragma once

#include <cstddef>

#include "tests/fuzz/fuzzers.h"

namespace ttr::fuzz {

class Source {
 public:
  explicit Source(Bytes bytes) : bytes_(bytes) {}

  // 0 to count - 1, of 256 at most.
  std::int64_t Below(std::int64_t count) { return Next() % count; }
  bool Flag() { return Next() % 2 == 1; }

  template <class T, std::size_t N>
  T Any(const T (&of)[N]) {
    return of[static_cast<std::size_t>(Below(static_cast<std::int64_t>(N)))];
  }

  Bytes rest() const { return bytes_; }

 private:
  std::int64_t Next() {
    if (bytes_.empty()) return 0;
    const std::uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }

  Bytes bytes_;
};

}  // namespace ttr::fuzz
