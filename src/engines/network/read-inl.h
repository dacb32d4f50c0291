// What queries read of the tokens of one mini-batch, without the weights of single tokens. Compiled
// once for every target.

#if defined(TTR_NETWORK_READ_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_READ_INL_H_
#undef TTR_NETWORK_READ_INL_H_
#else
#define TTR_NETWORK_READ_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
class Reader {
 public:
  Reader(const Options& options, const Shape& shape, const Memory& memory,
         const Scratch<T>& scratch, const BlockKernel<T>& blocks)
      : options_(options), shape_(shape), memory_(memory), s_(scratch), blocks_(blocks) {}

  /// Queries of some of the chunk's tokens, of one head.
  void Load(const Chunk& chunk, std::int64_t query, Range of) const {
    const Rows rows = memory_.q.Of(query);
    for (std::int64_t i = of.begin; i < of.end; ++i) {
      LoadKey(options_, rows, chunk.first + i, shape_.key_dim, options_.scale, s_.u[0].Row(i));
    }
  }

  /// What each query reads of the weights that its token, or the one before, leaves: in zq of the
  /// last layer.
  void ReadTokens(const Chunk& chunk, Range rows) const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      ReadLayer(chunk, rows, l, s_.scores, s_.scores);
      Activate(l, rows);
    }
  }

  /// What all of them read of `weights` - row B.
  void ReadAt(const Weights<T>& weights, T row, Range rows) const {
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      blocks_.Apply(weights[l], l, s_.u[l], rows, s_.zq[l]);
      if (row != 0) {
        for (std::int64_t i = rows.begin; i < rows.end; ++i) {
          ScaleRow(shape_.Rows(l), -row, static_cast<const T*>(s_.u[l].Row(i)), s_.scaled.Row(i));
        }
        blocks_.template Apply<Into::kAdd>(s_.state.second[l], l, s_.scaled, rows, s_.zq[l]);
      }
      Activate(l, rows);
    }
  }

  /// zq_l = a u A + b u B - (c (.) u x^T) dz. Leaves u x^T in `scores`, and weighed in `weighed`,
  /// which may be the same.
  void ReadLayer(const Chunk& chunk, Range rows, std::int64_t l, const Block<T>& scores,
                 const Block<T>& weighed) const {
    const Block<T> u = s_.u[l], z = s_.zq[l];
    const Coefficients<T>& c = s_.coefficients;
    const auto scaled = [&](const T* factors) HWY_ATTR {
      for (std::int64_t i = rows.begin; i < rows.end; ++i) {
        ScaleRow(shape_.Rows(l), factors[options_.SeenBy(i)], static_cast<const T*>(u.Row(i)),
                 s_.scaled.Row(i));
      }
      return s_.scaled;
    };
    blocks_.Apply(s_.state.weights[l], l, options_.plain() ? u : scaled(c.a), rows, z);
    if (chunk.has_second) {
      blocks_.template Apply<Into::kAdd>(s_.state.second[l], l, scaled(c.b), rows, z);
    }
    // What a token reads has the same bits, wherever a chunk is cut behind it.
    chunk.count > 1 || chunk.cut ? ReadPairs(chunk.count, rows, l, scores, weighed)
                                 : ReadPair(l, scores, weighed);
  }

  /// to = c (.) scores, of some of as many queries as pairs. What a query does not see may be
  /// anything.
  void Weigh(std::int64_t count, Range rows, const Block<T>& scores, const Block<T>& to) const {
    for (std::int64_t i = rows.begin; i < rows.begin + TileRows(rows.count()); ++i) {
      T* const row = to.Row(i);
      const std::int64_t seen = i < count ? options_.SeenBy(i) : 0;
      const T* const weights = s_.coefficients.Row(seen);
      for (std::int64_t j = 0; j < seen; ++j) row[j] = weights[j] * scores.Row(i)[j];
      std::fill(row + seen, row + count, T(0));
    }
  }

  /// What goes into the layer behind l, if there is one; z becomes act'(z).
  void Activate(std::int64_t l, Range rows) const {
    for (std::int64_t i = rows.begin; l + 1 < shape_.depth && i < rows.end; ++i) {
      T* const z = s_.zq[l].Row(i);
      blocks_.activated().Apply(z, s_.u[l + 1].Row(i), z);
    }
  }

  /// The outputs of some of the chunk's tokens.
  void Store(const Chunk& chunk, std::int64_t query, Range rows) const {
    const Rows y = memory_.y.Of(query);
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      T* const row = s_.zq[shape_.depth - 1].Row(i);
      blocks_.head().Finish(s_.u[0].Row(i), row, nullptr);
      NormaliseOutput(row);
      sn::StoreRow(row, chunk.first + i, 0, shape_.value_dim, y);
    }
  }

 private:
  /// Pairs up to that of row i, of rows that begin with `first`.
  struct Seen {
    std::int64_t first, columns, steps;
    std::int64_t FirstColumn(std::int64_t) const { return 0; }
    std::int64_t FirstStep(std::int64_t) const { return 0; }
    std::int64_t Steps(std::int64_t i, std::int64_t) const {
      return std::min(steps, first + i + ln::kTileRows);
    }
  };

  void ReadPairs(std::int64_t n, Range rows, std::int64_t l, const Block<T>& scores,
                 const Block<T>& weighed) const {
    const std::int64_t first = rows.begin, tiles = TileRows(rows.count());
    ln::MultiplyStrips<Into::kSet>(Left<T>::Of(s_.u[l].Rows(first)), s_.transposed[l], tiles, n,
                                   shape_.Rows(l), scores.Rows(first));
    Weigh(n, rows, scores, weighed);
    const std::int64_t columns = linalg::RoundUp(shape_.Out(l), kUnit);
    ln::Multiply<Into::kSubtract>(Left<T>::Of(weighed.Rows(first)), s_.dz[l], tiles,
                                  Seen{first, columns, n}, s_.zq[l].Rows(first));
  }

  /// ReadPairs() for a chunk of one token, whose query sees one pair.
  void ReadPair(std::int64_t l, const Block<T>& scores, const Block<T>& weighed) const {
    const T* const u = s_.u[l].data;
    *scores.data = sn::Dot(shape_.Rows(l), u, static_cast<const T*>(s_.x[l].data));
    Weigh(1, {0, 1}, scores, weighed);
    sn::AddScaled(shape_.Out(l), -*weighed.data, static_cast<const T*>(s_.dz[l].data),
                  s_.zq[l].data);
  }

  void NormaliseOutput(T* row) const {
    if (options_.output_norm == OutputNorm::kNone) return;
    sn::DivideByNorm(row, shape_.value_dim, options_.NormLength(shape_.value_dim), 0.0);
  }

  const Options& options_;
  const Shape& shape_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const BlockKernel<T>& blocks_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_READ_INL_H_
