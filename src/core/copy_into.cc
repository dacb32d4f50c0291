#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "ttr/error.h"
#include "ttr/tensor.h"

namespace ttr {
namespace {

// Numbers in memory, `stride` elements apart.
struct Row {
  void* data;
  DType dtype;
  std::int64_t offset;
  std::int64_t stride;
};

template <class T>
void Widen(const Row& row, std::int64_t begin, std::int64_t count, double* to) {
  const T* from = static_cast<const T*>(row.data) + row.offset + begin * row.stride;
  for (std::int64_t i = 0; i < count; ++i) to[i] = static_cast<double>(from[i * row.stride]);
}

void Load(const Row& row, std::int64_t begin, std::int64_t count, double* to) {
  switch (row.dtype) {
    case DType::kFloat32: return Widen<float>(row, begin, count, to);
    case DType::kFloat64: return Widen<double>(row, begin, count, to);
    default:
      for (std::int64_t i = 0; i < count; ++i) {
        to[i] = LoadElement(row.data, row.dtype, row.offset + (begin + i) * row.stride);
      }
  }
}

// To another dtype, through doubles: every dtype but int64 widens exactly.
void ConvertRow(const Row& from, const Row& to, std::int64_t count) {
  std::array<double, 256> part;
  constexpr auto kPart = static_cast<std::int64_t>(part.size());
  for (std::int64_t begin = 0; begin < count; begin += kPart) {
    const std::int64_t n = std::min(kPart, count - begin);
    Load(from, begin, n, part.data());
    for (std::int64_t i = 0; i < n; ++i) {
      StoreElement(to.data, to.dtype, to.offset + (begin + i) * to.stride,
                   part[static_cast<std::size_t>(i)]);
    }
  }
}

// Same dtype, bit for bit: integers above 2^53 and the payloads of NaNs do not survive a double.
void CopyRow(const Row& from, const Row& to, std::int64_t count) {
  const auto size = static_cast<std::int64_t>(SizeOf(from.dtype));
  const char* source = static_cast<const char*>(from.data) + size * from.offset;
  char* target = static_cast<char*>(to.data) + size * to.offset;
  if (from.stride == 1 && to.stride == 1) {
    std::memcpy(target, source, static_cast<std::size_t>(count * size));
    return;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(target + i * to.stride * size, source + i * from.stride * size,
                static_cast<std::size_t>(size));
  }
}

void CopyOrConvert(const Row& from, const Row& to, std::int64_t count) {
  from.dtype == to.dtype ? CopyRow(from, to, count) : ConvertRow(from, to, count);
}

// The strides of a view of full rank: the axes that are missing come first.
std::array<std::int64_t, kMaxRank> FullStrides(const TensorView& view) {
  std::array<std::int64_t, kMaxRank> strides{};
  for (int axis = 0; axis < view.rank(); ++axis) {
    strides[static_cast<std::size_t>(kMaxRank - view.rank() + axis)] = view.stride(axis);
  }
  return strides;
}

}  // namespace

void CopyInto(const TensorView& from, const TensorView& to) {
  if (from.shape() != to.shape()) {
    throw Error("CopyInto", "to", from.shape().ToString(), to.shape().ToString());
  }
  const std::int64_t elements = from.shape().elements();
  if (elements == 0) return;
  if (from.contiguous() && to.contiguous()) {
    return CopyOrConvert({from.data(), from.dtype(), 0, 1}, {to.data(), to.dtype(), 0, 1},
                         elements);
  }
  std::array<std::int64_t, kMaxRank> size{1, 1, 1, 1};
  for (int axis = 0; axis < from.rank(); ++axis) {
    size[static_cast<std::size_t>(kMaxRank - from.rank() + axis)] = from.size(axis);
  }
  const auto f = FullStrides(from);
  const auto t = FullStrides(to);
  for (std::int64_t a = 0; a < size[0]; ++a) {
    for (std::int64_t b = 0; b < size[1]; ++b) {
      for (std::int64_t c = 0; c < size[2]; ++c) {
        CopyOrConvert({from.data(), from.dtype(), a * f[0] + b * f[1] + c * f[2], f[3]},
                      {to.data(), to.dtype(), a * t[0] + b * t[1] + c * t[2], t[3]}, size[3]);
      }
    }
  }
}

}  // namespace ttr
