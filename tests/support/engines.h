// What the tests of engines share: forced targets and caches, tensors in two memory orders,
// roundings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <new>
#include <vector>

#include "src/simd/caches.h"
#include "tests/support/targets.h"
#include "ttr/tensor.h"

namespace ttr::test {

// Caches that engines believe in for the length of a test.
class WithCaches {
 public:
  explicit WithCaches(const simd::Caches& caches) : caches_(caches) { simd::ForceCaches(&caches_); }
  ~WithCaches() { simd::ForceCaches(nullptr); }
  WithCaches(const WithCaches&) = delete;
  WithCaches& operator=(const WithCaches&) = delete;

 private:
  const simd::Caches caches_;
};

// So small that nothing stays in them, and so large that everything does.
inline constexpr simd::Caches kNoCaches{1, 1, 1, 1, 1, 1};
inline constexpr std::int64_t kAnyBytes = std::int64_t{1} << 40;
inline constexpr simd::Caches kEndlessCaches{kAnyBytes, kAnyBytes, kAnyBytes,
                                             kAnyBytes, kAnyBytes, kAnyBytes};

// A tensor with its view in the engine's order of axes.
struct Data {
  Tensor memory;
  TensorView view;
};

// [B, T, H, D] or [B, T, H]; in memory heads before tokens if asked for.
Data MakeData(DType dtype, const Shape& shape, bool head_major);

// Every number of it, in the order of memory.
void Fill(Data& data, const std::function<double()>& number);

std::vector<std::byte> Bytes(const Tensor& tensor);

// Bytes that begin at a multiple of 64, as CallOptions::saved does.
template <class T>
struct AlignedTo64 {
  using value_type = T;
  AlignedTo64() = default;
  template <class U>
  AlignedTo64(const AlignedTo64<U>&) {}  // NOLINT: as allocators are
  T* allocate(std::size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* memory, std::size_t) { ::operator delete(memory, std::align_val_t{64}); }
  bool operator==(const AlignedTo64&) const = default;
};
using AlignedBytes = std::vector<std::byte, AlignedTo64<std::byte>>;

// The distance of 1 to the next number; of bfloat16 that of its 8 bits.
double Epsilon(DType dtype);

}  // namespace ttr::test
