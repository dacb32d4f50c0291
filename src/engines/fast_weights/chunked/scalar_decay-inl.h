// A chunk whose decay is a number a row: the decays multiply the small matrices of the chunk.
// Compiled once for every target.
//
// With a_i the decays of the chunk's rows, h_i the decays that the erasures see, D_ij = prod_{j < l
// <= i} a_l and c_i = prod_{l <= i} a_l:
//
//     lower_ij = -h_i D_{i-1,j} r_i . w_j b_j    j < i    the system of the errors
//     score_ij = scale D_ij q_i . w_j b_j        j <= i   (read before: scale D_{i-1,j}, j < i)
//     read_i   = scale c_i                                (read before: scale c_{i-1})
//
// D are products of the decays between, never quotients of running products: no decay overflows,
// and nothing is lost however small c is. A decay that is a number a channel multiplies the keys
// instead (chunked/channel_decay-inl.h).

#if defined(TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/columns-inl.h"
#include "src/engines/fast_weights/chunked/prepared.h"
#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/operands/gather-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Turns the Gram matrices in `lower` and `scores` into the matrices of the equations above.
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

/// What normalises keys and queries of a chunk that are used in place. False where the first row
/// has a key or query so long or so short, or NaN, that its products would overflow, vanish or be
/// NaN. The chunk ends where that changes, so that a row's treatment does not depend on other rows.
template <class T>
HWY_INLINE bool FindUnits(const Memory& memory, Chunk& chunk, T* units) {
  constexpr double kShort = 1e-12, kLong = 1e12;  // squares
  bool fits[kChunk];
  std::fill(fits, fits + kChunk, true);
  auto find = [&](const Rows& rows, std::int64_t offset, T* to) {
    std::fill(to, to + kChunk, T(1));
    const T* row = static_cast<const T*>(rows.data) + chunk.first * rows.stride + offset;
    for (std::int64_t i = 0; i < chunk.rows; ++i, row += rows.stride) {
      const double square = sn::SumOfSquares(row, memory.dims.key_dim);
      fits[i] = fits[i] && square > kShort && square < kLong;
      to[i] = static_cast<T>(sn::UnitFactorOf(square));
    }
  };
  find(memory.inputs.k, 0, units);
  const std::int64_t readers = memory.inputs.q ? memory.dims.queries : 0;
  for (std::int64_t q = 0; q < readers; ++q) {
    find(memory.inputs.q, q * memory.q_head_stride, units + (1 + q) * kChunk);
  }
  const auto alike = [&](bool fit) { return fit == fits[0]; };
  chunk.rows = std::find_if_not(fits, fits + chunk.rows, alike) - fits;
  for (std::int64_t q = 0; q <= readers; ++q) {
    std::fill(units + q * kChunk + chunk.rows, units + (q + 1) * kChunk, T(1));
  }
  return fits[0];
}

/// Whether keys and queries of a chunk are used in place; it may end before, where that changes.
template <class T>
HWY_INLINE void PlaceKeys(const Options& options, const Memory& memory, T* units, Chunk& chunk) {
  chunk.in_place =
      KeysInPlace<T>(options, memory) && (!options.normalise_qk || FindUnits(memory, chunk, units));
}

/// Products with rows in place become those with rows of unit length. Columns of the matrices are
/// left to FoldSteps(): the length of a key that writes is part of its step.
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

/// A decay that is a number a row. Keys and queries are used `in_place` or gathered.
template <class T>
HWY_INLINE void PrepareScalar(const Options& options, const Memory& memory, const Chunk& chunk,
                              bool in_place, const Scratch<T>& scratch, const Prepared<T>& out) {
  const Gathered<T>& g = scratch.gathered;
  const std::int64_t queries = memory.readers();
  const std::int64_t columns = g.stride * kChunk;
  const T* const zeros = scratch.prepared.zeros;
  if (in_place) {
    PackRows(memory, chunk, memory.inputs.k, 0, false, zeros, out.columns.write);
  } else {
    PackColumns(memory, chunk, g.write, g.stride, false, zeros, out.columns.write);
  }
  PadColumns(out.columns.write, memory.dims.key_dim, g.stride);
  if (options.erases()) {
    if (out.columns.erase != out.columns.write) {
      PackColumns(memory, chunk, g.erase, g.stride, false, zeros, out.columns.erase);
      PadColumns(out.columns.erase, memory.dims.key_dim, g.stride);
    }
    Gram(out.columns.erase, out.columns.write, memory.dims.key_dim, out.lower);
  }
  for (std::int64_t q = 0; q < queries; ++q) {
    T* query = out.columns.queries + q * columns;
    if (in_place) {
      PackRows(memory, chunk, memory.inputs.q, q * memory.q_head_stride, true, zeros, query);
    } else {
      PackColumns(memory, chunk, g.query + q * g.query_stride, g.stride, true, zeros, query);
    }
    PadColumns(query, memory.dims.key_dim, g.stride);
    Gram(query, out.columns.write, memory.dims.key_dim, out.scores + q * kChunk * kChunk);
  }
  Weigh(options, queries, g, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_SCALAR_DECAY_INL_H_
