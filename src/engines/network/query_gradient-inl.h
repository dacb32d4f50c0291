// Back through what queries read. Compiled once for every target.

#if defined(TTR_NETWORK_QUERY_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_QUERY_GRADIENT_INL_H_
#undef TTR_NETWORK_QUERY_GRADIENT_INL_H_
#else
#define TTR_NETWORK_QUERY_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/gradient.h"
#include "src/engines/network/head_gradient-inl.h"
#include "src/engines/network/read-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// Factors of what queries read of some weights, `step` numbers from one query to the next, and
/// their gradients. Null: 1, and no gradient.
template <class T>
struct Share {
  const T* factors = nullptr;
  T* dfactors = nullptr;
  std::int64_t step = 0;

  T Of(std::int64_t i) const { return factors == nullptr ? T(1) : factors[i * step]; }
};

/// docs/networks.md derives what is done here.
template <class T>
class QueryGradient {
 public:
  QueryGradient(const GradientTask& task, const GradientScratch<T>& scratch,
                const BlockKernel<T>& blocks, const HeadGradient<T>& head)
      : options_(task.options),
        shape_(task.shape),
        memory_(task.memory),
        gradients_(task.gradients),
        s_(scratch.forward),
        g_(scratch),
        blocks_(blocks),
        head_(head),
        reader_(task.options, task.shape, task.memory, scratch.forward, blocks) {}

  /// Goes back through queries that each read what its token, or the one before, left: to A, B, the
  /// chunk's x and dz and coefficients.
  void PassTokens(const Chunk& chunk, std::int64_t query) const {
    blocks_.ForTokens(chunk.count, [&](Range rows) HWY_ATTR {
      reader_.Load(chunk, query, rows);
      for (std::int64_t l = 0; l < shape_.depth; ++l) {
        reader_.ReadLayer(chunk, rows, l, g_.Scores(l), s_.scores);
        reader_.Activate(l, rows);
      }
    });
    PassOutputs(chunk, query);
    for (std::int64_t l = shape_.depth - 1; l >= 0; --l) {
      PassScores(chunk, l);
      PassRead(chunk, l);
      PassActivation(chunk, l);
    }
    Store(chunk, query);
  }

  /// Goes back through queries that all read `weights`, and a share of B if it has factors.
  void PassAt(const Chunk& chunk, std::int64_t query, const Weights<T>& weights,
              const Weights<T>& dweights, const Share<T>& of_b) const {
    const bool reads_b = of_b.factors != nullptr;
    blocks_.ForTokens(chunk.count, [&](Range rows) HWY_ATTR {
      reader_.Load(chunk, query, rows);
      reader_.ReadAt(weights, reads_b ? -*of_b.factors : T(0), rows);
    });
    PassOutputs(chunk, query);
    for (std::int64_t l = shape_.depth - 1; l >= 0; --l) {
      for (std::int64_t i = 0; i < chunk.count; ++i) {
        std::fill(g_.queries.u.Row(i), g_.queries.u.Row(i) + shape_.In(l), T(0));
      }
      PassThrough(chunk.count, l, weights[l], {}, dweights[l]);
      if (reads_b) PassThrough(chunk.count, l, s_.state.second[l], of_b, g_.state.second[l]);
      PassActivation(chunk, l);
    }
    Store(chunk, query);
  }

  /// d, the gradient of a key or query as the network sees it, goes to that of token t as it lies
  /// in `from`.
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

 private:
  /// dy becomes the gradient for the last layer's z.
  void PassOutputs(const Chunk& chunk, std::int64_t query) const {
    const std::int64_t count = shape_.value_dim;
    const Rows rows = memory_.y.Of(query);
    T* const standard = s_.row;
    for (std::int64_t i = 0; i < chunk.count; ++i) {
      T *const z = s_.zq[shape_.depth - 1].Row(i), *const d = g_.queries.zq.Row(i);
      sn::LoadRow(rows, chunk.first + i, 0, count, d);
      const T inverse = blocks_.head().Finish(s_.u[0].Row(i), z, standard);
      PassOutputNorm(options_, count, static_cast<const T*>(z), d);
      if (options_.residual) std::copy(d, d + count, g_.queries.residual.Row(i));
      head_.PassFinish(standard, inverse, d);
    }
  }

  /// Goes back from the input of layer l to the output of the layer before.
  void PassActivation(const Chunk& chunk, std::int64_t l) const {
    for (std::int64_t i = 0; l > 0 && i < chunk.count; ++i) {
      std::copy(g_.queries.u.Row(i), g_.queries.u.Row(i) + shape_.In(l), g_.queries.zq.Row(i));
      blocks_.activated().PassBack(s_.zq[l - 1].Row(i), g_.queries.zq.Row(i));
    }
  }

  /// Goes back through the scores of layer l: to u (set), x, dz and the coefficients.
  void PassScores(const Chunk& chunk, std::int64_t l) const {
    if (chunk.count == 1) return PassScore(l);
    const std::int64_t n = chunk.count, steps = shape_.Rows(l);
    TransposeRows(s_.dz[l], n, shape_.Out(l), s_.out_columns);
    blocks_.ForTokens(n, [&](Range queries) HWY_ATTR { PassQueryScores(n, l, queries); });
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    blocks_.ForTokens(n, [&](Range pairs) HWY_ATTR {
      const std::int64_t first = pairs.begin, tiles = TileRows(pairs.count());
      ln::MultiplyStrips<Into::kSubtract>(Left<T>::Transposed(s_.scores.Columns(first)),
                                          g_.queries.zq, tiles, columns, n, g_.ddz[l].Rows(first));
      ln::MultiplyStrips<Into::kAdd>(Left<T>::Transposed(g_.queries.pairs.Columns(first)), s_.u[l],
                                     tiles, steps, n, g_.x[l].Rows(first));
    });
  }

