/// What the glue of all row-wise operators shares: rows of tensors, parameters, partial sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/simd/rows.h"
#include "ttr/dtype.h"
#include "ttr/tensor.h"

namespace ttr::rows {

/// Below this many bytes of input a second thread costs more than it brings (some ten
/// microseconds).
inline constexpr std::int64_t kBytesWorthThreads = 1 << 18;

/// Double where the input is, else float.
inline DType ArithmeticOf(const TensorView& x) {
  return x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

/// Rows of head `head` from token `first` of batch `batch` on. Absent views give absent rows.
inline simd::Rows RowsOf(const TensorView& view, std::int64_t batch, std::int64_t first,
                         std::int64_t head) {
  if (!view.defined()) return {};
  const std::int64_t offset =
      batch * view.stride(0) + first * view.stride(1) + head * view.stride(2);
  return {view.as<std::byte>() + offset * static_cast<std::int64_t>(SizeOf(view.dtype())),
          view.dtype(), view.stride(1)};
}

/// A parameter, contiguous and of the arithmetic's type: itself where it is so, else a copy. Its
/// first axis counts heads; one serves all.
class Parameter {
 public:
  Parameter(const TensorView& view, DType arithmetic) : view_(view), heads_(1) {
    if (!view.defined()) return;
    if (view.dtype() != arithmetic || !view.contiguous()) {
      copy_ = Tensor::Copy(view, arithmetic);
      view_ = copy_.view();
    }
    heads_ = view.size(0);
    elements_ = heads_ == 0 ? 0 : view.shape().elements() / heads_;
  }
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// Of one head; null where absent.
  const void* OfHead(std::int64_t head) const {
    if (!view_.defined()) return nullptr;
    const std::int64_t offset = heads_ == 1 ? 0 : head * elements_;
    return view_.as<std::byte>() + offset * static_cast<std::int64_t>(SizeOf(view_.dtype()));
  }

 private:
  TensorView view_;
  Tensor copy_;
  std::int64_t heads_;
  std::int64_t elements_ = 0;
};

/// Gradients of a parameter of `elements` numbers a head, one sum of its own for every task, so
/// that neither threads nor their order matter. Nothing where `gradient` is absent.
class PartialSums {
 public:
  PartialSums(const TensorView& gradient, DType arithmetic, std::int64_t heads,
              std::int64_t tasks_a_head)
      : gradient_(gradient), heads_(heads), tasks_a_head_(tasks_a_head) {
    if (!gradient.defined()) return;
    elements_ = gradient.shape().elements() / gradient.size(0);
    sums_ = Tensor(arithmetic, {heads, tasks_a_head, elements_});
  }

  void* Of(std::int64_t head, std::int64_t task) const {
    if (!gradient_.defined()) return nullptr;
    const std::int64_t offset = (head * tasks_a_head_ + task) * elements_;
    return static_cast<std::byte*>(sums_.data()) +
           offset * static_cast<std::int64_t>(SizeOf(sums_.dtype()));
  }

  /// Writes the sums over all tasks, and over the heads where one parameter serves all.
  void Write() const {
    if (!gradient_.defined()) return;
    if (sums_.dtype() == DType::kFloat64) {
      WriteTotals<double>();
    } else {
      WriteTotals<float>();
    }
  }

 private:
  template <class T>
  void WriteTotals() const {
    const std::int64_t owners = gradient_.size(0);
    Tensor totals(DType::kFloat64, {owners, elements_});
    const T* sum = static_cast<const T*>(sums_.data());
    for (std::int64_t h = 0; h < heads_; ++h) {
      double* const total = static_cast<double*>(totals.data()) + (owners == 1 ? 0 : h) * elements_;
      for (std::int64_t task = 0; task < tasks_a_head_; ++task, sum += elements_) {
        for (std::int64_t i = 0; i < elements_; ++i) total[i] += static_cast<double>(sum[i]);
      }
    }
    CopyInto(TensorView(totals.data(), DType::kFloat64, gradient_.shape()), gradient_);
  }

  TensorView gradient_;
  std::int64_t heads_;
  std::int64_t tasks_a_head_;
  std::int64_t elements_ = 0;
  Tensor sums_;
};

}  // namespace ttr::rows
