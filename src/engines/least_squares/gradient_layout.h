/// What the glue tells the gradient kernels about one memory, and how they divide their scratch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/iteration_scratch.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/systems_layout.h"

namespace ttr::least_squares {

/// One memory and one sequence. `memory` is that of the forward call; its a and b are read only.
struct GradientMemory {
  Memory memory;
  Rows dy, dq, dk, dv, dlog_decay, dimportance;
  std::int64_t dy_head_stride = 0, dq_head_stride = 0;
  Rows da, db;  // of the final state: key_dim rows
  Rows da_initial, db_initial;
  double* dridge = nullptr;  // key_dim numbers
};

/// Tokens that were solved together, and what reads them: `reading` tokens from `begin` on, of
/// which the j-th sees j + 1 of the part's tokens.
struct Part {
  std::int64_t first, tokens, begin, reading;
  double decay, end;   // as in Chunk
  std::int64_t pairs;  // beside x and z
  bool told = false;   // are k . x and v . dy - k . z kept, in kx_rows and rest_rows?
};

/// Those that a preconditioner of low rank adds to dL/dA, for every answer.
inline std::int64_t LowRankPairs(const Options& options, std::int64_t key_dim) {
  if (!options.descends() || options.iteration.preconditioner != Preconditioner::kLowRank) return 0;
  return std::min(options.iteration.rank + 1, key_dim);
}

/// Pairs of an answer in dL/dA, beside x and z. A sum of more than key_dim is one of key_dim.
inline std::int64_t MorePairs(const Options& options, std::int64_t key_dim) {
  if (!options.iterates()) return 1;
  if (!options.descends()) return 0;
  return std::min(options.iteration.steps - 1 + LowRankPairs(options, key_dim), key_dim);
}

inline Sizes WithTwoSides(Sizes sizes) {
  sizes.queries *= 2;  // a query and what its answer's gradient asks for
  return sizes;
}

/// The scratch of one worker.
template <class T>
struct GradientScratch {
  Scratch<T> chunk;  // its rows are right-hand sides: those of q, then those of u, token by token
  SystemsScratch<T> systems;      // where every token has its own
  IterationScratch<T> iteration;  // where they are iterated
  std::int64_t rows;              // answers of a chunk: tokens times queries, rounded up
  // A and B before a block of such tokens; c and w / c of the tokens of a part.
  T *a_before, *b_before;
  double *c, *weight;
  // Of the whole sequence, a row an answer: x and z, and more pairs: the second one of
  // singular tokens, or those of the steps of gradient descent.
  T *x, *z, *more_x, *more_z;
  // Of the same, where tokens share a factor: a row of k . x, and of v . dy - k . z, k and v of the
  // tokens of the answer's part that it sees. Behind them, room for those of one part.
  T *kx_rows, *rest_rows, *part_kx, *part_rest;
  // P r of all steps for a chunk's sides.
  T* steps;
  // What P adds to dL/dA + its transpose, for every answering token: the rows of its blocks.
  T* blocks;
  // Of one answer, by eigenvectors of its A.
  double* spectral;
  // <dL/dA, A> + <dL/dB, B> of an answering token's answers, but for what a ridge adds.
  double* worth;
  // The diagonals of dL/dR of a part's answering tokens.
  double* diagonal;
  // Where the ridge is relative: |A|_F of every answering token, A k of every token with the A that
  // its part begins with, and sums over the tokens of a part.
  double* norm;
  T* ak;
  double* sums;
  Part* parts;
  // Forward: B^T, V^T, and rows of u, scores, solutions; room for rows of a chunk.
  T *bt, *vt, *u, *scores, *solutions, *g;
  // Backward: F + F^T, G; G^T; X^T, Z^T and dY^T; products with keys and values; rows of dk and dv.
  T *f, *gradient_b, *gradient_bt, *xt, *zt, *dyt, *kx, *kz, *vdy, *dk, *dv;
  std::int64_t rows_stride, tokens_stride;
  std::size_t bytes;

