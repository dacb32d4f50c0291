/// Scratch of one call.
#pragma once

#include <cstddef>
#include <span>

#include "tensors.h"

namespace ttr::pytorch {

/// Little scratch is the calling thread's own, kept from call to call: of a token's work, to
/// allocate it anew would be a third. More is a tensor of the call.
class CallScratch {
 public:
  explicit CallScratch(std::size_t bytes);
  ~CallScratch();
  CallScratch(const CallScratch&) = delete;
  CallScratch& operator=(const CallScratch&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
  OptionalTensor tensor_;
};

}  // namespace ttr::pytorch
