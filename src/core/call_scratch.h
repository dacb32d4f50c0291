/// Tensors that live as long as a call.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <span>
#include <string_view>

#include "ttr/tensor.h"

namespace ttr {

/// What a call needs beside its engine: in the scratch that its caller gives, else in memory of its
/// own. The engine has what remains of that scratch.
///
///     CallScratch scratch("network", call.scratch, CallScratch::Bytes(DType::kFloat32, shape));
///     const TensorView copy = scratch.Copy(k, DType::kFloat32);
///     network::Forward(options, tensors, executor, scratch.rest());
class CallScratch {
 public:
  /// Takes `bytes` of `given`, wherever that begins; throws an Error where it is smaller and not
  /// empty. What is asked for beyond that is allocated.
  CallScratch(std::string_view op, std::span<std::byte> given, std::size_t bytes);
  /// All of it is allocated.
  CallScratch() : CallScratch({}, {}, 0) {}
  CallScratch(const CallScratch&) = delete;
  CallScratch& operator=(const CallScratch&) = delete;

  /// A contiguous tensor of zeros, 64-byte aligned.
  TensorView Zeros(DType dtype, const Shape& shape);
  /// A contiguous copy in `dtype`; absent where the view is.
  TensorView Copy(const TensorView& view, DType dtype);
  /// Bytes, not initialised. None where everything is allocated, so that whoever takes scratch
  /// allocates it as well.
  std::span<std::byte> Take(std::size_t bytes);
  /// For containers.
  std::pmr::memory_resource* resource() { return &memory_; }

  std::span<std::byte> rest() const { return rest_; }

  /// Bytes of a tensor, at the most.
  static std::size_t Bytes(DType dtype, const Shape& shape) {
    return RoundedUp(static_cast<std::size_t>(shape.elements()) * SizeOf(dtype));
  }
  /// Bytes of anything else.
  static std::size_t RoundedUp(std::size_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  TensorView Make(DType dtype, const Shape& shape);

  std::span<std::byte> rest_;
  bool given_;
  std::pmr::monotonic_buffer_resource memory_;
};

}  // namespace ttr
