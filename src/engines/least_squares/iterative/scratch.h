/// What a worker that iterates needs beside Scratch.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/least_squares/scratch.h"
#include "src/linalg/block_inverses.h"
#include "src/linalg/eigensystems.h"

namespace ttr::least_squares {

/// P of every system.
template <class T>
struct PreconditionerScratch {
  std::int64_t block = 0;    // channels of a block of P
  std::int64_t vectors = 0;  // eigenvectors that are stored of every system
  T* inverse;                // its diagonal, or its blocks, rows of `block`
  double *sums, *work;       // the diagonal (blocks) of A; some blocks, lane by lane
  // Eigenvalues of every system, largest first; its first eigenvectors, columns of D rows.
  double* eigenvalues;
  Block<double> eigenvectors;
  double* along;  // products with them
  linalg::EigenScratch eigen;
};

/// Numbers of every right-hand side: scalars of its iteration and what became of it.
struct SideScratch {
  double *size, *product, *gain, *damping, *residual;
  std::int32_t *slot, *system;
  std::int64_t* iterations;
  std::int8_t* status;
};

/// Pairs of a gradient -z x^T: rows of `outputs` outputs, one pair after the other.
template <class T>
struct PairRows {
  Block<T> x, z;
  std::int64_t outputs = 0;

  T* X(std::int64_t pair, std::int64_t output) const { return x.Row(pair * outputs + output); }
  T* Z(std::int64_t pair, std::int64_t output) const { return z.Row(pair * outputs + output); }
};

/// Pairs that a preconditioner of low rank adds to dL/dA, for every output.
inline std::int64_t LowRankPairs(const Options& options, std::int64_t key_dim) {
  if (!options.descends() || options.iteration.preconditioner != Preconditioner::kLowRank) return 0;
  return std::min(options.iteration.rank + 1, key_dim);
}

/// Where the gradients of Call::step and Call::momentum go, if anywhere.
struct InputSlopes {
  Rows step, momentum;
};

/// What the gradient of descent needs, and where it is stored (gradient_descent-inl.h).
template <class T>
struct DescentSlopeScratch {
  Block<T> steps;       // P r of all steps for a chunk's sides
  PairRows<T> pairs;    // of every output, beside x and z
  T* blocks;            // of BlockSlope, for every reading token
  double* worth;        // <dL/dA, A> + <dL/dB, B> of a token's outputs, but for what a ridge adds
  double* bound_slope;  // dL/db of every reading token, steps of eta / b
  double *low_rank, *sums;
  T* row;
};

template <class T>
struct IterationScratch {
  Block<T> stacked;  // [A; K]: all of A, and the keys of the chunk under it
  Block<T> kt;       // K^T
  // Rows for every right-hand side: what is multiplied by A, with its products with the keys beside
  // it; the product; the residual; the solution, where it is not what is multiplied.
  Block<T> d, ad, r, x;
  Block<T> scores;  // products with the keys, of right-hand sides; of the keys themselves
  T *ridge, *row;
  double *fade, *factor, *norm, *trace;  // of every system
  T* etas;                               // [right-hand side][steps]: sizes, where they are given
  T* momentum;                           // [right-hand side], where there is any
  PreconditionerScratch<T> p;
  SideScratch sides;

  /// `all_vectors`: stores all eigenvectors, if any.
  IterationScratch(const Options& options, const Sizes& sizes, const Scratch<T>& s,
                   ScratchLayout& layout, bool all_vectors = false) {
    stacked = TakeBlock<T>(layout, s.keys_unit + s.chunk, s.keys_unit);
    kt = TakeBlock<T>(layout, s.keys_unit, s.chunk);
    d = TakeBlock<T>(layout, s.columns, s.keys_unit + s.chunk);
    for (Block<T>* const block : {&ad, &r, &x})
      *block = TakeBlock<T>(layout, s.columns, s.keys_unit);
    scores = TakeBlock<T>(layout, std::max(s.columns, s.chunk), s.chunk);
    ridge = layout.Take<T>(s.keys_unit);
    row = layout.Take<T>(s.keys_unit + kUnit);
    layout.Take<double>(s.chunk, {&fade, &factor, &norm, &trace});
    etas = layout.Take<T>(options.iteration.given ? s.columns * options.iteration.steps : 0);
    momentum = layout.Take<T>(options.iteration.momentum ? s.columns : 0);
    TakePreconditioner(options, sizes, s, all_vectors, layout);
    layout.Take<double>(
        s.columns, {&sides.size, &sides.product, &sides.gain, &sides.damping, &sides.residual});
    sides.slot = layout.Take<std::int32_t>(s.columns);
    sides.system = layout.Take<std::int32_t>(s.columns);
    sides.iterations = layout.Take<std::int64_t>(s.columns);
    sides.status = layout.Take<std::int8_t>(s.columns);
  }

