#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>

#include "ttr/error.h"
#include "ttr/tensor.h"

namespace ttr {
namespace {

// A double as an integer of a type: towards zero, saturated; NaN is 0.
template <class T>
T Saturate(double value) {
  // max() of int64 is no double; 2^63, one above it, is. -min() is one above max() in int8 as well.
  const double above = -static_cast<double>(std::numeric_limits<T>::min());
  if (std::isnan(value)) return 0;
  if (value >= above) return std::numeric_limits<T>::max();
  if (value < -above) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

}  // namespace

Shape::Shape(std::initializer_list<std::int64_t> sizes)
    : Shape(std::span<const std::int64_t>(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const std::int64_t> sizes) {
  if (sizes.size() > kMaxRank) {
    throw Error("Shape", "rank", "at most " + std::to_string(kMaxRank),
                std::to_string(sizes.size()));
  }
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  rank_ = static_cast<int>(sizes.size());
  if (std::any_of(sizes.begin(), sizes.end(), [](std::int64_t size) { return size < 0; })) {
    throw Error("Shape", "sizes", ">= 0", ToString());
  }
}

std::int64_t Shape::elements() const {
  const auto end = sizes_.begin() + rank_;
  if (std::find(sizes_.begin(), end, 0) != end) return 0;  // however large the others are
  std::int64_t product = 1;
  for (auto size = sizes_.begin(); size != end; ++size) {
    if (__builtin_mul_overflow(product, *size, &product)) {
      throw Error("Shape", "number of elements", "below 2^63", "the product of " + ToString());
    }
  }
  return product;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (int axis = 0; axis < rank_; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string((*this)[axis]);
  }
  return text + "]";
}

TensorView::TensorView(void* data, DType dtype, const Shape& shape)
    : data_(data), shape_(shape), dtype_(dtype), defined_(true) {
  const std::int64_t elements = shape.elements();
  if (data == nullptr && elements > 0) {
    throw Error("TensorView", "data", "memory of shape " + shape.ToString(), "null");
  }
  // Where a size is 0 no stride is ever used beyond 0; all but the last are left at 0.
  std::int64_t stride = 1;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    strides_[static_cast<std::size_t>(axis)] = stride;
    stride = elements > 0 ? stride * shape[axis] : 0;
  }
}

TensorView::TensorView(void* data, DType dtype, const Shape& shape,
                       std::span<const std::int64_t> strides)
    : TensorView(data, dtype, shape) {
  if (strides.size() != static_cast<std::size_t>(shape.rank())) {
    throw Error("TensorView", "number of strides", std::to_string(shape.rank()),
                std::to_string(strides.size()));
  }
  std::copy(strides.begin(), strides.end(), strides_.begin());
}

bool TensorView::contiguous() const {
  if (!defined_ || shape_.elements() == 0) return true;
  std::int64_t expected = 1;
  for (int axis = rank() - 1; axis >= 0; --axis) {
    // The stride of an axis with one row is never taken.
    if (size(axis) > 1 && stride(axis) != expected) return false;
    expected *= size(axis);
  }
  return true;
}

std::int64_t TensorView::Offset(std::initializer_list<std::int64_t> index) const {
  std::int64_t offset = 0;
  int axis = 0;
  bool inside = index.size() == static_cast<std::size_t>(rank());
  for (auto i = index.begin(); inside && i != index.end(); ++i, ++axis) {
    inside = *i >= 0 && *i < size(axis);
    offset += *i * stride(axis);
  }
  if (!inside) {
    std::string given = "[";
    for (const std::int64_t i : index) {
      given.append(given.size() > 1 ? ", " : "").append(std::to_string(i));
    }
    throw Error("TensorView", "index", "inside of " + shape_.ToString(), given + "]");
  }
  return offset;
}

double TensorView::At(std::initializer_list<std::int64_t> index) const {
  return LoadElement(data_, dtype_, Offset(index));
}

void TensorView::Set(std::initializer_list<std::int64_t> index, double value) const {
  StoreElement(data_, dtype_, Offset(index), value);
}

TensorView TensorView::Slice(int axis, std::int64_t begin, std::int64_t count) const {
  if (axis < 0 || axis >= rank()) {
    throw Error("Slice", "axis", "an axis of " + shape_.ToString(), std::to_string(axis));
  }
  if (begin < 0 || count < 0 || begin > size(axis) || count > size(axis) - begin) {
    throw Error("Slice", "rows of axis " + std::to_string(axis), "inside of " + shape_.ToString(),
                std::to_string(begin) + " and " + std::to_string(count) + " from there");
  }
  std::array<std::int64_t, kMaxRank> sizes{};
  for (int i = 0; i < rank(); ++i) sizes[static_cast<std::size_t>(i)] = size(i);
  sizes[static_cast<std::size_t>(axis)] = count;

  TensorView slice = *this;
  slice.shape_ =
      Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank())));
  // A pointer past memory that holds nothing is not formed.
  if (data_ != nullptr && slice.shape_.elements() > 0) {
    slice.data_ = as<char>() + begin * stride(axis) * static_cast<std::int64_t>(SizeOf(dtype_));
  }
  return slice;
}

double LoadElement(const void* data, DType dtype, std::int64_t index) {
  switch (dtype) {
    case DType::kFloat32: return static_cast<const float*>(data)[index];
    case DType::kFloat64: return static_cast<const double*>(data)[index];
    case DType::kBFloat16: return ToFloat(static_cast<const BFloat16*>(data)[index]);
    case DType::kInt64: return static_cast<double>(static_cast<const std::int64_t*>(data)[index]);
    case DType::kInt8: return static_cast<const std::int8_t*>(data)[index];
    case DType::kFloat16: return ToFloat(static_cast<const Float16*>(data)[index]);
  }
  return 0;
}

void StoreElement(void* data, DType dtype, std::int64_t index, double value) {
  switch (dtype) {
    case DType::kFloat32: static_cast<float*>(data)[index] = static_cast<float>(value); return;
    case DType::kFloat64: static_cast<double*>(data)[index] = value; return;
    case DType::kBFloat16: static_cast<BFloat16*>(data)[index] = ToBFloat16(value); return;
    case DType::kInt64:
      static_cast<std::int64_t*>(data)[index] = Saturate<std::int64_t>(value);
      return;
    case DType::kInt8:
      static_cast<std::int8_t*>(data)[index] = Saturate<std::int8_t>(value);
      return;
    case DType::kFloat16: static_cast<Float16*>(data)[index] = ToFloat16(value);
  }
}

}  // namespace ttr
