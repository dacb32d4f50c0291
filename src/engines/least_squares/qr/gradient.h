/// Gradients of least squares by rotations: what the glue calls, and the scratch of a worker.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/qr/scratch.h"

namespace ttr::least_squares {

/// Rows are as long as those of a triangle, so that vectors may reach beyond.
struct RotatedGradientScratch {
  RotationScratch forward;
  std::int64_t stride;
  double *x, *z;            // the solutions of every output
  double *more_x, *more_z;  // second pairs of those that are singular
  std::int8_t* singular;
  double *f, *g, *c;      // F + F^T and G, key_dim rows each; what is asked of sum w v^2
  double *by_r, *by_w;    // of a state: [key_dim, key_dim], [key_dim, value_dim]
  double *values, *room;  // a row; two rows, or key_dim of key_dim

  RotatedGradientScratch(const Options& options, const Sizes& sizes, common::ScratchLayout& layout)
      : forward(options, sizes, layout), stride(Triangle::StrideOf(sizes)) {
    const std::int64_t outputs = sizes.tokens * sizes.queries, n = sizes.key_dim;
    layout.Take(outputs * stride, {&x, &z, &more_x, &more_z});
    singular = layout.Take<std::int8_t>(outputs);
    layout.Take(n * stride, {&f, &g});
    c = layout.Take<double>(stride);
    by_r = layout.Take<double>(n * n);
    by_w = layout.Take<double>(n * sizes.value_dim);
    values = layout.Take<double>(stride);
    room = layout.Take<double>(std::max(2 * stride, n * n));
  }
};

/// `scratch` is aligned and holds RotatedGradientBytes().
void RunRotatedGradient(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                        std::byte* scratch);

std::size_t RotatedGradientBytes(const Options& options, const Sizes& sizes);

}  // namespace ttr::least_squares
