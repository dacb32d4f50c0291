#include "src/core/call_scratch.h"

#include <algorithm>

#include "src/core/fill.h"
#include "src/core/scratch_error.h"

namespace ttr {
namespace {

std::span<std::byte> Enough(std::string_view op, std::span<std::byte> given, std::size_t bytes) {
  if (!given.empty() && given.size() < bytes) {
    ThrowTooSmallScratch(op, bytes - given.size());
  }
  return given;
}

}  // namespace

CallScratch::CallScratch(std::string_view op, std::span<std::byte> given, std::size_t bytes)
    : rest_(Enough(op, given, bytes).subspan(std::min(bytes, given.size()))),
      given_(!given.empty()),
      memory_(given.data(), std::min(bytes, given.size())) {}

TensorView CallScratch::Make(DType dtype, const Shape& shape) {
  const std::size_t bytes = static_cast<std::size_t>(shape.elements()) * SizeOf(dtype);
  return {memory_.allocate(std::max(bytes, kAlignment), kAlignment), dtype, shape};
}

TensorView CallScratch::Zeros(DType dtype, const Shape& shape) {
  const TensorView made = Make(dtype, shape);
  Fill(made, 0);
  return made;
}

TensorView CallScratch::Copy(const TensorView& view, DType dtype) {
  if (!view.defined()) return view;
  const TensorView copy = Make(dtype, view.shape());
  CopyInto(view, copy);
  return copy;
}

std::span<std::byte> CallScratch::Take(std::size_t bytes) {
  if (!given_) return {};
  return {static_cast<std::byte*>(memory_.allocate(bytes, kAlignment)), bytes};
}

}  // namespace ttr
