// The short convolution of one head of one sequence, compiled for every target.

#include "src/engines/rows/short_conv_kernel.h"

#include <algorithm>
#include <cstddef>

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

template <int K, class T>
HWY_INLINE void ForwardTokens(const ConvTask& task, ConvWeights<T> weights, std::int64_t t,
                              Window<T>& window, T* scratch_y) {
  window.Advance(t + K);
  const std::int64_t before = task.width - 1;
  InputRows<T, K> x;
  for (std::int64_t i = 0; i < before + K; ++i) x[i] = window.Row(t - before + i);
  T* out[K];
  for (int k = 0; k < K; ++k) out[k] = Destination(task.y, t + k, scratch_y + k * task.dim);
  ConvolveRows<K>(task.width, weights, static_cast<const T*>(task.bias), x, task.dim, task.silu,
                  out);
  for (int k = 0; k < K; ++k) Finish(out[k], t + k, task.dim, task.y);
}

template <class T>
void Forward(const ConvTask& task) {
  constexpr int kTogether = static_cast<int>(kConvTogether);
  const std::int64_t slots = task.width + kConvTogether - 1;
  T* const scratch_w = static_cast<T*>(task.scratch);
  T* const scratch_y = scratch_w + task.width * task.dim;
  T* const scratch_x = scratch_y + kConvTogether * task.dim;
  const ConvWeights<T> weights = WeightsOf(task, 0, task.dim, scratch_w);
  Window<T> window(task, task.begin - (task.width - 1), slots, scratch_x);
  std::int64_t t = task.begin;
  for (; t + kTogether <= task.end; t += kTogether) {
    ForwardTokens<kTogether>(task, weights, t, window, scratch_y);
  }
  for (; t < task.end; ++t) ForwardTokens<1>(task, weights, t, window, scratch_y);
}

