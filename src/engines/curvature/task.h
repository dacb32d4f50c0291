/// A few memories whose rows are taken side by side, and what a worker has for them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "src/engines/common/row_views.h"
#include "src/engines/common/scratch_layout.h"
#include "src/engines/curvature/curvature.h"
#include "src/linalg/block.h"
#include "src/linalg/eigensystems.h"

namespace ttr::curvature {

using common::ScratchLayout;
using linalg::Block;
using linalg::kUnit;
using simd::Rows;

inline constexpr std::int64_t kTogether = linalg::kEigensystemsTogether;
/// Rows between two U that the backward pass keeps.
inline constexpr std::int64_t kBlock = 16;

/// One memory of one sequence.
struct Memory {
  Rows k{}, importance{}, u{}, w{};
  Rows dw{}, final_u{}, dk{}, dimportance{}, du{};  // of the backward pass
};

struct Task {
  const Options& options;
  Sizes sizes;
  std::array<Memory, kTogether> memories;
  std::int64_t count = 0, rows = 0;
  std::byte* scratch = nullptr;
};

inline Block<double> TakeBlock(ScratchLayout& layout, std::int64_t rows, std::int64_t columns) {
  const std::int64_t stride = linalg::StrideOf<double>(columns);
  return {layout.Take<double>(rows * stride), stride};
}

/// N of a token, and what the eigenvectors of N N^T make of it.
struct Turned {
  Block<double> rows;     // [rank + 1][channel]: R
  Block<double> vectors;  // [row of N][row of R]: V
  double* values;         // [row of R]: l, the largest first

  Turned() = default;
  Turned(const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t unit = linalg::RoundUp(sizes.rank + 1, kUnit);
    rows = TakeBlock(layout, unit, linalg::RoundUp(sizes.key_dim, kUnit));
    vectors = TakeBlock(layout, unit, unit);
    values = layout.Take<double>(unit);
  }
};

/// A memory as its tokens go.
struct Running {
  Block<double> n;           // [rank + 1][channel]: N; between tokens U
  double *key, *border, *w;  // k; the last row of N N^T; w
  bool orthogonal = false;   // are the rows of U known to be so? Then their squares are `squares`
  double* squares;

  Running() = default;
  Running(const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t unit = linalg::RoundUp(sizes.rank + 1, kUnit);
    const std::int64_t wide = linalg::RoundUp(sizes.key_dim, kUnit);
    n = TakeBlock(layout, unit, wide);
    layout.Take(wide, {&key, &w});
    layout.Take(unit, {&border, &squares});
  }
};

struct Scratch {
  std::array<Running, kTogether> running;
  std::array<Turned, kTogether> turned;
  linalg::EigenScratch eigen;

  Scratch(const Sizes& sizes, ScratchLayout& layout) {
    for (Running& one : running) one = {sizes, layout};
    for (Turned& one : turned) one = {sizes, layout};
    const std::int64_t unit = linalg::RoundUp(sizes.rank + 1, kUnit);
    eigen.a = layout.Take<double>(kTogether * unit * unit);
    layout.Take<double>(kTogether * unit, {&eigen.diagonal, &eigen.off_diagonal, &eigen.tau});
    eigen.scale = layout.Take<double>(kTogether);
    eigen.p = layout.Take<double>(3 * unit);
    eigen.order = layout.Take<std::int64_t>(unit);
    eigen.rotations = layout.Take<linalg::Rotation>(linalg::MostRotations(sizes.rank + 1));
    eigen.rotated = layout.Take<std::int32_t>(linalg::MostRotations(sizes.rank + 1));
  }
};

/// What the backward pass has for one memory.
struct Adjoint {
  Block<double> du, dn;    // [rank + 1][channel]
  double *dw, *h, *along;  // [channel]
  double *by_h, *by_w;     // [row of R]
  double by_weight = 0;    // of the rows of a token so far

  Adjoint() = default;
  Adjoint(const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t unit = linalg::RoundUp(sizes.rank + 1, kUnit);
    const std::int64_t wide = linalg::RoundUp(sizes.key_dim, kUnit);
    du = TakeBlock(layout, unit, wide);
    dn = TakeBlock(layout, unit, wide);
    layout.Take(wide, {&dw, &h, &along});
    layout.Take(unit, {&by_h, &by_w});
  }
};

struct BackwardScratch {
  Scratch forward;
  std::array<std::array<Turned, kTogether>, kBlock> turned;  // of the rows of a block
  std::array<double*, kTogether> checkpoints;                // [block]: U before it, and squares
  std::int64_t one = 0;                                      // numbers of a checkpoint
  std::array<Adjoint, kTogether> adjoints;

  BackwardScratch(const Sizes& sizes, ScratchLayout& layout) : forward(sizes, layout) {
    for (auto& token : turned) {
      for (Turned& memory : token) memory = {sizes, layout};
    }
    one = sizes.rank * (linalg::RoundUp(sizes.key_dim, kUnit) + 1);
    for (double*& memory : checkpoints) {
      memory = layout.Take<double>(common::CeilDiv(sizes.rows, kBlock) * one);
    }
    for (Adjoint& memory : adjoints) memory = {sizes, layout};
  }
};

/// All rows of some memories.
void RunForward(const Task& task);
void RunBackward(const Task& task);

}  // namespace ttr::curvature
