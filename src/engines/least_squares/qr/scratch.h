/// A worker's scratch for rotations: a copy of the memory, in double.
#pragma once

#include <cstdint>

#include "src/engines/common/scratch_layout.h"
#include "src/engines/least_squares/memory.h"

namespace ttr::least_squares {

/// A = L^T D L and B = L^T D W. Row i holds W_i and, behind it, what is left of L_ii = 1; a row [v
/// k] to be rotated in has the same places. Rows are whole lines longer than that, so that vectors
/// may reach beyond: what is there counts nowhere.
struct Triangle {
  std::int64_t key_dim = 0, value_dim = 0, stride = 0;
  double* rows = nullptr;
  double* d = nullptr;        // D
  double* squares = nullptr;  // the diagonal of A, beside which a D is rounding or not

  static std::int64_t StrideOf(const Sizes& sizes) {
    return common::OddLines<double>(sizes.key_dim + sizes.value_dim + common::kLine<double>);
  }

  Triangle() = default;
  Triangle(const Sizes& sizes, common::ScratchLayout& layout)
      : key_dim(sizes.key_dim), value_dim(sizes.value_dim), stride(StrideOf(sizes)) {
    rows = layout.Take<double>(key_dim * stride);
    layout.Take(key_dim, {&d, &squares});
  }

  double* Row(std::int64_t i) const { return rows + i * stride; }
};

struct RotationScratch {
  Triangle memory;
  Triangle ridged;  // the memory with a ridge that is no part of it
  double* row;      // [v k], [-y q]
  double* rss;

  RotationScratch(const Options& options, const Sizes& sizes, common::ScratchLayout& layout)
      : memory(sizes, layout),
        row(layout.Take<double>(memory.stride)),
        rss(layout.Take<double>(sizes.value_dim)) {
    if (options.ridge != Ridge::kInState) ridged = Triangle(sizes, layout);
  }
};

}  // namespace ttr::least_squares
