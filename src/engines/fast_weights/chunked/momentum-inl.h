// A chunk of a memory with momentum, which is two memories: M and the last update G,
//
//     G_i = m_i G_{i-1} + w_i^T u_i,   M_i = a_i M_{i-1} + G_i,   u_i = b_i (v_i - h_i r_i M_{i-1})
//
// Both are linear in what they were at the chunk's start and in the innovations, with coefficients
// that are numbers:
//
//     M_i = alpha_i M_0 + pi_i G_0 + sum_j p_ij w_j^T u_j,   p_ij = a_i p_{i-1,j} + e_ij
//     G_i = epsilon_i G_0 + sum_j e_ij w_j^T u_j,            e_ij = m_i e_{i-1,j}, e_ii = 1
//
// so the chunk's keys, erase keys and queries for (M_0, G_0), one below the other, are the given
// ones times those numbers. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_MOMENTUM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_MOMENTUM_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_MOMENTUM_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_MOMENTUM_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/columns-inl.h"
#include "src/engines/fast_weights/chunked/prepared.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// to = the columns times first[i], and below them times second[i].
template <class T>
HWY_INLINE void StackColumns(const T* columns, std::int64_t key_dim, std::int64_t rows,
                             const T* first, const T* second, T* to) {
  for (std::int64_t d = 0; d < key_dim; ++d) {
    for (int i = 0; i < kChunk; ++i) {
      to[d * kChunk + i] = first[i] * columns[d * kChunk + i];
      to[(key_dim + d) * kChunk + i] = second[i] * columns[d * kChunk + i];
    }
  }
  PadColumns(to, 2 * key_dim, rows);
}

/// The coefficients behind one row.
template <class T>
struct MomentumCoefficients {
  T to_memory[kChunk] = {}, to_update[kChunk] = {};  // p_ij, e_ij
  T alpha = 1, pi = 0, epsilon = 1;

  /// Goes from row i - 1 to row i.
  void Advance(int i, T decay, T momentum) {
    epsilon *= momentum;
    alpha *= decay;
    pi = decay * pi + epsilon;
    for (int j = 0; j < i; ++j) {
      to_update[j] *= momentum;
      to_memory[j] = decay * to_memory[j] + to_update[j];
    }
    to_memory[i] = to_update[i] = 1;
  }
};

template <class T>
HWY_INLINE void PrepareMomentum(const Options& options, const Memory& memory, const Chunk& chunk,
                                const Scratch<T>& scratch, const Prepared<T>& out) {
  const Gathered<T>& g = scratch.gathered;
  const std::int64_t keys = memory.dims.key_dim, state_rows = StateRows<T>(options, keys);
  const std::int64_t queries = memory.readers();
  const T scale = static_cast<T>(options.scale);
  const T* const zeros = scratch.prepared.zeros;
  T* const key = scratch.prepared.unscaled;
  const auto query = [&](std::int64_t q) { return key + (1 + q) * g.stride * kChunk; };
  PackColumns(memory, chunk, g.write, g.stride, false, zeros, key);
  Gram(key, key, keys, out.lower);
  for (std::int64_t q = 0; q < queries; ++q) {
    PackColumns(memory, chunk, g.query + q * g.query_stride, g.stride, true, zeros, query(q));
    Gram(query(q), key, keys, out.scores + q * kChunk * kChunk);
  }

  T of_memory[kChunk], of_update[kChunk];      // alpha, pi as the erasure sees them
  T read_memory[kChunk], read_update[kChunk];  // and as queries do
  MomentumCoefficients<T> now;
  const auto read = [&](int i) {
    read_memory[i] = now.alpha;
    read_update[i] = now.pi;
    for (std::int64_t q = 0; q < queries; ++q) {
      T* row = out.scores + (q * kChunk + i) * kChunk;
      for (int j = 0; j <= i; ++j) row[j] *= scale * now.to_memory[j];
    }
  };
  for (int i = 0; i < kChunk; ++i) {
    of_memory[i] = g.seen[i] * now.alpha;
    of_update[i] = g.seen[i] * now.pi;
    for (int j = 0; j < i; ++j) out.lower[i * kChunk + j] *= -g.seen[i] * now.to_memory[j];
    if (options.read_before) read(i);
    if (i < chunk.rows) now.Advance(i, g.decay[i], g.momentum[i]);
    if (!options.read_before) read(i);
    out.step[i] = g.step[i];
    out.decay[i] = out.to_end[i] = 1;
  }
  StackColumns(key, keys, state_rows, of_memory, of_update, out.columns.erase);
  StackColumns(key, keys, state_rows, now.to_memory, now.to_update, out.columns.write);
  for (std::int64_t q = 0; q < queries; ++q) {
    StackColumns(query(q), keys, state_rows, read_memory, read_update,
                 out.columns.queries + q * state_rows * kChunk);
  }
  std::fill(out.read, out.read + queries * kChunk, scale);
  const T rotation[4] = {now.alpha, now.pi, T(0), now.epsilon};
  for (int r = 0; r < 4; ++r) std::fill_n(out.rotation[r], g.stride, rotation[r]);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_MOMENTUM_INL_H_
