// Back through one part of a sequence. Compiled once for every target.

#if defined(TTR_NETWORK_PART_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_PART_GRADIENT_INL_H_
#undef TTR_NETWORK_PART_GRADIENT_INL_H_
#else
#define TTR_NETWORK_PART_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/block-inl.h"
#include "src/engines/network/gradient.h"
#include "src/engines/network/head_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// docs/networks.md derives what is done here.
template <class T>
class PartGradient {
 public:
  PartGradient(const GradientTask& task, const GradientScratch<T>& scratch,
               const BlockKernel<T>& blocks)
      : options_(task.options),
        shape_(task.shape),
        memory_(task.memory),
        gradients_(task.gradients),
        s_(scratch.forward),
        g_(scratch),
        blocks_(blocks),
        head_{blocks.head(), scratch.ln_weight, scratch.ln_bias, scratch.error, scratch.moved} {}

  /// Parameters before the part are in the scratch; gradients for those after it become gradients
  /// for those before.
  void Run(const Part& part) {
    const std::int64_t n = part.count;
    const Weights<T>& anchor = part.has_anchor ? s_.anchor : s_.a;
    blocks_.LoadPairs(part);
    FindCoefficients(options_, part, s_.rates, s_.coefficients);
    blocks_.FindGradients(anchor, n, &g_.bends, &g_.before);
    SetZero(n);
    PassUpdate(part);
    if (options_.has_anchors() && !part.has_anchor) FoldAnchor();
    for (std::int64_t query = 0; query < memory_.queries; ++query) PassQueries(part, query);
    PassKeys(part, anchor, part.has_anchor ? g_.anchor : g_.a);
    StoreRates(part);
  }

