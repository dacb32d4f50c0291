#include "tensors.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <array>
#include <cstring>
#include <string>

#include "ttr/error.h"

namespace ttr::pytorch {
namespace {

std::int32_t TypeOf(const Tensor& tensor) {
  std::int32_t type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor.get(), &type));
  return type;
}

std::int32_t NumberOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return aoti_torch_dtype_float32();
    case DType::kFloat64: return aoti_torch_dtype_float64();
    case DType::kBFloat16: return aoti_torch_dtype_bfloat16();
    case DType::kInt64: return aoti_torch_dtype_int64();
    case DType::kInt8: return aoti_torch_dtype_int8();
  }
  throw Error("[ttr] a dtype without a tensor");
}

DType DTypeOfNumber(std::string_view op, std::string_view name, std::int32_t type) {
  if (type == aoti_torch_dtype_float32()) return DType::kFloat32;
  if (type == aoti_torch_dtype_bfloat16()) return DType::kBFloat16;
  if (type == aoti_torch_dtype_float64()) return DType::kFloat64;
  if (type == aoti_torch_dtype_int64()) return DType::kInt64;
  if (type == aoti_torch_dtype_int8()) return DType::kInt8;
  throw Error(op, name, "float32, float64 or bfloat16 (counts and positions: int64)",
              type == aoti_torch_dtype_float16() ? "float16" : "of another dtype");
}

/// Fresh memory of some size is got from the system page by page, when it is written first: that is
/// a quarter of the time of a long sequence. Where the system has large pages for who asks, this
/// asks.
void PreferLargePages([[maybe_unused]] const Tensor& tensor) {
#ifdef MADV_HUGEPAGE
  constexpr std::uintptr_t kPage = std::uintptr_t{1} << 21;
  if (tensor.numel() < static_cast<std::int64_t>(kPage)) return;  // too little to matter
  const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * tensor.element_size();
  const auto start = reinterpret_cast<std::uintptr_t>(tensor.data_ptr());
  const std::uintptr_t from = (start + kPage - 1) / kPage * kPage;
  const std::uintptr_t to = (start + bytes) / kPage * kPage;
  // Advice: if it is not taken everything is as before.
  (void)madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#endif
}

Tensor EmptyOf(std::int32_t type, std::span<const std::int64_t> sizes) {
  std::array<std::int64_t, kMaxRank> strides{};
  std::int64_t stride = 1;
  for (std::size_t axis = sizes.size(); axis-- > 0;) {
    strides[axis] = stride;
    stride *= sizes[axis] > 0 ? sizes[axis] : 1;
  }
  AtenTensorHandle handle = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()),
                                                         sizes.data(), strides.data(), type,
                                                         aoti_torch_device_type_cpu(), 0, &handle));
  Tensor tensor(handle);
  PreferLargePages(tensor);
  return tensor;
}

}  // namespace

TensorView ViewOf(std::string_view op, std::string_view name, const Tensor& tensor) {
  if (!tensor.is_cpu()) throw Error(op, name, "on the CPU", "on another device");
  const DType dtype = DTypeOfNumber(op, name, TypeOf(tensor));
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  if (sizes.size() > static_cast<std::size_t>(kMaxRank)) {
    throw Error(op, name, "of four axes at most", std::to_string(sizes.size()) + " axes");
  }
  return TensorView(tensor.data_ptr(), dtype, Shape({sizes.data(), sizes.size()}),
                    {strides.data(), strides.size()});
}

bool HasRows(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  if (sizes.size() == 0) return true;
  const std::size_t last = sizes.size() - 1;
  return sizes[last] <= 1 || tensor.strides()[last] == 1;
}

Tensor CopyRows(const Tensor& tensor) {
  const auto sizes = tensor.sizes();
  Tensor copy = EmptyOf(TypeOf(tensor), {sizes.data(), sizes.size()});
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_copy_(copy.get(), tensor.get(), 0));
  return copy;
}

Tensor Empty(DType dtype, const Shape& shape) {
  std::array<std::int64_t, kMaxRank> sizes{};
  for (int axis = 0; axis < shape.rank(); ++axis)
    sizes[static_cast<std::size_t>(axis)] = shape[axis];
  return EmptyOf(NumberOf(dtype), {sizes.data(), static_cast<std::size_t>(shape.rank())});
}

Tensor Zeros(DType dtype, const Shape& shape) {
  Tensor tensor = Empty(dtype, shape);
  const auto bytes = static_cast<std::size_t>(shape.elements()) * SizeOf(dtype);
  if (bytes > 0) std::memset(tensor.mutable_data_ptr(), 0, bytes);
  return tensor;
}

Tensor EmptyBytes(std::size_t bytes) {
  const std::int64_t size = static_cast<std::int64_t>(bytes);
  return EmptyOf(aoti_torch_dtype_uint8(), {&size, 1});
}

std::span<std::byte> BytesOf(std::string_view op, std::string_view name, const Tensor& tensor) {
  if (!tensor.is_cpu() || TypeOf(tensor) != aoti_torch_dtype_uint8() || !tensor.is_contiguous()) {
    throw Error(op, name, "a contiguous tensor of uint8 on the CPU", "something else");
  }
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel())};
}

}  // namespace ttr::pytorch
