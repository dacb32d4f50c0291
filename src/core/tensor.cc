#include "ttr/tensor.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <string>

#include "ttr/error.h"

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace ttr {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::int64_t kInt64Max = std::numeric_limits<std::int64_t>::max();

// Bytes of a contiguous tensor, whole cache lines; never 0, so that even an empty tensor has an
// address that memcpy may take.
std::size_t AllocationBytes(DType dtype, const Shape& shape) {
  const std::int64_t elements = shape.elements();
  const auto element_bytes = static_cast<std::int64_t>(SizeOf(dtype));
  if (elements > (kInt64Max - static_cast<std::int64_t>(kAlignment)) / element_bytes) {
    throw Error("Tensor", "shape", "at most 2^63 bytes", shape.ToString());
  }
  const auto bytes = static_cast<std::size_t>(elements * element_bytes);
  return std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

// Rows of one head lie a whole token apart, each on a page of its own: with small pages a long
// tensor costs an address translation a row, which was measured at a third of a prefill's time.
void AskForLargePages([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr std::size_t kWorthIt = std::size_t{4} << 20;
  constexpr std::uintptr_t kPage = 4096;
  if (bytes < kWorthIt) return;
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / kPage * kPage;
  // Only a hint: where there are no large pages, nothing changes.
  static_cast<void>(madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE));
#endif
}

void* Allocate(DType dtype, const Shape& shape) {
  const std::size_t bytes = AllocationBytes(dtype, shape);
  void* memory = ::operator new(bytes, std::align_val_t{kAlignment}, std::nothrow);
  if (memory == nullptr) {
    throw SystemError("out of memory: a tensor " + shape.ToString() + " of " +
                      std::string(Name(dtype)) + " needs " + std::to_string(bytes) + " bytes");
  }
  AskForLargePages(memory, bytes);
  return memory;
}

}  // namespace

void Tensor::Free::operator()(void* memory) const {
  ::operator delete(memory, std::align_val_t{kAlignment});
}

Tensor::Tensor(DType dtype, const Shape& shape)
    : memory_(Allocate(dtype, shape)), view_(memory_.get(), dtype, shape) {
  std::memset(memory_.get(), 0, static_cast<std::size_t>(bytes()));
}

Tensor::Tensor(const Tensor& other) : Tensor(Copy(other.view_)) {}

Tensor& Tensor::operator=(const Tensor& other) {
  if (this != &other) *this = Copy(other.view_);
  return *this;
}

Tensor Tensor::Copy(const TensorView& view) { return Copy(view, view.dtype()); }

Tensor Tensor::Copy(const TensorView& view, DType dtype) {
  Tensor copy;
  if (!view.defined()) return copy;
  copy.memory_.reset(Allocate(dtype, view.shape()));
  copy.view_ = TensorView(copy.memory_.get(), dtype, view.shape());
  CopyInto(view, copy.view_);
  return copy;
}

}  // namespace ttr
