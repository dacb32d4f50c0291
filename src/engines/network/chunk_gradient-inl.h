// Back through one chunk of a sequence. Compiled once for every target.

#if defined(TTR_NETWORK_CHUNK_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_CHUNK_GRADIENT_INL_H_
#undef TTR_NETWORK_CHUNK_GRADIENT_INL_H_
#else
#define TTR_NETWORK_CHUNK_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/block-inl.h"
#include "src/engines/network/gradient.h"
#include "src/engines/network/query_gradient-inl.h"
#include "src/engines/network/token-inl.h"
#include "src/engines/network/update_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// docs/networks.md derives what is done here.
template <class T>
class ChunkGradient {
 public:
  ChunkGradient(const GradientTask& task, const GradientScratch<T>& scratch,
                const BlockKernel<T>& blocks, const TokenKernel<T>& tokens)
      : options_(task.options),
        shape_(task.shape),
        memory_(task.memory),
        gradients_(task.gradients),
        s_(scratch.forward),
        g_(scratch),
        blocks_(blocks),
        tokens_(tokens),
        head_{blocks.head(), scratch.ln_weight, scratch.ln_bias, scratch.error, scratch.room},
        update_(task, scratch, blocks),
        queries_(task, scratch, blocks, head_) {}

  /// Parameters before the chunk are in the scratch; gradients for those after it become gradients
  /// for those before.
  void Run(const Chunk& chunk) const {
    if (options_.adapts()) return RunAdapted(chunk);
    const std::int64_t n = chunk.count;
    const Weights<T>& anchor = chunk.has_anchor ? s_.state.anchors : s_.state.weights;
    blocks_.LoadRates(chunk);
    FindCoefficients(options_, chunk, s_.rates, s_.coefficients);
    blocks_.FindGradients(chunk, anchor, &g_.curvatures, &g_.before);
    SetZero(n);
    if (options_.read == Read::kBatchEnd) PassBatch(chunk);
    update_.Pass(chunk);
    if (options_.has_anchors() && !chunk.has_anchor) FoldAnchors();
    const Weights<T>& danchor = chunk.has_anchor ? g_.state.anchors : g_.state.weights;
    for (std::int64_t query = 0; query < memory_.queries; ++query) {
      switch (options_.read) {
        case Read::kAfter:
        case Read::kBefore: queries_.PassTokens(chunk, query); break;
        case Read::kBatchStart: queries_.PassAt(chunk, query, anchor, danchor, {}); break;
        case Read::kBatchEnd: break;
      }
    }
    PassKeys(chunk, anchor, danchor);
    StoreRates(chunk);
  }

