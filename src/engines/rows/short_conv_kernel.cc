// The short convolution of one head of one sequence, compiled for every target.

#include "src/engines/rows/short_conv_kernel.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/rows/short_conv_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/rows/conv_rows-inl.h"
#include "src/engines/rows/row_access-inl.h"
#include "src/simd/elementary-inl.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

template <int W, int K, class T>
HWY_INLINE void ForwardTokens(const ConvTask& task, const T* weights, std::int64_t t,
                              Window<T>& window, T* scratch_y) {
  window.Advance(t + K);
  const T* x[W + K - 1];
  for (int i = 0; i < W + K - 1; ++i) x[i] = window.Row(t - (W - 1) + i);
  T* out[K];
  for (int k = 0; k < K; ++k) out[k] = Destination(task.y, t + k, scratch_y + k * task.dim);
  ConvolveRows<W, K>(weights, static_cast<const T*>(task.bias), x, task.dim, task.silu, out);
  for (int k = 0; k < K; ++k) Finish(out[k], t + k, task.dim, task.y);
}

template <int W, class T>
void ForwardTo(const ConvTask& task) {
  constexpr int kTogether = static_cast<int>(kConvTogether);
  constexpr std::int64_t kSlots = W + kConvTogether - 1;
  T* const scratch_w = static_cast<T*>(task.scratch);
  T* const scratch_y = scratch_w + W * task.dim;
  T* const scratch_x = scratch_y + kConvTogether * task.dim;
  const T* const weights = Weights(task, scratch_w);
  Window<T> window(task, task.begin - (W - 1), kSlots, scratch_x);
  std::int64_t t = task.begin;
  for (; t + kTogether <= task.end; t += kTogether) {
    ForwardTokens<W, kTogether>(task, weights, t, window, scratch_y);
  }
  for (; t < task.end; ++t) ForwardTokens<W, 1>(task, weights, t, window, scratch_y);
}

/// dz of token t, from dy and, under SiLU, from z.
template <int W, class T>
void InnerGradient(const ConvTask& task, const T* weights, std::int64_t t, const Window<T>& window,
                   T* scratch_z, T* dz) {
  sn::LoadRow(task.y, t, 0, task.dim, dz);
  if (!task.silu) return;
  const T* x[W];
  for (int j = 0; j < W; ++j) x[j] = window.Row(t - (W - 1) + j);
  ConvolveRows<W, 1>(weights, static_cast<const T*>(task.bias), x, task.dim, false, &scratch_z);
  const auto slope = [](auto d, auto g, auto z) HWY_ATTR {
    const auto s = sn::Sigmoid(d, z);
    const auto y = hn::Mul(z, s);
    return hn::Mul(g, hn::Add(s, hn::NegMulAdd(y, s, y)));  // s (1 + z (1 - s))
  };
  sn::MapRows(task.dim, dz, slope, static_cast<const T*>(dz), static_cast<const T*>(scratch_z));
}

template <class T>
HWY_INLINE void AddProduct(std::int64_t count, const T* a, const T* b, T* to) {
  const auto add = [](auto, auto u, auto v, auto sum) HWY_ATTR { return hn::MulAdd(u, v, sum); };
  sn::MapRows(count, to, add, a, b, static_cast<const T*>(to));
}

/// Tokens of a block backwards: dz of the block and of the W - 1 tokens behind it, and from that
/// the gradients of weights and inputs.
template <int W, class T>
class BackwardBlock {
 public:
  static constexpr std::int64_t kBehind = W - 1;
  static constexpr std::int64_t kRows = kConvBlock + kBehind;  // of dz

  explicit BackwardBlock(const ConvTask& task)
      : task_(task),
        sum_(static_cast<T*>(task.scratch) + W * task.dim),
        z_(sum_ + task.dim),
        dz_(z_ + task.dim),
        weights_(Weights(task, static_cast<T*>(task.scratch))),
        window_(task, task.begin - kBehind, kRows + kBehind, dz_ + kRows * task.dim) {}

  void Run(std::int64_t begin) {
    begin_ = begin;
    end_ = std::min(task_.end, begin + kConvBlock);
    behind_ = std::min(task_.tokens, end_ + kBehind);
    window_.Advance(behind_);
    for (std::int64_t t = begin; t < behind_; ++t) {
      InnerGradient<W>(task_, weights_, t, window_, z_, Dz(t));
    }
    for (std::int64_t t = begin; t < end_; ++t) AddToParameters(t);
    // Inputs from before the first token on are those of the state.
    for (std::int64_t i = begin == 0 ? -kBehind : begin; i < end_; ++i) {
      const simd::Rows& rows = i < 0 ? task_.gradients.dinitial : task_.gradients.dx;
      if (!rows) continue;
      InputGradient(i);
      sn::StoreRow(sum_, i < 0 ? i + kBehind : i, 0, task_.dim, rows);
    }
  }

 private:
  T* Dz(std::int64_t t) const { return dz_ + (t - begin_) * task_.dim; }