 private:
  void TakePreconditioner(const Options& options, const Sizes& sizes, const Scratch<T>& s,
                          bool all_vectors, ScratchLayout& layout) {
    const Iteration& how = options.iteration;
    const bool blocked = how.preconditioner == Preconditioner::kBlockDiagonal;
    if (how.preconditioner == Preconditioner::kDiagonal ||
        how.preconditioner == Preconditioner::kChunkFactor) {
      p.block = 1;
    }
    if (blocked) p.block = std::min(how.block, sizes.key_dim);
    if (how.preconditioner == Preconditioner::kLowRank) {
      p.vectors = all_vectors ? sizes.key_dim : std::min(how.rank, sizes.key_dim);
    }
    const std::int64_t decomposed = options.needs_spectra() ? sizes.key_dim : 0;
    // Blocks are read and written by whole vectors.
    p.inverse = layout.Take<T>(s.chunk * s.keys_unit * p.block + kUnit);
    p.sums = layout.Take<double>(s.keys_unit * std::max(p.block, decomposed));
    p.work = layout.Take<double>(linalg::BlockInverseNumbers(blocked ? p.block : 1));
    p.eigenvalues = layout.Take<double>(s.chunk * decomposed);
    p.eigenvectors =
        TakeStrided<double>(layout, s.chunk * decomposed, RoundUp(p.vectors, kUnit / 2));
    p.along = layout.Take<double>(p.eigenvectors.stride);
    const std::int64_t unit = RoundUp(decomposed, kUnit);
    constexpr std::int64_t kTogether = linalg::kEigensystemsTogether;
    p.eigen.a = layout.Take<double>(kTogether * unit * unit);
    layout.Take<double>(kTogether * unit, {&p.eigen.diagonal, &p.eigen.off_diagonal, &p.eigen.tau});
    p.eigen.scale = layout.Take<double>(kTogether);
    p.eigen.p = layout.Take<double>(3 * unit);
    p.eigen.order = layout.Take<std::int64_t>(unit);
    const std::int64_t rotations = p.vectors > 0 ? linalg::MostRotations(decomposed) : 0;
    p.eigen.rotations = layout.Take<linalg::Rotation>(rotations);
    p.eigen.rotated = layout.Take<std::int32_t>(rotations);
  }
};

/// Blocks whose columns are right-hand sides, and the factor of the chunk. Nothing where `options`
/// have no such preconditioner.
template <class T>
struct ChunkFactorScratch {
  UpperFactor<T> memory, tokens;  // U of the memory and L^T of the tokens
  Block<T> w, g;                  // U^-T K^T, and L^-1 of its transpose
  Block<T> shares;                // L^-1 K U^-1 of residuals
  // Directions, with their products with the keys under them; their products with A; residuals,
  // those multiplied by P, solutions.
  Block<T> d, ad, r, z, x;
  // Numbers of every right-hand side: the factor of its ridge, and scalars of its iteration.
  T *rho, *product, *curvature, *alpha, *beta, *residual;

  ChunkFactorScratch(const Options& options, const Scratch<T>& s, ScratchLayout& layout) {
    if (options.iteration.preconditioner != Preconditioner::kChunkFactor) return;
    memory = TakeFactor(layout, TakeBlock<T>(layout, s.keys_unit, s.keys_unit), s.keys_unit);
    tokens = TakeFactor(layout, TakeBlock<T>(layout, s.chunk, s.chunk), s.chunk);
    w = TakeBlock<T>(layout, s.keys_unit, s.chunk);
    g = TakeBlock<T>(layout, s.chunk, s.keys_unit);
    d = TakeBlock<T>(layout, s.keys_unit + s.chunk, s.columns);
    for (Block<T>* const block : {&ad, &r, &z, &x})
      *block = TakeBlock<T>(layout, s.keys_unit, s.columns);
    shares = TakeBlock<T>(layout, s.chunk, s.columns);
    layout.Take<T>(d.stride, {&rho, &product, &curvature, &alpha, &beta, &residual});
  }
};

}  // namespace ttr::least_squares