 private:
  void SetZero(std::int64_t n) const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      for (const TokenRows<T>* rows : {&g_.ddz, &g_.x}) {
        const Block<T> block = (*rows)[l];
        std::fill(block.data, block.Row(TileRows(n)), T(0));
      }
    }
    const Coefficients<T>& d = g_.coefficients;
    std::fill(d.a, d.a + n + 1, T(0));
    std::fill(d.b, d.b + n + 1, T(0));
    std::fill(d.d, d.d + n, T(0));
    std::fill(d.c, d.Row(n) + n, T(0));
    *d.kept = 0;
  }

  /// Through A' = a A + b B - sum c_j g_j and B' = kept B - sum d_j g_j, g_j = x_j dz_j^T.
  void PassUpdate(const Part& part) const {
    const std::int64_t n = part.count;
    const Coefficients<T>& c = s_.coefficients;
    const Coefficients<T>& d = g_.coefficients;
    const bool writes_a = !options_.plain() || part.ends;
    const bool writes_b = options_.has_second() && !(options_.plain() && part.ends);
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      if (writes_a) PassPairs(l, n, c.Row(n), g_.a[l], d.Row(n));
      if (writes_b) PassPairs(l, n, c.d, g_.b[l], d.d);
      const std::int64_t columns = shape_.Out(l);
      for (std::int64_t r = 0; r < shape_.Rows(l); ++r) {
        T *const a = g_.a[l].Row(r), *const b = g_.b[l].Row(r);
        const T *const from_a = s_.a[l].Row(r), *const from_b = s_.b[l].Row(r);
        const bool keeps = writes_b && part.has_second;
        if (keeps) {
          *d.kept += sn::Dot(columns, static_cast<const T*>(b), from_b);
          ScaleRow(columns, *c.kept, static_cast<const T*>(b), b);
        } else if (options_.has_second()) {
          std::fill(b, b + columns, T(0));
        }
        if (!writes_a) continue;
        if (part.has_second) {
          d.b[n] += sn::Dot(columns, static_cast<const T*>(a), from_b);
          sn::AddScaled(columns, c.b[n], static_cast<const T*>(a), b);
        }
        if (options_.plain()) continue;
        d.a[n] += sn::Dot(columns, static_cast<const T*>(a), from_a);
        ScaleRow(columns, c.a[n], static_cast<const T*>(a), a);
      }
    }
  }

  /// Of sum_j factors_j x_j dz_j^T, taken off, where `weights` is the gradient.
  void PassPairs(std::int64_t l, std::int64_t n, const T* factors, const Block<T>& weights,
                 T* dfactors) const {
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(s_.x[l]), weights, TileRows(n), shape_.Out(l),
                                   shape_.Rows(l), s_.scaled);
    blocks_.PassDown(weights, l, s_.dz[l], n, s_.other);
    for (std::int64_t j = 0; j < n; ++j) {
      const T* const down = s_.scaled.Row(j);
      dfactors[j] -= sn::Dot(shape_.Out(l), down, static_cast<const T*>(s_.dz[l].Row(j)));
      sn::AddScaled(shape_.Out(l), -factors[j], down, g_.ddz[l].Row(j));
      sn::AddScaled(shape_.In(l), -factors[j], static_cast<const T*>(s_.other.Row(j)),
                    g_.x[l].Row(j));
    }
  }

  /// A mini-batch that begins with this part has its W_bar from A.
  void FoldAnchor() const {
    T* const anchor = g_.anchor.data();
    AddRow(g_.anchor.numbers(), static_cast<const T*>(anchor), g_.a.data());
    std::fill(anchor, anchor + g_.anchor.numbers(), T(0));
  }

  void PassQueries(const Part& part, std::int64_t query) const {
    const std::int64_t n = part.count, last = shape_.depth - 1;
    blocks_.LoadQueries(part, query);
    for (std::int64_t l = 0; l <= last; ++l) {
      blocks_.ReadLayer(part, l, n, g_.Scores(l), s_.scores);
      for (std::int64_t i = 0; l < last && i < n; ++i) {
        T* const z = s_.zq[l].Row(i);
        ActivateRow(options_.activation, shape_.Out(l), z, s_.u[l + 1].Row(i), z);
      }
    }
    PassOutputs(part, query);
    for (std::int64_t l = last; l >= 0; --l) {
      PassScores(part, l);
      PassRead(part, l);
      for (std::int64_t i = 0; l > 0 && i < n; ++i) {
        std::copy(g_.u.Row(i), g_.u.Row(i) + shape_.In(l), g_.zq.Row(i));
        MultiplyRow(shape_.In(l), s_.zq[l - 1].Row(i), g_.zq.Row(i));
      }
    }
    StoreQueries(part, query);
  }

  /// dy becomes the gradient for the last layer's z.
  void PassOutputs(const Part& part, std::int64_t query) const {
    const std::int64_t count = shape_.value_dim;
    const Rows rows = memory_.y.Of(query);
    T* const standard = s_.row;
    for (std::int64_t i = 0; i < part.count; ++i) {
      T *const z = s_.zq[shape_.depth - 1].Row(i), *const d = g_.zq.Row(i);
      sn::LoadRow(rows, part.first + i, 0, count, d);
      const T inverse = blocks_.head().Finish(s_.u[0].Row(i), z, standard);
      PassOutputNorm(options_, count, static_cast<const T*>(z), d);
      if (options_.residual) std::copy(d, d + count, g_.passed.Row(i));
      head_.PassFinish(standard, inverse, d);
    }
  }

  /// Through the scores of layer l: to u (set), x, dz and the coefficients.
  void PassScores(const Part& part, std::int64_t l) const {
    const std::int64_t n = part.count, rows = TileRows(n), steps = shape_.Rows(l);
    const std::int64_t after = options_.read_before ? 0 : 1;
    const Block<T> scores = g_.Scores(l);
    const Coefficients<T>& d = g_.coefficients;
    Turn(s_.dz[l], n, shape_.Out(l), s_.across);
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(g_.zq), s_.across, rows, n, shape_.Out(l), g_.pairs);
    for (std::int64_t i = 0; i < rows; ++i) {
      T* const pair = g_.pairs.Row(i);
      const std::int64_t seen = i < n ? i + after : 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        d.Row(seen)[j] -= pair[j] * scores.Row(i)[j];
        pair[j] *= -s_.coefficients.Row(seen)[j];
      }
      std::fill(pair + seen, pair + n, T(0));
    }
    blocks_.Weigh(n, scores, s_.scores);
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    ln::MultiplyStrips<Into::kSubtract>(Left<T>::Transposed(s_.scores), g_.zq, rows, columns, n,
                                        g_.ddz[l]);
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(g_.pairs), s_.x[l], rows, steps, n, g_.u);
    ln::MultiplyStrips<Into::kAdd>(Left<T>::Transposed(g_.pairs), s_.u[l], rows, steps, n, g_.x[l]);
  }

  /// Through a u A + b u B: to u (added), A, B and the coefficients.
  void PassRead(const Part& part, std::int64_t l) const {
    const Coefficients<T>& d = g_.coefficients;
    const bool whole = options_.plain();
    PassThrough(part, l, s_.a[l], whole ? nullptr : s_.coefficients.a, whole ? nullptr : d.a,
                g_.a[l]);
    if (part.has_second) PassThrough(part, l, s_.b[l], s_.coefficients.b, d.b, g_.b[l]);
  }

  /// Through factors u W, factors null: 1.
  void PassThrough(const Part& part, std::int64_t l, const Block<T>& weights, const T* factors,
                   T* dfactors, const Block<T>& dweights) const {
    const std::int64_t n = part.count, after = options_.read_before ? 0 : 1;
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    blocks_.PassDown(weights, l, g_.zq, n, s_.other, shape_.Rows(l));
    for (std::int64_t i = 0; i < n; ++i) {
      const T factor = factors == nullptr ? T(1) : factors[i + after];
      const T* const down = s_.other.Row(i);
      if (dfactors != nullptr) {
        dfactors[i + after] += sn::Dot(shape_.Rows(l), down, static_cast<const T*>(s_.u[l].Row(i)));
      }
      sn::AddScaled(shape_.In(l), factor, down, g_.u.Row(i));
      ScaleRow(columns, factor, static_cast<const T*>(g_.zq.Row(i)), s_.scaled.Row(i));
    }
    ln::MultiplyStrips<Into::kAdd>(Left<T>::Transposed(s_.u[l]), s_.scaled,
                                   TileRows(shape_.Rows(l)), columns, n, dweights);
  }

  void StoreQueries(const Part& part, std::int64_t query) const {
    if (!gradients_.q) return;
    const Rows rows = gradients_.q.Of(query), from = memory_.q.Of(query);
    for (std::int64_t i = 0; i < part.count; ++i) {
      T* const d = g_.u.Row(i);
      if (options_.residual) AddRow(shape_.value_dim, static_cast<const T*>(g_.passed.Row(i)), d);
      StoreUnit(from, part.first + i, s_.u[0].Row(i), options_.scale, d, rows);
    }
  }

  void StoreUnit(const Rows& from, std::int64_t t, const T* x, double scale, T* d,
                 const Rows& to) const {
    double length = scale;
    if (options_.normalise_qk) {
      sn::LoadRow(from, t, 0, shape_.key_dim, s_.row);
      length *= sn::UnitFactor(s_.row, shape_.key_dim);
    }
    PassUnit(options_, shape_.key_dim, x, scale, length, d);
    sn::StoreRow(d, t, 0, shape_.key_dim, to);
  }

  /// Through the gradients of the loss, then through the network at the keys.
  void PassKeys(const Part& part, const Weights<T>& anchor, const Weights<T>& danchor) const {
    const std::int64_t n = part.count, last = shape_.depth - 1;
    for (std::int64_t l = 1; l <= last; ++l) PassDescent(l, n, anchor[l], danchor[l]);
    for (std::int64_t i = 0; i < n; ++i) {
      T *const d = g_.ddz[last].Row(i), *const error = g_.passed.Row(i);
      head_.PassLoss(s_.x[0].Row(i), s_.v.Row(i), s_.z[last].Row(i), s_.deviations[i],
                     s_.dz[last].Row(i), d, error);
      std::copy(d, d + shape_.value_dim, g_.z[last].Row(i));
    }
    for (std::int64_t l = last; l >= 0; --l) {
      blocks_.PassDown(anchor[l], l, g_.z[l], n, s_.other);
      AddOuterProducts(l, n, s_.x[l], shape_.Rows(l), g_.z[l], danchor[l]);
      for (std::int64_t i = 0; i < n; ++i) {
        T* const d = g_.x[l].Row(i);
        AddRow(shape_.In(l), static_cast<const T*>(s_.other.Row(i)), d);
        if (l > 0) {
          AddProduct(shape_.In(l), static_cast<const T*>(d),
                     static_cast<const T*>(s_.z[l - 1].Row(i)), g_.z[l - 1].Row(i));
        }
      }
    }
    StoreKeys(part);
  }

  /// Through dz_{l-1} = (dz_l W_l^T) (.) act'(z_{l-1}): to dz_l, W_l and z_{l-1} (set).
  void PassDescent(std::int64_t l, std::int64_t n, const Block<T>& weights,
                   const Block<T>& dweights) const {
    const std::int64_t width = shape_.In(l), padded = linalg::RoundUp(shape_.Rows(l), kUnit);
    for (std::int64_t i = 0; i < n; ++i) {
      T *const d = g_.ddz[l - 1].Row(i), *const through = s_.scaled.Row(i);
      std::copy(d, d + width, g_.z[l - 1].Row(i));
      MultiplyRow(width, g_.before[l - 1].Row(i), g_.z[l - 1].Row(i));
      MultiplyRow(width, g_.bends[l - 1].Row(i), g_.z[l - 1].Row(i));
      std::copy(d, d + width, through);
      MultiplyRow(width, s_.z[l - 1].Row(i), through);
      std::fill(through + width, through + padded, T(0));
    }
    ln::MultiplyStrips<Into::kAdd>(Left<T>::Of(s_.scaled), weights, TileRows(n), shape_.Out(l),
                                   width, g_.ddz[l]);
    AddOuterProducts(l, n, s_.scaled, width, s_.dz[l], dweights);
  }

  /// to += sum_i left_i right_i^T, rows of the left of `rows` numbers.
  void AddOuterProducts(std::int64_t l, std::int64_t n, const Block<T>& left, std::int64_t rows,
                        const Block<T>& right, const Block<T>& to) const {
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    ln::MultiplyStrips<Into::kAdd>(Left<T>::Transposed(left), right, TileRows(rows), columns, n,
                                   to);
  }

  void StoreKeys(const Part& part) const {
    for (std::int64_t i = 0; i < part.count; ++i) {
      T *const error = g_.passed.Row(i), *const d = g_.x[0].Row(i);
      if (options_.residual) AddRow(shape_.value_dim, static_cast<const T*>(error), d);
      if (gradients_.k) StoreUnit(memory_.k, part.first + i, s_.x[0].Row(i), 1, d, gradients_.k);
      if (!gradients_.v) continue;
      sn::Multiply(error, shape_.value_dim, T(-1));
      sn::StoreRow(error, part.first + i, 0, shape_.value_dim, gradients_.v);
    }
  }

  void StoreRates(const Part& part) const {
    PassCoefficients(options_, part, s_.rates, s_.coefficients, g_.coefficients, g_.rates);
    const auto store = [&](const Rows& to, const T* from) {
      for (std::int64_t i = 0; to && i < part.count; ++i) {
        sn::StoreRow(from + i, part.first + i, 0, 1, to);
      }
    };
    store(gradients_.step, g_.rates.step);
    store(gradients_.momentum, g_.rates.momentum);
    store(gradients_.weight_decay, g_.rates.decay);
    for (std::int64_t r = 0; options_.inverse_rows && r <= part.count; ++r) {
      const std::int64_t place = part.place + r - 1;
      // A factor that is clipped at 0 has no slope.
      if (place >= 0 && s_.rates.row[r] > 0) g_.row_bias[place] += g_.rates.row[r];
    }
  }

  const Options& options_;
  const Shape& shape_;
  const Memory& memory_;
  const MemoryGradients& gradients_;
  const Scratch<T>& s_;
  const GradientScratch<T>& g_;
  const BlockKernel<T>& blocks_;
  HeadGradient<T> head_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_PART_GRADIENT_INL_H_
