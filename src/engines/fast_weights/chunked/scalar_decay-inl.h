// What a chunk of rows needs once, for all value columns: keys and queries as columns, and the
// small matrices of the chunk. Compiled once for every target.
//
// With a_i the decays of the chunk's rows, h_i the decays that the erasures see, D_ij = prod_{j < l
// <= i} a_l and c_i = prod_{l <= i} a_l:
//
//     lower_ij = -h_i D_{i-1,j} r_i . w_j b_j    j < i    the system of the errors
//     score_ij = scale D_ij q_i . w_j b_j        j <= i   (read before: scale D_{i-1,j}, j < i)
//     read_i   = scale c_i                                (read before: scale c_{i-1})
//
// Products of what lies between, never quotients of running products: no decay overflows, and
// nothing is lost however small c is. Where the decay is a number a row, it multiplies the small
// matrices (this file); where it is a number a channel, it multiplies the keys
// (chunked/channel_decay-inl.h).

#if defined(TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/gather-inl.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/transpose-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// The prepared arrays of one chunk; names as above.
template <class T>
struct Prepared {
  T* erase;    // r as columns; null: nothing is erased
  T* write;    // w as columns; the same array for a plain delta rule
  T* value;    // the key of values that are written apart; null
  T* queries;  // [query]
  // The same two and two, rows of what reads and tokens of what writes, for products in bfloat16;
  // null where there are none.
  std::uint32_t *erase_pairs = nullptr, *query_pairs = nullptr;
  std::uint32_t *write_pairs = nullptr, *value_pairs = nullptr;
  T* lower;
  T* lower_value;   // the same against the keys of values
  T* scores;        // [query]
  T* score_values;  // [query]
  T* read;          // [query]
  T* step;          // b_i; 0 beyond the last row
  T* decay;         // h_i c_{i-1}
  T* to_end;        // D_nj b_j, n the last row
  T* row_decay;     // c_n of every row of the memory; where it is paired, of
  T* turn[4];       // first = turn[0] first + turn[1] second, second = turn[2] .. + turn[3] ..
  T* forgotten;     // not 0 for channels that the chunk begins by forgetting

  Prepared(const Options& options, const Memory& memory, const Scratch<T>& scratch,
           std::int64_t index) {
    const std::int64_t rows = StateRows<T>(options, memory.key_dim) * kChunk;
    const bool own_erase = options.erase != Erase::kKey || options.preconditioned ||
                           options.paired() || options.by_channel();
    constexpr std::int64_t kSquare = kChunk * kChunk;
    write = scratch.keys + 3 * index * rows;
    erase = own_erase ? write + rows : write;
    value = write + 2 * rows;
    queries = scratch.queries + index * memory.queries * rows;
    if (scratch.narrowed.strips != nullptr) {
      erase_pairs = scratch.narrowed.reads + index * (1 + memory.queries) * rows / 2;
      query_pairs = erase_pairs + rows / 2;
      write_pairs = scratch.narrowed.writes + index * rows;
      value_pairs = write_pairs + rows / 2;
    }
    lower = scratch.coefficients + index * Scratch<T>::CoefficientCount(memory.queries);
    lower_value = lower + kSquare;
    scores = lower_value + kSquare;
    score_values = scores + memory.queries * kSquare;
    read = score_values + memory.queries * kSquare;
    step = read + memory.queries * kChunk;
    decay = step + kChunk;
    to_end = decay + kChunk;
    const std::int64_t key_rows = RoundUp(memory.key_dim, kLine<T>);
    for (int i = 0; i < 4; ++i) turn[i] = scratch.turns + (5 * index + i) * key_rows;
    row_decay = turn[0];
    forgotten = scratch.turns + (5 * index + 4) * key_rows;
  }
};

/// out[d kChunk + i] = rows[i stride + d] for the chunk's rows and d < count; zero elsewhere.
/// `reads`: only of rows that are read.
template <class From, class T>
HWY_INLINE void PackColumns(const Memory& memory, const Chunk& chunk, const From* rows,
                            std::int64_t stride, bool reads, const From* zeros, T* out) {
  const From* pointers[kChunk];
  for (std::int64_t i = 0; i < kChunk; ++i) {
    const bool there = i < chunk.rows && (!reads || memory.Reads(chunk.first + i));
    pointers[i] = there ? rows + i * stride : zeros;
  }
  sn::Transpose<kChunk>(pointers, memory.key_dim, out);
}

/// The same of rows that lie, as RowsLie() says, `offset` numbers from where `rows` begin.
template <class T>
HWY_INLINE void PackRows(const Memory& memory, const Chunk& chunk, const Rows& rows,
                         std::int64_t offset, bool reads, const T* zeros, T* out) {
  const std::int64_t at = chunk.first * rows.stride + offset;
  if constexpr (std::is_same_v<T, float>) {
    if (rows.dtype == DType::kBFloat16) {
      const auto* narrow = static_cast<const BFloat16*>(rows.data) + at;
      const auto* none = reinterpret_cast<const BFloat16*>(zeros);
      return PackColumns(memory, chunk, narrow, rows.stride, reads, none, out);
    }
  }
  PackColumns(memory, chunk, static_cast<const T*>(rows.data) + at, rows.stride, reads, zeros, out);
}

