// What a chunk of tokens needs once, for all value columns: keys and queries as columns, and the
// small matrices of the chunk. Compiled once for every target.
//
// With g_i the decays of the chunk's tokens, D_ij = prod_{j < l <= i} g_l and c_i = prod_{l <= i}
// g_l:
//
//     lower_ij = -b_i D_ij k_i . k_j             j < i    the system of the innovations
//     score_ij = scale D_ij q_i . k_j            j <= i   (read before: scale D_{i-1,j}, j < i)
//     read_i   = scale c_i                                (read before: scale c_{i-1})
//
// Products of what lies between, never quotients of running products: no gate overflows, and
// nothing is lost however small c is.

#if defined(TTR_FAST_WEIGHTS_PREPARE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_PREPARE_INL_H_
#undef TTR_FAST_WEIGHTS_PREPARE_INL_H_
#else
#define TTR_FAST_WEIGHTS_PREPARE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/rows-inl.h"
#include "src/simd/exp-inl.h"
#include "src/simd/tile-inl.h"
#include "src/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Tokens first .. first + tokens. A gate of zero starts a chunk, whose memory then begins empty:
/// what was not finite is forgotten with the rest, which a multiplication by zero would not do.
struct Chunk {
  std::int64_t first = 0;
  std::int64_t tokens = 0;
  bool forget = false;
};

/// The prepared arrays of one chunk; names as above.
template <class T>
struct Prepared {
  T* keys;
  T* queries;
  T* lower;
  T* scores;
  T* step;    // b_i; 0 beyond the last token
  T* decay;   // c_i
  T* read;    // read_i
  T* to_end;  // D_nj, n the last token

  Prepared(const Memory& memory, const Scratch<T>& scratch, std::int64_t index) {
    const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
    keys = scratch.keys + index * key_rows * kChunk;
    queries = scratch.queries + index * memory.queries * key_rows * kChunk;
    lower = scratch.coefficients + index * Scratch<T>::CoefficientCount(memory.queries);
    scores = lower + kChunk * kChunk;
    step = scores + memory.queries * kChunk * kChunk;
    decay = step + kChunk;
    read = decay + kChunk;
    to_end = read + kChunk;
  }
};

/// The next chunk that starts at token `first`.
inline Chunk NextChunk(const Memory& memory, std::int64_t first) {
  Chunk chunk{first, std::min<std::int64_t>(kChunk, memory.tokens - first), false};
  if (!memory.log_decay) return chunk;
  constexpr double kForget = -std::numeric_limits<double>::infinity();
  chunk.forget = LoadGate<double>(memory.log_decay, first) == kForget;
  for (std::int64_t i = 1; i < chunk.tokens; ++i) {
    if (LoadGate<double>(memory.log_decay, first + i) == kForget) chunk.tokens = i;
  }
  return chunk;
}

/// out[d kChunk + i] = element d of row i of the chunk; zero beyond its tokens and beyond key_dim.
/// Rows are copied first: those of a chunk may lie a power of two apart, where the cache cannot
/// hold all of them while each of their lines is read four times.
template <class T>
HWY_INLINE void PackColumns(const Options& options, const Rows& rows, const Memory& memory,
                            const Chunk& chunk, const Scratch<T>& scratch, T* out) {
  const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
  const T* pointers[kChunk];
  for (std::int64_t i = 0; i < kChunk; ++i) {
    pointers[i] = scratch.zeros;
    if (i >= chunk.tokens) continue;
    T* row = scratch.rows + i * key_rows;
    LoadKey(options, rows, chunk.first + i, memory.key_dim, row);
    pointers[i] = row;
  }
  sn::Transpose<kChunk>(pointers, memory.key_dim, out);
  std::fill(out + memory.key_dim * kChunk, out + key_rows * kChunk, T(0));
}

/// A vector of the chunk's tokens: one of them where the whole chunk is shorter than a vector.
template <class T>
using ChunkTag = hn::CappedTag<T, kChunk>;

/// Rows i .. i + R, columns j .. j + NV vectors of the product below.
template <int R, int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void GramTile(D d, const T* left, const T* right, std::int64_t key_dim, int i, int j,
                         T* out) {
  sn::Tile<D, R, NV> tile;
  sn::SetZero(d, tile);
  sn::MulAddRows<1, kChunk>(d, left + i, right + j, kChunk, key_dim, tile);
  TTR_UNROLL
  for (int r = 0; r < R; ++r) {
    TTR_UNROLL
    for (int v = 0; v < NV; ++v) {
      hn::Store(tile[r][v], d, out + (i + r) * kChunk + j + v * hn::MaxLanes(d));
    }
  }
}

/// out[i kChunk + j] = sum_d left[d kChunk + i] right[d kChunk + j] for j <= i at least: tiles
/// above the diagonal are left out.
template <class T>
HWY_INLINE void Gram(const T* left, const T* right, std::int64_t key_dim, T* out) {
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  if constexpr (kLanes == kChunk && kChunk > 8) {
    const hn::Half<ChunkTag<T>> half;
    GramTile<kChunk / 2, 1>(half, left, right, key_dim, 0, 0, out);
    GramTile<kChunk / 2, 1>(d, left, right, key_dim, kChunk / 2, 0, out);
  } else {
    constexpr int kVectors = std::min(kChunk / kLanes, 2);
    constexpr int kRows = std::min(kChunk, sn::kTileRows * 2 / kVectors);
    for (int i = 0; i < kChunk; i += kRows) {
      for (int j = 0; j < i + kRows; j += kVectors * kLanes) {
        GramTile<kRows, kVectors>(d, left, right, key_dim, i, j, out);
      }
    }
  }
}

