/// Scratch of a call: the caller's, or its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "src/core/scratch_error.h"

namespace ttr {

/// `bytes` of scratch, of which all but the first kAlignment are sure to follow start(). Throws
/// where the caller gives fewer; allocates them where he gives none.
class Claimed {
 public:
  static constexpr std::size_t kAlignment = 64;

  Claimed(std::string_view op, std::span<std::byte> scratch, std::size_t bytes) {
    if (scratch.empty()) {
      owned_.reset(new std::byte[bytes]);
      scratch = {owned_.get(), bytes};
    } else if (scratch.size() < bytes) {
      ThrowTooSmallScratch(op, bytes - scratch.size());
    }
    const auto address = reinterpret_cast<std::uintptr_t>(scratch.data());
    start_ = scratch.data() + (kAlignment - address % kAlignment) % kAlignment;
  }

  /// A multiple of kAlignment.
  std::byte* start() const { return start_; }

 private:
  std::unique_ptr<std::byte[]> owned_;
  std::byte* start_;
};

}  // namespace ttr
