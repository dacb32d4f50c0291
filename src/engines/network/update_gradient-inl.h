// Back through what a chunk makes of the parameters. Compiled once for every target.

#if defined(TTR_NETWORK_UPDATE_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_UPDATE_GRADIENT_INL_H_
#undef TTR_NETWORK_UPDATE_GRADIENT_INL_H_
#else
#define TTR_NETWORK_UPDATE_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/adapted_gradient-inl.h"
#include "src/engines/network/block-inl.h"
#include "src/engines/network/carried_gradient-inl.h"
#include "src/engines/network/gradient.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// docs/networks.md derives what is done here.
template <class T>
class UpdateGradient {
 public:
  UpdateGradient(const GradientTask& task, const GradientScratch<T>& scratch,
                 const BlockKernel<T>& blocks)
      : options_(task.options),
        shape_(task.shape),
        s_(scratch.forward),
        g_(scratch),
        blocks_(blocks) {}

  /// Goes back through A' = a A + b B - sum c_j g_j, B' = kept B - sum d_j g_j, g_j = x_j dz_j^T.
  void Pass(const Chunk& chunk) const {
    const std::int64_t n = chunk.count;
    const Coefficients<T>& c = s_.coefficients;
    const Coefficients<T>& d = g_.coefficients;
    const bool writes_a = !options_.plain() || chunk.ends;
    const bool writes_b = options_.has_second() && !(options_.plain() && chunk.ends);
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      if (n == 1 && options_.momentum) {
        PassCarried(l);
        continue;
      }
      if (writes_a) PassPairs(l, n, c.Row(n), g_.state.weights[l], d.Row(n));
      if (writes_b) PassPairs(l, n, c.d, g_.state.second[l], d.d);
      const std::int64_t rows = shape_.Rows(l);
      blocks_.ForWeights(rows, [&](Range of) HWY_ATTR { PassRows(chunk, l, of); });
      // Sums run in the order of the rows, so that they do not depend on the team.
      for (std::int64_t r = 0; r < rows; ++r) {
        *d.kept += g_.dots[0][r];
        d.b[n] += g_.dots[1][r];
        d.a[n] += g_.dots[2][r];
      }
    }
  }

  /// Goes back through the step of one token that is adapted a weight. Leaves gradients for its
  /// rates.
  void PassAdapted() const {
    const Rates<T>& rates = s_.rates;
    const AdaptedStep<T> step(options_, rates);
    T dstep = 0, dmean = 0, ddecay = 0;
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      AdaptedGradient<T> gradient(step, s_.dz[l].data, g_.ddz[l].data, shape_.Out(l));
      for (std::int64_t r = 0; r < shape_.Rows(l); ++r) {
        g_.x[l].data[r] += gradient.PassRow(RowOf(l, r), s_.x[l].data[r]);
      }
      dstep += gradient.step();
      dmean += gradient.mean();
      ddecay += gradient.decay();
    }
    const bool coupled = options_.weight_decay == Decay::kCoupled;
    *g_.rates.step = coupled ? dstep - ddecay * *rates.decay : dstep;
    *g_.rates.momentum = dmean;
    *g_.rates.decay = coupled ? -ddecay * *rates.step : -ddecay;
  }

 private:
  typename AdaptedGradient<T>::Row RowOf(std::int64_t l, std::int64_t r) const {
    const bool averages = options_.momentum;
    return {.a = s_.state.weights[l].Row(r),
            .means = averages ? s_.state.second[l].Row(r) : nullptr,
            .squares = s_.state.squares[l].Row(r),
            .da = g_.state.weights[l].Row(r),
            .dmeans = averages ? g_.state.second[l].Row(r) : nullptr,
            .dsquares = g_.state.squares[l].Row(r)};
  }

  /// Goes back through A' and B' of layer l, for one token that is written with momentum.
  void PassCarried(std::int64_t l) const {
    const Coefficients<T>&c = s_.coefficients, &d = g_.coefficients;
    CarriedGradient<T> gradient({c.a[1], c.b[1], *c.Row(1), *c.d, *c.kept}, s_.dz[l].data,
                                g_.ddz[l].data, shape_.Out(l));
    const typename CarriedGradient<T>::Layer weights{s_.state.weights[l], s_.state.second[l],
                                                     g_.state.weights[l], g_.state.second[l]};
    for (std::int64_t r = 0; r < shape_.Rows(l); ++r) {
      g_.x[l].data[r] -= gradient.PassRow(weights, r, s_.x[l].data[r]);
    }
    gradient.AddTo(d.a[1], d.b[1], *d.Row(1), *d.d, *d.kept);
  }

  /// Some rows of A' = a A + b B and B' = kept B, and their shares of gradients for a, b and kept.
  void PassRows(const Chunk& chunk, std::int64_t l, Range of) const {
    const std::int64_t n = chunk.count, columns = shape_.Out(l);
    const Coefficients<T>& c = s_.coefficients;
    const bool writes_a = !options_.plain() || chunk.ends;
    const bool writes_b = options_.has_second() && !(options_.plain() && chunk.ends);
    for (std::int64_t r = of.begin; r < of.end; ++r) {
      T *const a = g_.state.weights[l].Row(r), *const b = g_.state.second[l].Row(r);
      const T *const from_a = s_.state.weights[l].Row(r), *const from_b = s_.state.second[l].Row(r);
      for (T* const dots : g_.dots) dots[r] = 0;
      if (writes_b && chunk.has_second) {
        g_.dots[0][r] = sn::Dot(columns, static_cast<const T*>(b), from_b);
        ScaleRow(columns, *c.kept, static_cast<const T*>(b), b);
      } else if (options_.has_second()) {
        std::fill(b, b + columns, T(0));
      }
      if (!writes_a) continue;
      if (chunk.has_second) {
        g_.dots[1][r] = sn::Dot(columns, static_cast<const T*>(a), from_b);
        sn::AddScaled(columns, c.b[n], static_cast<const T*>(a), b);
      }
      if (options_.plain()) continue;
      g_.dots[2][r] = sn::Dot(columns, static_cast<const T*>(a), from_a);
      ScaleRow(columns, c.a[n], static_cast<const T*>(a), a);
    }
  }

  /// Goes back through the subtraction of sum_j factors_j x_j dz_j^T; `weights` is the gradient by
  /// the difference.
  void PassPairs(std::int64_t l, std::int64_t n, const T* factors, const Block<T>& weights,
                 T* dfactors) const {
    blocks_.PassDown(weights, l, s_.dz[l], n, s_.below);
    blocks_.ForTokens(n, [&](Range of) HWY_ATTR {
      blocks_.Apply(weights, l, s_.x[l], of, s_.scaled);
      for (std::int64_t j = of.begin; j < of.end; ++j) {
        const T* const down = s_.scaled.Row(j);
        dfactors[j] -= sn::Dot(shape_.Out(l), down, static_cast<const T*>(s_.dz[l].Row(j)));
        sn::AddScaled(shape_.Out(l), -factors[j], down, g_.ddz[l].Row(j));
        sn::AddScaled(shape_.In(l), -factors[j], static_cast<const T*>(s_.below.Row(j)),
                      g_.x[l].Row(j));
      }
    });
  }

  const Options& options_;
  const Shape& shape_;
  const Scratch<T>& s_;
  const GradientScratch<T>& g_;
  const BlockKernel<T>& blocks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_UPDATE_GRADIENT_INL_H_