  /// Adds dL/dW_bar to dL/dA, where a mini-batch that begins has its W_bar from A.
  void FoldAnchors() const {
    const Weights<T>& anchors = g_.state.anchors;
    AddRow(anchors.numbers(), static_cast<const T*>(anchors.data()), g_.state.weights.data());
    std::fill(anchors.data(), anchors.data() + anchors.numbers(), T(0));
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

  /// Run() for a chunk of one token whose step is adapted a weight.
  void RunAdapted(const Chunk& chunk) const {
    blocks_.LoadRates(chunk);
    blocks_.FindGradients(chunk, s_.state.weights, &g_.curvatures, &g_.before);
    SetZero(1);
    const auto read = [&] {
      for (std::int64_t query = 0; query < memory_.queries; ++query) {
        queries_.PassAt(chunk, query, s_.state.weights, g_.state.weights, {});
      }
    };
    if (options_.read == Read::kAfter) {
      Behind([&] { tokens_.Write(chunk); }, read);
    }
    update_.PassAdapted();
    if (options_.read == Read::kBefore) read();
    PassKeys(chunk, s_.state.weights, g_.state.weights);
    StoreRates(chunk);
  }

  /// use(), while the parameters are what write() makes of them.
  template <class Write, class Use>
  void Behind(const Write& write, const Use& use) const {
    const auto copy = [](const StateBlocks<T>& from, const StateBlocks<T>& to) {
      for (const auto& entry : StateBlocks<T>::kEntries) {
        const Weights<T>&x = from.*entry.blocks, &y = to.*entry.blocks;
        if (x.data() != nullptr && y.data() != nullptr) {
          std::copy(x.data(), x.data() + x.numbers(), y.data());
        }
      }
    };
    copy(s_.state, g_.kept);
    write();
    use();
    copy(g_.kept, s_.state);
  }

  /// Goes back through the queries of a whole mini-batch, where this chunk is the last of it: they
  /// read what the chunk leaves.
  void PassBatch(const Chunk& chunk) const {
    const std::int64_t end = chunk.first + chunk.count;
    if (!chunk.ends && end < memory_.tokens) return;
    Share<T> of_b;
    if (options_.plain() && !chunk.ends) {
      of_b = {s_.coefficients.b + chunk.count, g_.coefficients.b + chunk.count, 0};
    }
    const auto read = [&] {
      for (std::int64_t t = std::max<std::int64_t>(chunk.first - chunk.place, 0); t < end;
           t += kBlock) {
        const Chunk some{.first = t, .count = std::min(kBlock, end - t)};
        for (std::int64_t query = 0; query < memory_.queries; ++query) {
          queries_.PassAt(some, query, s_.state.weights, g_.state.weights, of_b);
        }
      }
    };
    Behind([&] { blocks_.Update(chunk); }, read);
  }

  /// Goes back through the gradients of the loss, then through the network at the keys.
  void PassKeys(const Chunk& chunk, const Weights<T>& anchor, const Weights<T>& danchor) const {
    const std::int64_t n = chunk.count, last = shape_.depth - 1;
    for (std::int64_t l = 1; l <= last; ++l) PassDescent(l, n, anchor[l], danchor[l]);
    for (std::int64_t i = 0; i < n; ++i) {
      T *const d = g_.ddz[last].Row(i), *const error = g_.queries.residual.Row(i);
      head_.PassLoss(s_.x[0].Row(i), s_.v.Row(i), s_.z[last].Row(i), s_.deviations[i],
                     s_.dz[last].Row(i), d, error);
      std::copy(d, d + shape_.value_dim, g_.z[last].Row(i));
    }
    for (std::int64_t l = last; l >= 0; --l) {
      blocks_.PassDown(anchor[l], l, g_.z[l], n, s_.below);
      blocks_.AddOuterProducts(l, n, s_.x[l], shape_.Rows(l), g_.z[l], danchor[l]);
      for (std::int64_t i = 0; i < n; ++i) {
        T* const d = g_.x[l].Row(i);
        AddRow(shape_.In(l), static_cast<const T*>(s_.below.Row(i)), d);
        if (l > 0) {
          blocks_.activated().AddPassedBack(d, s_.z[l - 1].Row(i), g_.z[l - 1].Row(i));
        }
      }
    }
    StoreKeys(chunk);
  }

  /// Goes back through dz_{l-1} = (dz_l W_l^T) (.) act'(z_{l-1}): to dz_l, W_l and z_{l-1} (set).
  void PassDescent(std::int64_t l, std::int64_t n, const Block<T>& weights,
                   const Block<T>& dweights) const {
    const std::int64_t width = shape_.In(l), padded = linalg::RoundUp(shape_.Rows(l), kUnit);
    blocks_.ForTokens(n, [&](Range rows) HWY_ATTR {
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        T* const through = s_.scaled.Row(i);
        blocks_.activated().PassSlope(g_.ddz[l - 1].Row(i), g_.before[l - 1].Row(i),
                                      s_.z[l - 1].Row(i), g_.curvatures[l - 1].Row(i), through,
                                      g_.z[l - 1].Row(i));
        std::fill(through + width, through + padded, T(0));
      }
      if (n > 1) {
        ln::MultiplyStrips<Into::kAdd>(Left<T>::Of(s_.scaled.Rows(rows.begin)), weights,
                                       TileRows(rows.count()), shape_.Out(l), width,
                                       g_.ddz[l].Rows(rows.begin));
      } else {
        AddRows(static_cast<const T*>(s_.scaled.data), static_cast<const T*>(weights.data),
                weights.stride, shape_.Out(l), width, g_.ddz[l].data);
      }
    });
    blocks_.AddOuterProducts(l, n, s_.scaled, width, s_.dz[l], dweights);
  }

  void StoreKeys(const Chunk& chunk) const {
    for (std::int64_t i = 0; i < chunk.count; ++i) {
      T *const error = g_.queries.residual.Row(i), *const d = g_.x[0].Row(i);
      const bool adds = options_.residual && !options_.dot_product;
      if (adds) AddRow(shape_.value_dim, static_cast<const T*>(error), d);
      if (gradients_.k) {
        queries_.StoreUnit(memory_.k, chunk.first + i, s_.x[0].Row(i), 1, d, gradients_.k);
      }
      if (!gradients_.v) continue;
      sn::Multiply(error, shape_.value_dim, T(-1));
      sn::StoreRow(error, chunk.first + i, 0, shape_.value_dim, gradients_.v);
    }
  }

  void StoreRates(const Chunk& chunk) const {
    if (!options_.adapts()) {
      PassCoefficients(options_, chunk, s_.rates, s_.coefficients, g_.coefficients, g_.rates);
    }
    const auto store = [&](const Rows& to, const T* from) {
      for (std::int64_t i = 0; to && i < chunk.count; ++i) {
        sn::StoreRow(from + i, chunk.first + i, 0, 1, to);
      }
    };
    store(gradients_.step, g_.rates.step);
    store(gradients_.momentum, g_.rates.momentum);
    store(gradients_.weight_decay, g_.rates.decay);
    for (std::int64_t r = 0; options_.inverse_rows && r <= chunk.count; ++r) {
      const std::int64_t place = chunk.place + r - 1;
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
  const TokenKernel<T>& tokens_;
  HeadGradient<T> head_;
  UpdateGradient<T> update_;
  QueryGradient<T> queries_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_CHUNK_GRADIENT_INL_H_
