#include "src/core/working_copy.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace ttr {
namespace {

bool Fits(const TensorView& view, Layout layout) {
  switch (layout) {
    case Layout::kAnyStrides: return true;
    case Layout::kContiguousRows: {
      const int last = view.rank() - 1;
      return last < 0 || view.size(last) == 1 || view.stride(last) == 1;
    }
    case Layout::kContiguous: return view.contiguous();
  }
  return false;
}

template <class T>
void SumSharedHeadsAs(const TensorView& from, const TensorView& to) {
  const std::int64_t group = from.size(2) / to.size(2), dim = to.size(3);
  std::vector<T> sum(static_cast<std::size_t>(dim));
  for (std::int64_t b = 0; b < to.size(0); ++b) {
    for (std::int64_t t = 0; t < to.size(1); ++t) {
      for (std::int64_t h = 0; h < to.size(2); ++h) {
        std::fill(sum.begin(), sum.end(), T(0));
        for (std::int64_t g = h * group; g < (h + 1) * group; ++g) {
          const T* const row =
              from.as<T>() + b * from.stride(0) + t * from.stride(1) + g * from.stride(2);
          for (std::int64_t d = 0; d < dim; ++d) sum[static_cast<std::size_t>(d)] += row[d];
        }
        const std::int64_t offset = b * to.stride(0) + t * to.stride(1) + h * to.stride(2);
        for (std::int64_t d = 0; d < dim; ++d) {
          StoreElement(to.data(), to.dtype(), offset + d * to.stride(3),
                       static_cast<double>(sum[static_cast<std::size_t>(d)]));
        }
      }
    }
  }
}

}  // namespace

WorkingCopy::WorkingCopy(const TensorView& given, DType dtype, Layout layout)
    : given_(given), view_(given) {
  if (!given.defined() || (given.dtype() == dtype && Fits(given, layout))) return;
  Become(Tensor::Copy(given, dtype));
}

WorkingCopy::WorkingCopy(const TensorView& given, Layout layout)
    : WorkingCopy(given, given.dtype(), layout) {}

WorkingCopy::WorkingCopy(const TensorView& given, DType dtype, CallScratch& scratch)
    : given_(given), view_(given), copied_(given.defined() && given.dtype() != dtype) {
  if (copied_) view_ = scratch.Copy(given, dtype);
}

WorkingCopy WorkingCopy::Zeros(const TensorView& given, DType dtype) {
  WorkingCopy copy;
  copy.given_ = given;
  if (given.defined()) copy.Become(Tensor(dtype, given.shape()));
  return copy;
}

WorkingCopy WorkingCopy::OfHeads(const TensorView& given, std::int64_t heads, DType dtype) {
  WorkingCopy copy;
  copy.given_ = copy.view_ = given;
  if (!given.defined() || given.size(2) == heads) return copy;
  copy.Become(Tensor(dtype, {given.size(0), given.size(1), heads, given.size(3)}));
  return copy;
}

void WorkingCopy::Become(Tensor copy) {
  owned_ = std::move(copy);
  view_ = owned_.view();
  copied_ = true;
}

void WorkingCopy::WriteBack() const {
  if (!copied_) return;
  if (view_.shape() == given_.shape()) return CopyInto(view_, given_);
  SumSharedHeads(view_, given_);
}

void SumSharedHeads(const TensorView& from, const TensorView& to) {
  if (from.dtype() == DType::kFloat64) {
    SumSharedHeadsAs<double>(from, to);
  } else {
    SumSharedHeadsAs<float>(from, to);
  }
}

}  // namespace ttr
