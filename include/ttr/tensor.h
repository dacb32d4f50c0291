/// Tensors: a view of memory that somebody owns, and a plain owner.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "ttr/dtype.h"

namespace ttr {

inline constexpr int kMaxRank = 4;

/// Sizes of up to four dimensions; 64-bit, so that tensors above 2^31 elements work.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes);
  explicit Shape(std::span<const std::int64_t> sizes);

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const { return sizes_[static_cast<std::size_t>(axis)]; }
  std::int64_t elements() const;
  bool operator==(const Shape&) const = default;

  /// "[2, 64, 4, 128]"
  std::string ToString() const;

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

/// Memory that somebody else owns, seen as a tensor. Strides are counted in elements; any are
/// allowed (0 for a broadcast input too), but the last axis of per-token inputs is contiguous.
/// A default view is "absent": `defined()` is false.
class TensorView {
 public:
  TensorView() = default;

  /// Contiguous, row major. `data` may be null when the shape holds no element.
  TensorView(void* data, DType dtype, const Shape& shape);
  TensorView(void* data, DType dtype, const Shape& shape, std::span<const std::int64_t> strides);

  /// Views of read-only memory: ttr never writes through an input.
  TensorView(const void* data, DType dtype, const Shape& shape)
      : TensorView(const_cast<void*>(data), dtype, shape) {}

  template <class T>
  static TensorView Of(T* data, const Shape& shape) {
    return TensorView(const_cast<std::remove_const_t<T>*>(data), DTypeOf<std::remove_const_t<T>>(),
                      shape);
  }

  bool defined() const { return defined_; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int rank() const { return shape_.rank(); }
  std::int64_t size(int axis) const { return shape_[axis]; }
  std::int64_t stride(int axis) const { return strides_[static_cast<std::size_t>(axis)]; }
  bool contiguous() const;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  /// The element at an index, widened to double. For tests, the definition and tools; kernels
  /// use pointers.
  double At(std::initializer_list<std::int64_t> index) const;
  void Set(std::initializer_list<std::int64_t> index, double value) const;

  /// Rows begin .. begin + count of one axis; shares memory.
  TensorView Slice(int axis, std::int64_t begin, std::int64_t count) const;

 private:
  std::int64_t Offset(std::initializer_list<std::int64_t> index) const;

  void* data_ = nullptr;
  Shape shape_;
  std::array<std::int64_t, kMaxRank> strides_{};
  DType dtype_ = DType::kFloat32;
  bool defined_ = false;
};

/// Copies every element of `from` into `to`, converting; shapes are equal.
void CopyInto(const TensorView& from, const TensorView& to);

/// Reads or writes one element of `dtype` at `data` as double.
double LoadElement(const void* data, DType dtype, std::int64_t index);
void StoreElement(void* data, DType dtype, std::int64_t index, double value);

/// A contiguous tensor that owns its memory, 64-byte aligned and set to zero. Copies are deep.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, const Shape& shape);

  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  /// Leaves `other` absent.
  Tensor(Tensor&& other) noexcept
      : memory_(std::move(other.memory_)), view_(std::exchange(other.view_, {})) {}
  Tensor& operator=(Tensor&& other) noexcept {
    memory_ = std::move(other.memory_);
    view_ = std::exchange(other.view_, {});
    return *this;
  }

  /// A contiguous copy of a view, converted to `dtype` if given.
  static Tensor Copy(const TensorView& view);
  static Tensor Copy(const TensorView& view, DType dtype);

  bool defined() const { return view_.defined(); }
  DType dtype() const { return view_.dtype(); }
  const Shape& shape() const { return view_.shape(); }
  std::int64_t elements() const { return view_.shape().elements(); }
  std::int64_t bytes() const {
    return elements() * static_cast<std::int64_t>(SizeOf(view_.dtype()));
  }
  const TensorView& view() const { return view_; }
  operator TensorView() const { return view_; }  // NOLINT: a tensor is used where a view is asked

  void* data() const { return view_.data(); }
  template <class T>
  std::span<T> as() const {
    return {view_.as<T>(), static_cast<std::size_t>(elements())};
  }

 private:
  struct Free {
    void operator()(void* memory) const;
  };
  std::unique_ptr<void, Free> memory_;
  TensorView view_;
};

}  // namespace ttr
