// Gradients of keys and queries through features and unit length. Rows are padded with zeros to
// whole vectors, as are their gradients. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_BACKWARD_INPUTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_BACKWARD_INPUTS_INL_H_
#undef TTR_FAST_WEIGHTS_BACKWARD_INPUTS_INL_H_
#else
#define TTR_FAST_WEIGHTS_BACKWARD_INPUTS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/gather-inl.h"
#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/rows/features_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// A query of which a multiple of another row was taken before its features: the row, and its
/// gradient, which is added to.
template <class T>
struct Correction {
  T factor = 0;
  const T* row = nullptr;
  T* d_row = nullptr;
};

template <class T>
class InputGradient {
 public:
  /// Numbers of room, in rows of whole vectors.
  static std::int64_t Numbers(std::int64_t input_dim, std::int64_t key_stride) {
    return 5 * Stride(input_dim) + key_stride;
  }

  InputGradient(const Options& options, const Memory& memory, const GradientMemory& out,
                std::int64_t key_stride, T* room)
      : options_(options), memory_(memory), out_(out), stride_(Stride(memory.dims.input_dim)) {
    raw_ = room;
    x_ = raw_ + stride_;
    dx_ = x_ + stride_;  // and the scratch of features behind it
    end_ = room + Numbers(memory.dims.input_dim, key_stride);
    if (memory.entries.position)
      position_ = static_cast<std::int64_t>(LoadOne<double>(memory.entries.position, 0));
  }

  /// Behind the room.
  T* end() const { return end_; }

  /// Are keys and queries read as they are?
  bool plain() const { return !options_.normalise_qk && !maps(); }

  /// dL/dx of row `row` of keys or queries, which belongs to `token`, from dL/dphi.
  T* From(const Rows& input, std::int64_t row, std::int64_t token, T* dphi,
          const Correction<T>& correction) {
    const std::int64_t dim = memory_.dims.input_dim;
    LoadRow(input, row, 0, dim, raw_);
    Pad(raw_, dim, stride_);
    const T factor = options_.normalise_qk ? static_cast<T>(sn::UnitFactor(raw_, dim)) : T(1);
    T* dx = dphi;
    if (maps()) {
      for (std::int64_t i = 0; i < dim; ++i) x_[i] = factor * raw_[i];
      if (correction.factor != 0) SubtractMultiple(correction.factor, correction.row, dim, x_);
      ThroughFeatures(token, dphi);
      Pad(dx_, dim, stride_);
      dx = dx_;
    }
    if (correction.factor != 0) SubtractMultiple<T>(correction.factor, dx, dim, correction.d_row);
    return options_.normalise_qk ? ThroughLength(factor, dx) : dx;
  }

 private:
  static std::int64_t Stride(std::int64_t input_dim) { return RoundUp(input_dim, 16); }

  bool maps() const { return options_.features.map != rows::Map::kNone; }

  /// The gradient by raw_ of raw_ / sqrt(|raw_|^2 + 1e-6) = `factor` raw_, from the one `dx` by
  /// that.
  T* ThroughLength(T factor, const T* dx) {
    const hn::ScalableTag<T> d;
    const T along = Dot(raw_, dx, stride_) * factor * factor;
    for (std::int64_t i = 0; i < stride_; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto rest =
          hn::NegMulAdd(hn::Set(d, along), hn::Load(d, raw_ + i), hn::Load(d, dx + i));
      hn::Store(hn::Mul(hn::Set(d, factor), rest), d, dx_ + i);
    }
    return dx_;
  }

  void ThroughFeatures(std::int64_t token, T* dphi) {
    rows::FeatureTask task;
    task.x = {x_, DTypeOf<T>(), 0};
    task.y = {dphi, DTypeOf<T>(), 0};
    task.dx = {dx_, DTypeOf<T>(), 0};
    task.w = memory_.inputs.features_w.data;
    task.b = memory_.inputs.features_b.data;
    task.dw = out_.inputs.features_w.data;
    task.db = out_.inputs.features_b.data;
    task.tokens = 1;
    task.dim = memory_.dims.input_dim;
    task.features = memory_.dims.features;
    task.phi_dim = memory_.dims.feature_dim;
    task.position = position_ + token;
    task.scratch = dx_ + stride_;
    rows::RunFeaturesGradient(DTypeOf<T>(), options_.features, task);
  }

  const Options& options_;
  const Memory& memory_;
  const GradientMemory& out_;
  std::int64_t stride_;
  T *raw_, *x_, *dx_, *end_;  // an input row, as it is and as features meet it, and its gradient
  std::int64_t position_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_INPUTS_INL_H_
