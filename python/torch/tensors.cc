#include "tensors.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/macros.h>

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "executor.h"
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
    case DType::kFloat16: return aoti_torch_dtype_float16();
  }
  throw Error("[ttr] a dtype without a tensor");
}

DType DTypeOfNumber(std::string_view op, std::string_view name, std::int32_t type) {
  if (type == aoti_torch_dtype_float32()) return DType::kFloat32;
  if (type == aoti_torch_dtype_bfloat16()) return DType::kBFloat16;
  if (type == aoti_torch_dtype_float64()) return DType::kFloat64;
  if (type == aoti_torch_dtype_int64()) return DType::kInt64;
  if (type == aoti_torch_dtype_int8()) return DType::kInt8;
  if (type == aoti_torch_dtype_float16()) return DType::kFloat16;
  throw Error(op, name, "float32, float64, bfloat16 or float16 (counts and positions: int64)",
              "of another dtype");
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

/// A matrix on its way from columns that lie side by side to rows that do.
struct Transposition {
  const void* from;
  void* to;
  std::int64_t rows, columns, from_stride, to_stride;
};

/// In squares of cache lines: each line is read once and written once, so that it does not matter
/// which of them a cache of few ways keeps.
template <class T>
void Transpose(const Transposition& work) {
  constexpr std::int64_t kSide = 64 / sizeof(T);
  const T* const from = static_cast<const T*>(work.from);
  T* const to = static_cast<T*>(work.to);
  std::array<std::array<T, kSide>, kSide> square;
  for (std::int64_t row = 0; row < work.rows; row += kSide) {
    const std::int64_t rows = std::min(kSide, work.rows - row);
    for (std::int64_t column = 0; column < work.columns; column += kSide) {
      const std::int64_t columns = std::min(kSide, work.columns - column);
      for (std::int64_t j = 0; j < columns; ++j) {
        std::memcpy(square[static_cast<std::size_t>(j)].data(),
                    from + (column + j) * work.from_stride + row,
                    static_cast<std::size_t>(rows) * sizeof(T));
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        T* const line = to + (row + i) * work.to_stride + column;
        for (std::int64_t j = 0; j < columns; ++j) {
          line[j] = square[static_cast<std::size_t>(j)][static_cast<std::size_t>(i)];
        }
      }
    }
  }
}

/// Copies a tensor of which another axis than the last is contiguous, as [B, C, T] seen as
/// [B, T, C] is: PyTorch's copy of one takes several times as long. False: it is none, or of no
/// size that is known.
bool CopyTransposed(const Tensor& from, const Tensor& to) {
  const auto sizes = from.sizes(), strides = from.strides(), to_strides = to.strides();
  const std::size_t rank = sizes.size();
  if (rank < 2 || rank > 4 || from.numel() == 0) return false;
  const std::size_t last = rank - 1;
  std::size_t axis = last;
  for (std::size_t i = 0; i < last; ++i) {
    if (strides[i] == 1 && sizes[i] > 1) axis = i;
  }
  const std::size_t bytes = from.element_size();
  if (axis == last || (bytes != 2 && bytes != 4 && bytes != 8)) return false;

  // The other axes, of size 1 where there are none; rows in stripes, so that threads share them.
  constexpr std::int64_t kStripe = 64;
  std::array<std::int64_t, 2> outer{1, 1}, from_outer{}, to_outer{};
  for (std::size_t i = 0, next = 0; i < last; ++i) {
    if (i == axis) continue;
    outer[next] = sizes[i];
    from_outer[next] = strides[i];
    to_outer[next++] = to_strides[i];
  }
  const std::int64_t stripes = (sizes[axis] + kStripe - 1) / kStripe;
  TorchExecutor executor;
  executor.Run(outer[0] * outer[1] * stripes, [&](std::int64_t task) {
    const std::int64_t row = task % stripes * kStripe, second = task / stripes % outer[1];
    const std::int64_t first = task / stripes / outer[1];
    const std::int64_t source = first * from_outer[0] + second * from_outer[1] + row;
    const std::int64_t target = first * to_outer[0] + second * to_outer[1] + row * to_strides[axis];
    const auto size = static_cast<std::int64_t>(bytes);
    const Transposition work{.from = static_cast<const char*>(from.data_ptr()) + source * size,
                             .to = static_cast<char*>(to.data_ptr()) + target * size,
                             .rows = std::min(kStripe, sizes[axis] - row),
                             .columns = sizes[last],
                             .from_stride = strides[last],
                             .to_stride = to_strides[axis]};
    if (bytes == 2) return Transpose<std::uint16_t>(work);
    if (bytes == 4) return Transpose<std::uint32_t>(work);
    Transpose<std::uint64_t>(work);
  });
  return true;
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
  if (tensor.is_cpu() && CopyTransposed(tensor, copy)) return copy;
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