  /// Sets the gradient by u of some queries, and finds the shares that their pairs take of it.
  void PassQueryScores(std::int64_t n, std::int64_t l, Range queries) const {
    const std::int64_t first = queries.begin, tiles = TileRows(queries.count());
    const Block<T> scores = g_.Scores(l), pairs = g_.queries.pairs.Rows(first);
    const Coefficients<T>& d = g_.coefficients;
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(g_.queries.zq.Rows(first)), s_.out_columns, tiles, n,
                                   shape_.Out(l), pairs);
    for (std::int64_t i = first; i < first + tiles; ++i) {
      T* const pair = g_.queries.pairs.Row(i);
      const std::int64_t seen = i < n ? options_.SeenBy(i) : 0;
      for (std::int64_t j = 0; j < seen; ++j) {
        d.Row(seen)[j] -= pair[j] * scores.Row(i)[j];
        pair[j] *= -s_.coefficients.Row(seen)[j];
      }
      std::fill(pair + seen, pair + n, T(0));
    }
    reader_.Weigh(n, queries, scores, s_.scores);
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(pairs), s_.x[l], tiles, shape_.Rows(l), n,
                                   g_.queries.u.Rows(first));
  }

  /// PassScores() for a chunk of one token, whose query sees one pair at most.
  void PassScore(std::int64_t l) const {
    const std::int64_t steps = shape_.Rows(l), columns = shape_.Out(l);
    T* const u = g_.queries.u.data;
    std::fill(u, u + steps, T(0));
    if (options_.SeenBy(0) == 0) return;
    const T factor = *s_.coefficients.Row(1), score = *g_.Scores(l).data;
    const T* const zq = g_.queries.zq.data;
    const T along = sn::Dot(columns, zq, static_cast<const T*>(s_.dz[l].data));
    *g_.coefficients.Row(1) -= along * score;
    sn::AddScaled(columns, -factor * score, zq, g_.ddz[l].data);
    sn::AddScaled(steps, -factor * along, static_cast<const T*>(s_.x[l].data), u);
    sn::AddScaled(steps, -factor * along, static_cast<const T*>(s_.u[l].data), g_.x[l].data);
  }

  /// Goes back through a u A + b u B: to u (added), A, B and the coefficients.
  void PassRead(const Chunk& chunk, std::int64_t l) const {
    const Coefficients<T>&c = s_.coefficients, &d = g_.coefficients;
    const std::int64_t first = options_.SeenBy(0);
    Share<T> of_a;
    if (!options_.plain()) of_a = {c.a + first, d.a + first, 1};
    PassThrough(chunk.count, l, s_.state.weights[l], of_a, g_.state.weights[l]);
    if (!chunk.has_second) return;
    PassThrough(chunk.count, l, s_.state.second[l], {c.b + first, d.b + first, 1},
                g_.state.second[l]);
  }

  /// Goes back through factors u W.
  void PassThrough(std::int64_t n, std::int64_t l, const Block<T>& weights, const Share<T>& share,
                   const Block<T>& dweights) const {
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit), rows = shape_.Rows(l);
    blocks_.PassDown(weights, l, g_.queries.zq, n, s_.below, rows);
    const auto pass = [&](Range of) HWY_ATTR {
      for (std::int64_t i = of.begin; i < of.end; ++i) {
        const T* const down = s_.below.Row(i);
        if (share.dfactors != nullptr) {
          share.dfactors[i * share.step] +=
              sn::Dot(rows, down, static_cast<const T*>(s_.u[l].Row(i)));
        }
        sn::AddScaled(shape_.In(l), share.Of(i), down, g_.queries.u.Row(i));
        ScaleRow(columns, share.Of(i), static_cast<const T*>(g_.queries.zq.Row(i)),
                 s_.scaled.Row(i));
      }
    };
    const bool one_sum = share.dfactors != nullptr && share.step == 0;
    one_sum ? pass({0, n}) : blocks_.ForTokens(n, pass);
    blocks_.AddOuterProducts(l, n, s_.u[l], rows, s_.scaled, dweights);
  }

  void Store(const Chunk& chunk, std::int64_t query) const {
    if (!gradients_.q) return;
    const Rows rows = gradients_.q.Of(query), from = memory_.q.Of(query);
    for (std::int64_t i = 0; i < chunk.count; ++i) {
      T* const d = g_.queries.u.Row(i);
      if (options_.residual)
        AddRow(shape_.value_dim, static_cast<const T*>(g_.queries.residual.Row(i)), d);
      StoreUnit(from, chunk.first + i, s_.u[0].Row(i), options_.scale, d, rows);
    }
  }

  const Options& options_;
  const Shape& shape_;
  const Memory& memory_;
  const MemoryGradients& gradients_;
  const Scratch<T>& s_;
  const GradientScratch<T>& g_;
  const BlockKernel<T>& blocks_;
  const HeadGradient<T>& head_;
  Reader<T> reader_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_QUERY_GRADIENT_INL_H_