/// step[i] = b_i, from the inputs in step[i] and n_i = gram[i kChunk + i].
template <class T>
HWY_INLINE void Steps(const Options& options, std::int64_t tokens, const T* gram, T* step) {
  const ChunkTag<T> d;
  HWY_ALIGN T norms[kChunk];
  for (int i = 0; i < kChunk; ++i) norms[i] = gram[i * kChunk + i];
  const auto one = hn::Set(d, T(1));
  for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
    const auto s = hn::Load(d, step + i);
    const auto n = hn::Load(d, norms + i);
    auto b = s;
    switch (options.step) {
      case Step::kOne: b = one; break;
      case Step::kInput: break;
      case Step::kNlms:
        b = hn::Div(hn::Set(d, static_cast<T>(options.eta)),
                    hn::Add(n, hn::Set(d, static_cast<T>(options.eps))));
        b = hn::IfThenElse(hn::Eq(n, hn::Zero(d)), hn::Zero(d), b);
        break;
      case Step::kLonghorn: b = hn::Div(s, hn::MulAdd(s, n, one)); break;
      case Step::kEfla: b = hn::Mul(s, sn::OneMinusExpOver(d, hn::Mul(s, n))); break;
    }
    hn::Store(b, d, step + i);
  }
  for (std::int64_t i = tokens; i < kChunk; ++i) step[i] = 0;
}

/// The decays g_i of the chunk; 1 beyond its tokens and where it begins by forgetting.
template <class T>
HWY_INLINE void Decays(const Memory& memory, const Chunk& chunk, T* g) {
  if (memory.log_decay) {
    const ChunkTag<T> d;
    for (std::int64_t i = 0; i < kChunk; ++i) {
      g[i] = i < chunk.tokens ? LoadGate<T>(memory.log_decay, chunk.first + i) : T(0);
    }
    if (chunk.forget) g[0] = 0;
    for (std::size_t i = 0; i < kChunk; i += hn::Lanes(d)) {
      hn::Store(sn::ExpNonPositive(d, hn::Load(d, g + i)), d, g + i);
    }
  } else {
    for (std::int64_t i = 0; i < kChunk; ++i) {
      g[i] = i < chunk.tokens ? static_cast<T>(memory.decay_factor) : T(1);
    }
  }
}

/// Turns the Gram matrices in `lower` and `scores` into what their names say.
template <class T>
HWY_INLINE void Weigh(const Options& options, std::int64_t queries, bool solve, const T* g,
                      const Prepared<T>& out) {
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  constexpr int kVectors = kChunk / kLanes;
  const auto scale = hn::Set(d, static_cast<T>(options.scale));
  T running = 1;
  for (int i = 0; i < kChunk; ++i) {
    const T before = running;
    running *= g[i];
    out.decay[i] = running;
    out.read[i] = static_cast<T>(options.scale) * (options.read_before ? before : running);
  }
  for (int v = 0; v < kVectors; ++v) {
    const auto column = hn::Iota(d, static_cast<T>(v * kLanes));
    auto products = hn::Zero(d);  // D_ij of row i and these columns
    for (int i = 0; i < kChunk; ++i) {
      const std::int64_t at = i * kChunk + v * kLanes;
      const auto undecayed = products;
      products = hn::Mul(products, hn::Set(d, g[i]));
      if (solve) {
        const auto factor = hn::Mul(products, hn::Set(d, -out.step[i]));
        hn::Store(hn::Mul(factor, hn::Load(d, out.lower + at)), d, out.lower + at);
      }
      // A lane is 1 from its own token on; before it, whatever it held is dropped here.
      products =
          hn::IfThenElse(hn::Eq(column, hn::Set(d, static_cast<T>(i))), hn::Set(d, T(1)), products);
      const auto weight = hn::Mul(scale, options.read_before ? undecayed : products);
      for (std::int64_t q = 0; q < queries; ++q) {
        T* score = out.scores + q * kChunk * kChunk + at;
        hn::Store(hn::Mul(weight, hn::Load(d, score)), d, score);
      }
    }
    hn::Store(products, d, out.to_end + v * kLanes);
  }
}

template <class T>
HWY_INLINE void Prepare(const Options& options, const Memory& memory, const Chunk& chunk,
                        const Scratch<T>& scratch, const Prepared<T>& out) {
  const bool solve = memory.k && options.write == Write::kDelta;
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
  for (std::int64_t q = 0; q < queries; ++q) {
    Rows rows = memory.q;
    rows.data = static_cast<std::byte*>(rows.data) +
                q * memory.q_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
    PackColumns(options, rows, memory, chunk, scratch, out.queries + q * key_rows * kChunk);
  }
  if (!memory.k) {
    std::fill(out.read, out.read + kChunk, static_cast<T>(options.scale));
    return;
  }
  PackColumns(options, memory.k, memory, chunk, scratch, out.keys);
  if (solve) Gram(out.keys, out.keys, memory.key_dim, out.lower);
  for (std::int64_t q = 0; q < queries; ++q) {
    Gram(out.queries + q * key_rows * kChunk, out.keys, memory.key_dim,
         out.scores + q * kChunk * kChunk);
  }
  for (std::int64_t i = 0; i < kChunk; ++i) {
    out.step[i] =
        memory.step && i < chunk.tokens ? LoadGate<T>(memory.step, chunk.first + i) : T(0);
  }
  Steps(options, chunk.tokens, out.lower, out.step);
  HWY_ALIGN T g[kChunk];
  Decays(memory, chunk, g);
  Weigh(options, queries, solve, g, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_PREPARE_INL_H_
