/// What a worker needs for conjugate gradients that share a factor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/layout.h"

namespace ttr::least_squares {

/// Blocks whose columns are right-hand sides, and the factor of the chunk. Nothing where `options`
/// have no such preconditioner.
template <class T>
struct FactorScratch {
  // U of the memory and L^T of the tokens, and their corners (ln::Corner).
  T *u, *s, *u_corners, *s_corners;
  // U^-T K^T, and L^-1 of its transpose.
  T *w, *g;
  // Directions, with their products with the keys under them; their products with A; residuals,
  // those multiplied by P, solutions.
  T *d, *ad, *r, *z, *x;
  T* shares;  // L^-1 K U^-1 of residuals
  // Of every right-hand side: the factor of its ridge, and scalars of its iteration.
  T *rho, *product, *curvature, *alpha, *beta, *residual;
  std::int64_t u_stride, s_stride, columns_stride;
  std::size_t bytes = 0;

  FactorScratch(const Options& options, const Scratch<T>& scratch, std::byte* memory) {
    u_stride = StrideOf<T>(scratch.keys_unit);
    s_stride = StrideOf<T>(scratch.chunk);
    columns_stride = StrideOf<T>(scratch.columns);
    const bool used = options.iteration.preconditioner == Preconditioner::kChunkFactor;
    const auto take = [&](T*& at, std::int64_t count) {
      at = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory + bytes);
      if (!used) return;
      bytes += static_cast<std::size_t>(
          RoundUp(count * static_cast<std::int64_t>(sizeof(T)), kAlignment));
    };
    take(u, scratch.keys_unit * u_stride);
    take(s, scratch.chunk * s_stride);
    take(u_corners, scratch.keys_unit * kCornerNumbers);
    take(s_corners, scratch.chunk * kCornerNumbers);
    take(w, scratch.keys_unit * s_stride);
    take(g, scratch.chunk * u_stride);
    take(d, (scratch.keys_unit + scratch.chunk) * columns_stride);
    for (T** const block : {&ad, &r, &z, &x}) take(*block, scratch.keys_unit * columns_stride);
    take(shares, scratch.chunk * columns_stride);
    for (T** const numbers : {&rho, &product, &curvature, &alpha, &beta, &residual}) {
      take(*numbers, columns_stride);
    }
  }
};

}  // namespace ttr::least_squares
