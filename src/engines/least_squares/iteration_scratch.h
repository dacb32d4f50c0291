/// What a worker that iterates needs beside Scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/layout.h"

namespace ttr::least_squares {

/// Blocks whose inverses are computed side by side.
inline constexpr std::int64_t kBlocksTogether = 8;

/// Matrices whose eigenvalues are found side by side, at the most.
inline constexpr std::int64_t kSpectraTogether = 8;

/// Of a row and the one behind it.
struct alignas(kAlignment) Rotation {
  double sine[kSpectraTogether], cosine[kSpectraTogether];
};

/// Rotations that make tridiagonal matrices of n rows diagonal: 1 to 1.5 n^2; this is a bound.
constexpr std::int64_t MostRotations(std::int64_t n) { return 4 * n * n; }

/// What their decomposition works on: matrices, the tridiagonal ones lane by lane, reflections.
struct SpectraScratch {
  double *a, *diagonal, *off_diagonal, *tau, *scale, *p;
  std::int64_t* order;  // of the eigenvalues of one, largest first
  Rotation* rotations;
  std::int32_t* rotated;  // their rows
};

template <class T>
struct IterationScratch {
  std::int64_t block = 0;    // channels of a block of the preconditioner
  std::int64_t vectors = 0;  // eigenvectors that are kept of every system
  // [A; K]: all of A, and the keys of the chunk under it, in rows of k_stride.
  T* stacked;
  // K^T.
  T* kt;
  // Rows for every right-hand side: what is multiplied by A, with its products with the keys behind
  // it; the product; the residual; the solution, where it is not what is multiplied.
  T *d, *ad, *r, *x;
  // Products with the keys, of right-hand sides; of the keys themselves.
  T* scores;
  T* ridge;
  // P of every system: its diagonal, or its blocks, rows of `block`.
  T* inverse;
  T* row;
  double *blocks, *work;  // the diagonal (blocks) of A; some blocks, lane by lane
  double *fade, *factor, *norm, *trace;
  // Of every system: its eigenvalues, largest first; the first eigenvectors, columns of rows of
  // vectors_stride. Products with them.
  double *eigenvalues, *eigenvectors, *along;
  SpectraScratch spectra;
  double *size, *product, *gain, *damping, *residual;
  std::int32_t *slot, *system;
  std::int64_t* iterations;
  std::int8_t* status;
  std::int64_t kt_stride, d_stride, vectors_stride;
  std::size_t bytes;

  /// `all_vectors`: keeps all eigenvectors, if any.
  IterationScratch(const Options& options, const Sizes& sizes, const Scratch<T>& s,
                   std::byte* memory, bool all_vectors = false) {
    const Iteration& how = options.iteration;
    if (how.preconditioner == Preconditioner::kDiagonal ||
        how.preconditioner == Preconditioner::kChunkFactor) {
      block = 1;
    }
    if (how.preconditioner == Preconditioner::kBlockDiagonal) {
      block = std::min(how.block, sizes.key_dim);
    }
    const bool blocked = how.preconditioner == Preconditioner::kBlockDiagonal;
    if (how.preconditioner == Preconditioner::kLowRank) {
      vectors = all_vectors ? sizes.key_dim : std::min(how.rank, sizes.key_dim);
    }
    const std::int64_t decomposed = options.needs_spectra() ? sizes.key_dim : 0;
    vectors_stride = RoundUp(vectors, kUnit / 2);
    kt_stride = StrideOf<T>(s.chunk);
    d_stride = StrideOf<T>(s.keys_unit + s.chunk);
    bytes = 0;
    const auto take = [&]<class Number>(Number*& at, std::int64_t count) {
      at = memory == nullptr ? nullptr : reinterpret_cast<Number*>(memory + bytes);
      bytes += static_cast<std::size_t>(
          RoundUp(count * static_cast<std::int64_t>(sizeof(Number)), kAlignment));
    };
    take(stacked, (s.keys_unit + s.chunk) * s.k_stride);
    take(kt, s.keys_unit * kt_stride);
    take(d, s.columns * d_stride);
    take(ad, s.columns * s.k_stride);
    take(r, s.columns * s.k_stride);
    take(x, s.columns * s.k_stride);
    take(scores, std::max(s.columns, s.chunk) * kt_stride);
    take(ridge, s.keys_unit);
    // Blocks are read and written by whole vectors.
    take(inverse, s.chunk * s.keys_unit * block + kUnit);
    take(row, s.keys_unit + kUnit);
    take(blocks, s.keys_unit * std::max(block, decomposed));
    take(work, blocked ? kBlocksTogether * (block + 1) * block : 0);
    for (double** const numbers : {&fade, &factor, &norm, &trace}) take(*numbers, s.chunk);
    take(eigenvalues, s.chunk * decomposed);
    take(eigenvectors, s.chunk * decomposed * vectors_stride);
    take(along, vectors_stride);
    const std::int64_t unit = RoundUp(decomposed, kUnit);
    take(spectra.a, kSpectraTogether * unit * unit);
    for (double** const numbers : {&spectra.diagonal, &spectra.off_diagonal, &spectra.tau}) {
      take(*numbers, kSpectraTogether * unit);
    }
    take(spectra.scale, kSpectraTogether);
    take(spectra.p, 3 * unit);
    take(spectra.order, unit);
    take(spectra.rotations, vectors > 0 ? MostRotations(decomposed) : 0);
    take(spectra.rotated, vectors > 0 ? MostRotations(decomposed) : 0);
    for (double** const numbers : {&size, &product, &gain, &damping, &residual}) {
      take(*numbers, s.columns);
    }
    take(slot, s.columns);
    take(system, s.columns);
    take(iterations, s.columns);
    take(status, s.columns);
  }
};

}  // namespace ttr::least_squares