  GradientScratch(const Options& options, const Sizes& sizes, std::byte* memory)
      : chunk(options, WithTwoSides(sizes), memory),
        systems(sizes, 2 * sizes.queries,
                memory == nullptr || SystemsBytes<T>(options, sizes) == 0 ? nullptr
                                                                          : memory + chunk.bytes),
        iteration(options, WithTwoSides(sizes), chunk,
                  memory == nullptr || !options.iterates() ? nullptr : memory + chunk.bytes,
                  options.descends()) {
    rows = RoundUp(chunk.chunk * sizes.queries, kUnit);
    rows_stride = StrideOf<T>(rows);
    tokens_stride = StrideOf<T>(chunk.chunk);
    const bool own = SystemsBytes<T>(options, sizes) > 0;
    std::size_t used =
        chunk.bytes + (own ? systems.bytes : 0) + (options.iterates() ? iteration.bytes : 0);
    // Keys lie under the rows of A.
    if (iteration.stacked != nullptr) {
      chunk.k = iteration.stacked + chunk.keys_unit * chunk.k_stride;
    }
    const auto bytes_of = [&](std::size_t count) {
      std::byte* const at = memory == nullptr ? nullptr : memory + used;
      used += (count + kAlignment - 1) / kAlignment * kAlignment;
      return at;
    };
    const auto take = [&](std::int64_t count) {
      return reinterpret_cast<T*>(bytes_of(static_cast<std::size_t>(count) * sizeof(T)));
    };
    a_before = take(own ? chunk.keys_unit * chunk.a_stride : 0);
    b_before = take(own ? chunk.keys_unit * chunk.b_stride : 0);
    const auto take_doubles = [&](std::int64_t count) {
      return reinterpret_cast<double*>(bytes_of(static_cast<std::size_t>(count) * sizeof(double)));
    };
    for (double** numbers : {&c, &weight, &sums}) *numbers = take_doubles(chunk.chunk);
    const bool relative = options.ridge == Ridge::kRelative;
    norm = take_doubles(relative ? sizes.tokens : 0);
    ak = take(relative ? (sizes.tokens + kUnit) * chunk.k_stride : 0);  // whole units are written
    const std::int64_t answers = sizes.tokens * sizes.queries;
    const std::int64_t more_pairs = MorePairs(options, sizes.key_dim);
    // Of x, z and what stands beside them whole units are written.
    for (T** whole : {&x, &z}) *whole = take((answers + kUnit) * chunk.k_stride);
    for (T** whole : {&more_x, &more_z}) *whole = take(more_pairs * answers * chunk.k_stride);
    const bool shares = !options.iterates() && options.ridge != Ridge::kRelative;
    for (T** whole : {&kx_rows, &rest_rows}) {
      *whole = take(shares ? (answers + kUnit) * tokens_stride : 0);
    }
    for (T** part : {&part_kx, &part_rest}) *part = take(shares ? rows * tokens_stride : 0);
    steps = take(options.descends() ? options.iteration.steps * chunk.columns * chunk.k_stride : 0);
    blocks = take(options.descends() ? sizes.tokens * chunk.keys_unit * iteration.block : 0);
    spectral = take_doubles(LowRankPairs(options, sizes.key_dim) > 0 ? 5 * sizes.key_dim : 0);
    worth = take_doubles(sizes.tokens);
    diagonal = take_doubles(chunk.chunk * chunk.keys_unit);
    parts = reinterpret_cast<Part*>(
        bytes_of(static_cast<std::size_t>(2 * sizes.tokens + 2) * sizeof(Part)));
    bt = take(chunk.values_unit * chunk.k_stride);
    vt = take(chunk.values_unit * tokens_stride);
    u = take(rows * chunk.k_stride);
    scores = take(rows * tokens_stride);
    solutions = take(chunk.columns * chunk.k_stride);
    g = take(chunk.chunk * chunk.k_stride);
    f = take(chunk.keys_unit * chunk.k_stride);
    gradient_b = take(chunk.keys_unit * chunk.b_stride);
    gradient_bt = take(chunk.values_unit * chunk.k_stride);
    xt = take(chunk.keys_unit * rows_stride);
    zt = take(chunk.keys_unit * rows_stride);
    dyt = take(chunk.values_unit * rows_stride);
    kx = take(chunk.chunk * rows_stride);
    kz = take(chunk.chunk * rows_stride);
    vdy = take(chunk.chunk * rows_stride);
    dk = take(chunk.chunk * chunk.k_stride);
    dv = take(chunk.chunk * chunk.v_stride);
    bytes = used;
  }
};

void RunGradientFloat(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                      std::byte* scratch);
void RunGradientDouble(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                       std::byte* scratch);

}  // namespace ttr::least_squares