  void AddToParameters(std::int64_t t) {
    T* const dweight = static_cast<T*>(task_.gradients.dweight);
    T* const dbias = static_cast<T*>(task_.gradients.dbias);
    if (dbias != nullptr) sn::AddScaled(task_.dim, T(1), static_cast<const T*>(Dz(t)), dbias);
    if (dweight == nullptr) return;
    for (std::int64_t j = 0; j < W; ++j) {
      AddProduct(task_.dim, static_cast<const T*>(Dz(t)), window_.Row(t - kBehind + j),
                 dweight + j * task_.dim);
    }
  }

  /// Input i reaches tokens i .. i + W - 1, and the final state if it is one of the last W - 1.
  void InputGradient(std::int64_t i) {
    const std::int64_t row = i - (task_.tokens - kBehind);
    if (task_.gradients.dfinal && row >= 0) {
      sn::LoadRow(task_.gradients.dfinal, row, 0, task_.dim, sum_);
    } else {
      std::fill(sum_, sum_ + task_.dim, T(0));
    }
    for (std::int64_t t = std::max(i, begin_); t < std::min(i + W, behind_); ++t) {
      AddProduct(task_.dim, weights_ + (i + kBehind - t) * task_.dim, static_cast<const T*>(Dz(t)),
                 sum_);
    }
  }

  const ConvTask& task_;
  T *sum_, *z_, *dz_;
  const T* weights_;
  Window<T> window_;
  std::int64_t begin_ = 0, end_ = 0, behind_ = 0;  // the block, and the end of what it reaches
};

template <int W, class T>
void BackwardTo(const ConvTask& task) {
  BackwardBlock<W, T> block(task);
  for (std::int64_t begin = task.begin; begin < task.end; begin += kConvBlock) block.Run(begin);
}

/// run(the width as a constant).
template <class Run>
HWY_INLINE void WithWidth(std::int64_t width, const Run& run) {
  switch (width) {
    case 1: return run(std::integral_constant<int, 1>());
    case 2: return run(std::integral_constant<int, 2>());
    case 3: return run(std::integral_constant<int, 3>());
    case 4: return run(std::integral_constant<int, 4>());
    case 5: return run(std::integral_constant<int, 5>());
    case 6: return run(std::integral_constant<int, 6>());
    case 7: return run(std::integral_constant<int, 7>());
    default: return run(std::integral_constant<int, 8>());
  }
}

template <class T>
void Forward(const ConvTask& task) {
  WithWidth(task.width, [&](auto width) HWY_ATTR { ForwardTo<width(), T>(task); });
}

template <class T>
void Backward(const ConvTask& task) {
  WithWidth(task.width, [&](auto width) HWY_ATTR { BackwardTo<width(), T>(task); });
}

/// Row r gets token T - (W - 1) + r; where a sequence has fewer tokens, rows of before move up.
template <class T>
void LeaveState(const ConvTask& task) {
  const auto bytes = static_cast<std::int64_t>(SizeOf(task.state.dtype));
  const auto copy = [&](const simd::Rows& from, std::int64_t from_row, std::int64_t r) {
    if (from.dtype != task.state.dtype) {
      T* const row = static_cast<T*>(task.scratch);
      sn::LoadRow(from, from_row, 0, task.dim, row);
      sn::StoreRow(static_cast<const T*>(row), r, 0, task.dim, task.state);
      return;
    }
    std::memcpy(static_cast<std::byte*>(task.state.data) + r * task.state.stride * bytes,
                static_cast<const std::byte*>(from.data) + from_row * from.stride * bytes,
                static_cast<std::size_t>(task.dim * bytes));
  };
  if (task.tokens == 0) return;
  const std::int64_t first = task.tokens - (task.width - 1);
  for (std::int64_t r = 0; r < task.width - 1; ++r) {
    if (first + r < 0) {
      copy(task.state, r + task.tokens, r);
    } else {
      copy(task.x, first + r, r);
    }
  }
}

void Conv(DType arithmetic, const ConvTask& task) {
  arithmetic == DType::kFloat64 ? Forward<double>(task) : Forward<float>(task);
}
void ConvGradient(DType arithmetic, const ConvTask& task) {
  arithmetic == DType::kFloat64 ? Backward<double>(task) : Backward<float>(task);
}
void ConvState(DType arithmetic, const ConvTask& task) {
  arithmetic == DType::kFloat64 ? LeaveState<double>(task) : LeaveState<float>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::rows {

HWY_EXPORT(Conv);
HWY_EXPORT(ConvGradient);
HWY_EXPORT(ConvState);

std::int64_t ConvScratch(std::int64_t dim, std::int64_t width, bool backward) {
  const std::int64_t before = width - 1;
  const std::int64_t rows =
      backward ? width + 2 + (kConvBlock + before) + (before + kConvBlock + 2 * before)
               : width + kConvTogether + (before + width + kConvTogether - 1);
  return rows * dim;
}

void RunConv(DType arithmetic, const ConvTask& task) { TTR_DISPATCH(Conv)(arithmetic, task); }

void RunConvGradient(DType arithmetic, const ConvTask& task) {
  TTR_DISPATCH(ConvGradient)(arithmetic, task);
}

void RunConvState(DType arithmetic, const ConvTask& task) {
  TTR_DISPATCH(ConvState)(arithmetic, task);
}

}  // namespace ttr::rows
#endif  // HWY_ONCE