/// dz of token t, from dy and, under SiLU, from z.
template <class T>
void InnerGradient(const ConvTask& task, ConvWeights<T> weights, std::int64_t t,
                   const Window<T>& window, T* scratch_z, T* dz) {
  sn::LoadRow(task.y, t, 0, task.dim, dz);
  if (!task.silu) return;
  const std::int64_t before = task.width - 1;
  InputRows<T, 1> x;
  for (std::int64_t j = 0; j <= before; ++j) x[j] = window.Row(t - before + j);
  ConvolveRows<1>(task.width, weights, static_cast<const T*>(task.bias), x, task.dim, false,
                  &scratch_z);
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

/// Tokens of a block backwards: dz of the block and of the width - 1 tokens after it, and from that
/// the gradients of weights and inputs.
template <class T>
class BackwardBlock {
 public:
  explicit BackwardBlock(const ConvTask& task)
      : task_(task),
        after_(task.width - 1),
        sum_(static_cast<T*>(task.scratch) + task.width * task.dim),
        z_(sum_ + task.dim),
        dz_(z_ + task.dim),
        weights_(WeightsOf(task, 0, task.dim, static_cast<T*>(task.scratch))),
        window_(task, task.begin - after_, kConvBlock + 2 * after_,
                dz_ + (kConvBlock + after_) * task.dim) {}

  void Run(std::int64_t begin) {
    begin_ = begin;
    end_ = std::min(task_.end, begin + kConvBlock);
    reach_ = std::min(task_.tokens, end_ + after_);
    window_.Advance(reach_);
    for (std::int64_t t = begin; t < reach_; ++t) {
      InnerGradient(task_, weights_, t, window_, z_, Dz(t));
    }
    for (std::int64_t t = begin; t < end_; ++t) AddToParameters(t);
    const ConvColumns& dinitial = task_.gradients.dinitial;
    for (std::int64_t r = 0; begin == 0 && r < dinitial.rows; ++r) {
      InputGradient(r - dinitial.rows);
      StoreColumns<T>(sum_, 0, task_.dim, dinitial.Rows(r, 1));
    }
    for (std::int64_t t = begin; task_.gradients.dx && t < end_; ++t) {
      InputGradient(t);
      sn::StoreRow<T>(sum_, t, 0, task_.dim, task_.gradients.dx);
    }
  }

 private:
  T* Dz(std::int64_t t) const { return dz_ + (t - begin_) * task_.dim; }

  void AddToParameters(std::int64_t t) {
    T* const dweight = static_cast<T*>(task_.gradients.dweight);
    T* const dbias = static_cast<T*>(task_.gradients.dbias);
    if (dbias != nullptr) sn::AddScaled(task_.dim, T(1), static_cast<const T*>(Dz(t)), dbias);
    if (dweight == nullptr) return;
    for (std::int64_t j = 0; j < task_.width; ++j) {
      AddProduct(task_.dim, static_cast<const T*>(Dz(t)), window_.Row(t - after_ + j),
                 dweight + j * task_.gradients.dweight_stride);
    }
  }

  /// Input i, those of the state before 0, reaches tokens i .. i + width - 1, and the final state
  /// if it is one of the last that there are rows for.
  void InputGradient(std::int64_t i) {
    const ConvColumns& dfinal = task_.gradients.dfinal;
    const std::int64_t row = i - (task_.tokens - dfinal.rows);
    if (dfinal && row >= 0) {
      LoadColumns(dfinal.Rows(row, 1), 0, task_.dim, sum_);
    } else {
      std::fill(sum_, sum_ + task_.dim, T(0));
    }
    for (std::int64_t t = std::max(i, begin_); t < std::min(i + task_.width, reach_); ++t) {
      AddProduct(task_.dim, weights_.data + (i + after_ - t) * weights_.stride,
                 static_cast<const T*>(Dz(t)), sum_);
    }
  }

  const ConvTask& task_;
  std::int64_t after_;  // tokens that a token reaches
  T *sum_, *z_, *dz_;
  ConvWeights<T> weights_;
  Window<T> window_;
  std::int64_t begin_ = 0, end_ = 0, reach_ = 0;  // the block, and the end of what it reaches
};

template <class T>
void Backward(const ConvTask& task) {
  BackwardBlock<T> block(task);
  for (std::int64_t begin = task.begin; begin < task.end; begin += kConvBlock) block.Run(begin);
}

/// Channels of a decoded token that are convolved at a time, with their state and weights in the
/// first-level cache.
constexpr std::int64_t kTokenBlock = 64;

template <class T>
void Token(const ConvTask& task) {
  const std::int64_t width = task.width, rows = task.state.rows;
  HWY_ALIGN T inputs[(kMaxTokenRows + 1) * kTokenBlock];  // [rows + 1][count], the token's last
  HWY_ALIGN T scratch_w[kMaxConvWidth * kTokenBlock];
  HWY_ALIGN T scratch_y[kTokenBlock];
  for (std::int64_t begin = 0; begin < task.dim; begin += kTokenBlock) {
    const std::int64_t count = std::min(kTokenBlock, task.dim - begin);
    LoadColumns(task.state, begin, count, inputs);
    sn::LoadRow(task.x, 0, begin, count, inputs + rows * count);
    InputRows<T, 1> x;
    for (std::int64_t j = 0; j < width; ++j) x[j] = inputs + (rows - (width - 1) + j) * count;
    const T* const bias = static_cast<const T*>(task.bias);
    T* out = scratch_y;
    ConvolveRows<1>(width, WeightsOf(task, begin, count, scratch_w),
                    bias == nullptr ? nullptr : bias + begin, x, count, task.silu, &out);
    sn::StoreRow(static_cast<const T*>(out), 0, begin, count, task.y);
    StoreColumns(static_cast<const T*>(inputs + count), begin, count, task.state);
  }
}

/// Leaves the last R inputs in the state: its row r gets token T - R + r. Where a sequence has
/// fewer tokens, rows of the state move up.
template <class T>
void LeaveState(const ConvTask& task) {
  if (task.tokens == 0) return;
  const ConvColumns& state = task.state;
  const ConvColumns x{task.x.data, task.x.dtype, task.tokens, task.x.stride, 1};
  for (std::int64_t r = 0; r < state.rows; ++r) {
    const std::int64_t token = task.tokens - state.rows + r;
    const ConvColumns& from = token < 0 ? state : x;
    const std::int64_t row = token < 0 ? r + task.tokens : token;
    if (from.dtype == state.dtype) {
      CopyColumns(from, row, state, r, task.dim);
    } else {
      T* const scratch = static_cast<T*>(task.scratch);
      LoadColumns(from.Rows(row, 1), 0, task.dim, scratch);
      StoreColumns(static_cast<const T*>(scratch), 0, task.dim, state.Rows(r, 1));
    }
  }
}

void Conv(DType arithmetic, const ConvTask& task) {
  arithmetic == DType::kFloat64 ? Forward<double>(task) : Forward<float>(task);
}
void ConvToken(DType arithmetic, const ConvTask& task) {
  arithmetic == DType::kFloat64 ? Token<double>(task) : Token<float>(task);
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
HWY_EXPORT(ConvToken);
HWY_EXPORT(ConvGradient);
HWY_EXPORT(ConvState);

ConvColumns ConvColumns::Rows(std::int64_t first, std::int64_t count) const {
  ConvColumns part = *this;
  const auto size = static_cast<std::int64_t>(SizeOf(dtype));
  part.data = static_cast<std::byte*>(data) + first * row_stride * size;
  part.rows = count;
  return part;
}

std::int64_t ConvScratch(std::int64_t dim, std::int64_t width, bool backward) {
  const std::int64_t before = width - 1;
  const std::int64_t rows =
      backward ? width + 2 + (kConvBlock + before) + (before + kConvBlock + 2 * before)
               : width + kConvTogether + (before + width + kConvTogether - 1);
  return rows * dim;
}

void RunConv(DType arithmetic, const ConvTask& task) { TTR_DISPATCH(Conv)(arithmetic, task); }

void RunConvToken(DType arithmetic, const ConvTask& task) {
  TTR_DISPATCH(ConvToken)(arithmetic, task);
}

void RunConvGradient(DType arithmetic, const ConvTask& task) {
  TTR_DISPATCH(ConvGradient)(arithmetic, task);
}

void RunConvState(DType arithmetic, const ConvTask& task) {
  TTR_DISPATCH(ConvState)(arithmetic, task);
}

}  // namespace ttr::rows
#endif  // HWY_ONCE
