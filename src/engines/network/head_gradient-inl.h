// Back through what the last layer leaves to readers and to the loss. Compiled once for every
// target.

#if defined(TTR_NETWORK_HEAD_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_HEAD_GRADIENT_INL_H_
#undef TTR_NETWORK_HEAD_GRADIENT_INL_H_
#else
#define TTR_NETWORK_HEAD_GRADIENT_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/head-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
struct HeadGradient {
  const Head<T>& head;
  T *dln_weight, *dln_bias;  // sums
  T *error, *room;           // [channel]: room

  /// g, the gradient of f(q), becomes that of the last layer's z.
  HWY_INLINE void PassFinish(const T* standard, T inverse, T* g) const {
    if (!head.options.norm) return;
    AddProduct(head.count, static_cast<const T*>(g), standard, dln_weight);
    AddRow(head.count, static_cast<const T*>(g), dln_bias);
    MultiplyRow(head.count, head.ln_weight, g);
    PassBack(head.count, standard, inverse, g);
  }

  /// g, the gradient of the loss's gradient dz, becomes that of z; `of_error` that of f(k) - v.
  ///
  /// With e = f - v, h = weight (.) e, P the projection of PassBack, s the deviation:
  /// dz = P h, and P is its own transpose. Its slope by z goes through z^ and through 1/s.
  HWY_INLINE void PassLoss(const T* x, const T* v, const T* standard, T inverse, const T* dz, T* g,
                           T* of_error) const {
    const std::int64_t n = head.count;
    const bool dot_product = head.options.dot_product;  // e = -v
    std::copy(g, g + n, of_error);
    if (!head.options.norm) {
      if (dot_product) std::fill(g, g + n, T(0));
      return;
    }
    const T channels = static_cast<T>(n);
    FindError(x, v, standard);
    PassBack(n, standard, inverse, of_error);  // now that of h
    AddProduct(n, static_cast<const T*>(of_error), static_cast<const T*>(error), dln_weight);
    MultiplyRow(n, head.ln_weight, of_error);
    if (!dot_product) {
      AddProduct(n, static_cast<const T*>(of_error), standard, dln_weight);
      AddRow(n, static_cast<const T*>(of_error), dln_bias);
    }

    MultiplyRow(n, head.ln_weight, error);  // h
    const T along_h = sn::Dot(n, static_cast<const T*>(error), standard) / channels;
    const T along_g = sn::Dot(n, static_cast<const T*>(g), standard) / channels;
    const T of_inverse = sn::Dot(n, static_cast<const T*>(g), dz) * inverse;
    // The gradient by z^: its share in f, and in the projection.
    ScaleRow(n, -along_h * inverse, static_cast<const T*>(g), room);
    sn::AddScaled(n, -along_g * inverse, static_cast<const T*>(error), room);
    if (!dot_product) AddProduct(n, static_cast<const T*>(of_error), head.ln_weight, room);
    PassBack(n, standard, inverse, room);
    sn::AddScaled(n, -of_inverse / channels, standard, room);
    std::copy(room, room + n, g);
  }

 private:
  /// error <- e
  HWY_INLINE void FindError(const T* x, const T* v, const T* standard) const {
    const std::int64_t n = head.count;
    if (head.options.dot_product) return ScaleRow(n, T(-1), v, error);
    std::copy(standard, standard + n, error);
    MultiplyRow(n, head.ln_weight, error);
    AddRow(n, head.ln_bias, error);
    if (head.options.residual) AddRow(n, x, error);
    sn::AddScaled(n, T(-1), v, error);
  }
};

/// g, the gradient of a key of unit length times `scale`, becomes that of the key. `x`: the key as
/// the network sees it; `length` = scale / sqrt(|key|^2 + 1e-6), or the scale alone.
template <class T>
HWY_INLINE void PassUnit(const Options& options, std::int64_t count, const T* x, double scale,
                         double length, T* g) {
  if (options.normalise_qk && scale != 0) {
    const double along = sn::WideDot(count, x, static_cast<const T*>(g)) / (scale * scale);
    sn::AddScaled(count, static_cast<T>(-along), x, g);
  }
  if (length != 1) sn::Multiply(g, count, static_cast<T>(length));
}

/// g, the gradient of y = z / norm(z), becomes that of z.
template <class T>
HWY_INLINE void PassOutputNorm(const Options& options, std::int64_t count, const T* z, T* g) {
  if (options.output_norm == OutputNorm::kNone) return;
  const double length = options.NormLength(count);
  const double square = sn::SumOfSquares(z, count);
  const double norm = std::sqrt(square / length);
  if (norm == 0) return;
  const double along = sn::WideDot(count, z, static_cast<const T*>(g)) / square;
  sn::AddScaled(count, static_cast<T>(-along), z, g);
  sn::Multiply(g, count, static_cast<T>(1 / norm));
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_HEAD_GRADIENT_INL_H_
