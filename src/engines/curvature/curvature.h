/// Keys divided by a curvature of low rank: the gain of recursive least squares, of its largest
/// directions.
///
///     C_t = g U_{t-1}^T U_{t-1} + b_t k_t k_t^T,   w_t = (ridge I + C_t)^-1 k_t
///     U_t^T U_t = the `rank` largest eigenpairs of C_t
///
/// for every row; of the n rows of a token only the first fades what was before.
///
/// With N = [sqrt(g) U; sqrt(b) k] = V R, V the eigenvectors of N N^T and l its eigenvalues, the
/// rows of R are orthogonal and the first of them are the next U:
///
///     w = (k - sum_j R_j (R_j . k) / (ridge + l_j)) / ridge
///       = sum_j R_j V_j / (ridge + l_j) / sqrt(b),   V_j the last row of V
///
/// The second form keeps its digits where b |k|^2 is large beside the ridge, the first one
/// elsewhere.
///
/// | tensor     | shape              | dtype                                                |
/// |------------|--------------------|------------------------------------------------------|
/// | k          | [B, T n, Hk, D]    | float32, float64 or bfloat16; Hk divides H           |
/// | importance | [B, T, H]          | the same; b >= 0, of all rows of a token; absent: 1  |
/// | u          | [N, H, rank, D]    | float32 or float64; read and updated; absent: zeros  |
/// | w          | [B, T n, H, D]     | float32 or float64                                   |
///
/// Any strides but a contiguous last axis. All arithmetic is done in float64: which direction is
/// dropped is decided by small differences. Rows of u that are left are orthogonal, the longest
/// first, each with its largest entry above 0. What is not finite reaches all later tokens.
///
/// Cost a row and memory, m = rank + 1: 2 m^2 D for the rows of R, 4 m D beside, 11 m^3 for the
/// eigenvectors, of which as many memories as a vector has lanes are found together. The number of
/// threads changes no bit. The caller validates.
/// Source: Wang, Shi, Fox (2025), Vignette 3; Brand (2006) for the rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::curvature {

struct Options {
  std::int64_t rank = 1;
  double ridge = 1;        ///< > 0
  double decay = 1;        ///< g, in [0, 1]
  std::int64_t steps = 1;  ///< n
};

struct Call {
  std::int64_t heads = 1;  ///< H
  TensorView k{}, importance{};
  std::span<const std::int64_t> cu_seqlens{};  ///< [N + 1]; empty: not packed
  std::span<const std::int64_t> slots{};       ///< [N] rows of u; empty: 0 .. N - 1
  TensorView u{};
  TensorView w{};
};

/// What scratch depends on.
struct Sizes {
  std::int64_t rank = 1, key_dim = 1;
  std::int64_t rows = 0;  ///< of the longest sequence; only a backward pass asks
};

/// Bytes of scratch that Forward and Backward need with this many threads.
std::size_t ScratchBytes(const Sizes& sizes, int threads);
std::size_t BackwardScratchBytes(const Sizes& sizes, int threads);

/// w of all tokens, and u after them. `scratch` (any alignment) holds ScratchBytes() at least, or
/// is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// Gradients; views may be absent, those of `k` [B, T n, H, D] are added to what is there.
struct Gradients {
  TensorView w;        ///< given
  TensorView final_u;  ///< given: by u after the last token
  TensorView k, importance, u;
};

/// The gradient of Forward; `call.u` is the initial one and stays as it is, call.w is not read. By
/// an eigenvector that is dropped beside one that is as long, there is none; by an importance of 0
/// it is the slope on the side where there is some, of what the rows of U span.
///
/// Cost: the forward pass twice, and as much as it again. Memory: U of every 16th row.
void Backward(const Options& options, const Call& call, const Gradients& gradients,
              Executor& executor, std::span<std::byte> scratch = {});

}  // namespace ttr::curvature