/// Zeros below the `used` rows of columns that a memory of `rows` rows has.
template <class T>
HWY_INLINE void PadColumns(T* columns, std::int64_t used, std::int64_t rows) {
  std::fill(columns + used * kChunk, columns + rows * kChunk, T(0));
}

/// Rows i .. i + R, columns j .. j + NV vectors of the product below.
template <int R, int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void GramTile(D d, const T* left, const T* right, std::int64_t key_dim, int i, int j,
                         T* out) {
  ln::Tile<D, R, NV> tile;
  ln::SetZero(d, tile);
  ln::MulAddRows<1, kChunk>(d, left + i, right + j, kChunk, key_dim, tile);
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
  constexpr int kVectors = std::min(kChunk / kLanes, 2);
  constexpr int kRows = std::min(kChunk, ln::kTileRows * 2 / kVectors);
  for (int i = 0; i < kChunk; i += kRows) {
    for (int j = 0; j < i + kRows; j += kVectors * kLanes) {
      GramTile<kRows, kVectors>(d, left, right, key_dim, i, j, out);
    }
  }
}

/// Does a vector hold a row of two chunks' products side by side?
template <class T>
inline constexpr bool kPairsGrams = hn::MaxLanes(hn::ScalableTag<T>()) == 2 * kChunk;

#if HWY_TARGET != HWY_SCALAR

/// The same of two left factors at once.
template <class T>
HWY_INLINE void GramPair(const T* HWY_RESTRICT first, const T* HWY_RESTRICT second,
                         const T* HWY_RESTRICT right, std::int64_t key_dim, T* first_out,
                         T* second_out) {
  const hn::ScalableTag<T> d;
  const hn::Half<decltype(d)> half;
  ln::Tile<decltype(d), kChunk, 1> tile;  // of the products' columns
  ln::SetZero(d, tile);
  for (std::int64_t c = 0; c < key_dim * kChunk; c += kChunk) {
    const auto left = hn::Combine(d, hn::Load(half, second + c), hn::Load(half, first + c));
    TTR_UNROLL
    for (int j = 0; j < kChunk; ++j) {
      tile[j][0] = hn::MulAdd(hn::Set(d, right[c + j]), left, tile[j][0]);
    }
  }
  alignas(kAlignment) T columns[kChunk * 2 * kChunk];
  const T* first_columns[kChunk];
  const T* second_columns[kChunk];
  TTR_UNROLL
  for (int j = 0; j < kChunk; ++j) {
    hn::Store(tile[j][0], d, columns + j * 2 * kChunk);
    first_columns[j] = columns + j * 2 * kChunk;
    second_columns[j] = first_columns[j] + kChunk;
  }
  sn::Transpose<kChunk>(first_columns, kChunk, first_out);
  sn::Transpose<kChunk>(second_columns, kChunk, second_out);
}

#endif  // HWY_TARGET != HWY_SCALAR

