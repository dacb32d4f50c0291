/// What a worker needs for conjugate gradients that share a factor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/scratch.h"

namespace ttr::least_squares {

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
  // Of every right-hand side: the factor of its ridge, and scalars of its iteration.
  T *rho, *product, *curvature, *alpha, *beta, *residual;
  std::size_t bytes = 0;

  ChunkFactorScratch(const Options& options, const Scratch<T>& s, std::byte* memory_start) {
    if (options.iteration.preconditioner != Preconditioner::kChunkFactor) return;
    Arena arena(memory_start);
    memory.u = arena.Rows<T>(s.keys_unit, s.keys_unit);
    tokens.u = arena.Rows<T>(s.chunk, s.chunk);
    memory.corners = arena.Take<T>(s.keys_unit * linalg::kCornerNumbers);
    tokens.corners = arena.Take<T>(s.chunk * linalg::kCornerNumbers);
    w = arena.Rows<T>(s.keys_unit, s.chunk);
    g = arena.Rows<T>(s.chunk, s.keys_unit);
    d = arena.Rows<T>(s.keys_unit + s.chunk, s.columns);
    for (Block<T>* const block : {&ad, &r, &z, &x}) *block = arena.Rows<T>(s.keys_unit, s.columns);
    shares = arena.Rows<T>(s.chunk, s.columns);
    for (T** const numbers : {&rho, &product, &curvature, &alpha, &beta, &residual}) {
      *numbers = arena.Take<T>(d.stride);
    }
    bytes = arena.bytes();
  }
};

}  // namespace ttr::least_squares
