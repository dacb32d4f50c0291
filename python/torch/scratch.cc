#include "scratch.h"

#include <memory>

namespace ttr::pytorch {
namespace {

/// As much as a thread keeps for good.
constexpr std::size_t kKept = std::size_t{1} << 20;

struct ThreadScratch {
  std::unique_ptr<std::byte[]> memory;
  std::size_t size = 0;
  bool in_use = false;
};

ThreadScratch& OfThisThread() {
  thread_local ThreadScratch scratch;
  return scratch;
}

}  // namespace

CallScratch::CallScratch(std::size_t bytes) {
  if (bytes == 0) return;
  ThreadScratch& mine = OfThisThread();
  if (bytes > kKept || mine.in_use) {
    tensor_ = EmptyBytes(bytes);
    bytes_ = BytesOf("scratch", "scratch", *tensor_);
    return;
  }
  if (mine.size < bytes) {
    mine.memory.reset(new std::byte[bytes]);
    mine.size = bytes;
  }
  mine.in_use = true;
  bytes_ = {mine.memory.get(), bytes};
}

CallScratch::~CallScratch() {
  if (!bytes_.empty() && !tensor_) OfThisThread().in_use = false;
}

}  // namespace ttr::pytorch