/// Turns the Gram matrices in `lower` and `scores` into what their names say.
template <class T>
HWY_INLINE void Weigh(const Options& options, std::int64_t queries, const Gathered<T>& g,
                      const Prepared<T>& out) {
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  constexpr int kVectors = kChunk / kLanes;
  const T factor = static_cast<T>(options.scale);
  const auto scale = hn::Set(d, factor);
  T running = 1;
  for (int i = 0; i < kChunk; ++i) {
    const T before = running;
    running *= g.decay[i];
    out.step[i] = g.step[i];
    out.decay[i] = g.seen[i] * before;
    for (std::int64_t q = 0; q < queries; ++q) {
      out.read[q * kChunk + i] = factor * (options.read_before ? before : running);
    }
  }
  std::fill(out.row_decay, out.row_decay + g.stride, running);
  for (int v = 0; v < kVectors; ++v) {
    const auto column = hn::Iota(d, static_cast<T>(v * kLanes));
    auto products = hn::Zero(d);  // D_ij of row i and these columns
    for (int i = 0; i < kChunk; ++i) {
      const std::int64_t at = i * kChunk + v * kLanes;
      const auto undecayed = products;
      if (options.erases()) {
        const auto weight = hn::Mul(undecayed, hn::Set(d, -g.seen[i]));
        hn::Store(hn::Mul(weight, hn::Load(d, out.lower + at)), d, out.lower + at);
      }
      products = hn::Mul(products, hn::Set(d, g.decay[i]));
      // A lane is 1 from its own row on; before it, whatever it held is dropped here.
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

/// What normalises the keys and queries of a chunk that are packed as they lie. False where one of
/// them is so long, so short or so little of a number that its products would be none.
template <class T>
HWY_INLINE bool FindUnits(const Memory& memory, const Chunk& chunk, T* units) {
  constexpr double kShort = 1e-12, kLong = 1e12;  // squares
  bool fit = true;
  auto find = [&](const Rows& rows, std::int64_t offset, T* to) {
    std::fill(to, to + kChunk, T(1));
    const T* row = static_cast<const T*>(rows.data) + chunk.first * rows.stride + offset;
    for (std::int64_t i = 0; i < chunk.rows; ++i, row += rows.stride) {
      const double square = sn::SumOfSquares(row, memory.key_dim);
      fit = fit && square > kShort && square < kLong;
      to[i] = static_cast<T>(sn::UnitFactorOf(square));
    }
  };
  find(memory.k, 0, units);
  for (std::int64_t q = 0; memory.q && q < memory.queries; ++q) {
    find(memory.q, q * memory.q_head_stride, units + (1 + q) * kChunk);
  }
  return fit;
}

/// Products with rows that were packed as they lie become those with rows of unit length. Columns
/// are left to FoldSteps(): a key that writes is longer, or its step.
template <class T>
HWY_INLINE void FoldUnits(const Options& options, std::int64_t queries, const T* units,
                          const Prepared<T>& out) {
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  auto fold = [&](T unit, T& factor, T* row) HWY_ATTR {
    factor *= unit;
    for (int j = 0; j < kChunk; j += kLanes) {
      hn::Store(hn::Mul(hn::Set(d, unit), hn::Load(d, row + j)), d, row + j);
    }
  };
  for (int i = 0; i < kChunk; ++i) {
    out.step[i] *= units[i];
    if (options.erases()) fold(units[i], out.decay[i], out.lower + i * kChunk);
    for (std::int64_t q = 0; q < queries; ++q) {
      const std::int64_t at = q * kChunk + i;
      fold(units[kChunk + at], out.read[at], out.scores + at * kChunk);
    }
  }
}

/// The steps' part of the small matrices: column j is multiplied with an error, not yet by b_j.
template <class T>
HWY_INLINE void FoldSteps(const Options& options, bool units, std::int64_t queries,
                          const Prepared<T>& out) {
  if (options.step == Step::kOne && !units) return;
  const ChunkTag<T> d;
  constexpr int kLanes = hn::MaxLanes(ChunkTag<T>());
  for (int j = 0; j < kChunk; j += kLanes) {
    const auto step = hn::Load(d, out.step + j);
    auto fold = [&](T* row)
                    HWY_ATTR { hn::Store(hn::Mul(step, hn::Load(d, row + j)), d, row + j); };
    fold(out.to_end);
    for (int i = 0; options.erases() && i < kChunk; ++i) fold(out.lower + i * kChunk);
    for (std::int64_t i = 0; i < queries * kChunk; ++i) fold(out.scores + i * kChunk);
  }
}

/// A decay that is a number a row. Do the rows `lie`, as RowsLie() says? Otherwise they are
/// gathered.
template <class T>
HWY_INLINE void PrepareScalar(const Options& options, const Memory& memory, const Chunk& chunk,
                              bool lie, const Scratch<T>& scratch, const Prepared<T>& out) {
  const Gathered<T>& g = scratch.gathered;
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const std::int64_t columns = g.stride * kChunk;
  const bool pairs = kPairsGrams<T> && options.erases() && queries > 0;
  const T* const zeros = scratch.zeros;
  if (lie) {
    PackRows(memory, chunk, memory.k, 0, false, zeros, out.write);
  } else {
    PackColumns(memory, chunk, g.write, g.stride, false, zeros, out.write);
  }
  PadColumns(out.write, memory.key_dim, g.stride);
  if (options.erases()) {
    if (out.erase != out.write) {
      PackColumns(memory, chunk, g.erase, g.stride, false, zeros, out.erase);
      PadColumns(out.erase, memory.key_dim, g.stride);
    }
    if (!pairs) Gram(out.erase, out.write, memory.key_dim, out.lower);
  }
  for (std::int64_t q = 0; q < queries; ++q) {
    T* query = out.queries + q * columns;
    if (lie) {
      PackRows(memory, chunk, memory.q, q * memory.q_head_stride, true, zeros, query);
    } else {
      PackColumns(memory, chunk, g.query + q * g.query_stride, g.stride, true, zeros, query);
    }
    PadColumns(query, memory.key_dim, g.stride);
    T* scores = out.scores + q * kChunk * kChunk;
#if HWY_TARGET != HWY_SCALAR
    if constexpr (kPairsGrams<T>) {
      if (pairs && q == 0) {
        GramPair(out.erase, query, out.write, memory.key_dim, out.lower, scores);
        continue;
      }
    }
#endif
    Gram(query, out.write, memory.key_dim, scores);
  }
  Weigh(options, queries, g, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
