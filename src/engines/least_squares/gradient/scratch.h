/// What the glue hands to the gradient kernels about one memory, and how they divide scratch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "src/engines/least_squares/exact/interleaved_systems.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/scratch.h"

namespace ttr::least_squares {

/// One memory and one sequence. `memory` is that of the forward call; its a and b are read only.
struct GradientMemory {
  Memory memory;
  Rows dy, dq, dk, dv, dlog_decay, dimportance, dstep, dmomentum;
  std::int64_t dy_head_stride = 0, dq_head_stride = 0;
  Rows da, db;  // of the final state: key_dim rows
  Rows da_initial, db_initial;
  Rows drss, drss_initial;   // a row of value_dim, of rotations
  double* dridge = nullptr;  // key_dim numbers
};

/// Tokens that were solved together, and what reads them: `reading` tokens from `begin` on, of
/// which the j-th sees j + 1 of the stretch's tokens.
struct Stretch {
  std::int64_t first, tokens, begin, reading;
  double decay, end;          // as in Chunk
  std::int64_t pairs = 0;     // beside x and z
  bool has_products = false;  // are k . x and v . dy - k . z saved, too?
};

/// Pairs of an output in dL/dA, beside x and z. A sum of more than key_dim is one of key_dim.
inline std::int64_t MorePairs(const Options& options, std::int64_t key_dim) {
  if (!options.iterates()) return 1;
  if (!options.descends()) return 0;
  return std::min(options.iteration.steps - 1 + LowRankPairs(options, key_dim), key_dim);
}

inline Sizes WithTwoSides(Sizes sizes) {
  sizes.queries *= 2;  // a query and what its output's gradient asks for
  return sizes;
}

/// What the way forward leaves for the way back: a row for every output of the sequence.
template <class T>
struct SolutionScratch {
  Block<T> x, z;
  PairRows<T> more;  // second pairs of singular systems, or those of the steps of descent
  // Where tokens share a factor: k . x, and v . dy - k . z, k and v of the tokens of the output's
  // stretch that it sees.
  Block<T> kx, rest;
  T* blocks;            // what P adds, for every reading token (BlockSlope)
  double* worth;        // <dL/dA, A> + <dL/dB, B> of a token's outputs, but for what a ridge adds
  double* bound_slope;  // of DescentSlope, for every reading token
  // Where options.depends_on_norm(): |A|_F of every reading token, A k of every token with the A
  // that its stretch begins with.
  double* norm;
  Block<T> ak;
  Stretch* stretches;
};

/// What only the way forward needs.
template <class T>
struct ForwardScratch {
  Block<T> a_before, b_before;  // A and B before a block of tokens with systems of their own
  Block<T> bt, vt;              // B^T, V^T
  Block<T> u, scores, solutions;
  Block<T> steps;    // P r of all steps for a chunk's sides
  double* low_rank;  // of one output, by eigenvectors of its A
};

/// What only the way back needs.
template <class T>
struct BackwardScratch {
  Block<T> b, bt;                     // G and G^T
  Block<T> xt, zt;                    // transposed solutions
  Block<T> kx, kz, vdy;               // products with keys and values
  Block<T> stretch_kx, stretch_rest;  // room for those of a stretch that are no whole units of rows
  Block<T> dk, dv;
};

/// The scratch of one worker.
template <class T>
struct GradientScratch {
  Scratch<T> chunk;  // its rows are right-hand sides: those of q, then those of u, token by token
  std::optional<InterleavedScratch<T>> systems;  // where every token has its own
  std::optional<IterationScratch<T>> iteration;  // where they are iterated
  SolutionScratch<T> solutions;
  ForwardScratch<T> forward;
  BackwardScratch<T> backward;
  // Numbers of a stretch: c, w / c, sums over tokens; diagonals of dL/dR of its reading tokens.
  double *c, *weight, *sums, *diagonal;
  Block<T> dyt;   // dY^T
  Block<T> f;     // F + F^T; forward: all of A
  Block<T> rows;  // of a chunk

  GradientScratch(const Options& options, const Sizes& sizes, ScratchLayout& layout)
      : chunk(options, WithTwoSides(sizes), layout) {
    if (HasOwnSystems(options, sizes)) systems.emplace(sizes, 2 * sizes.queries, layout);
    if (options.iterates()) {
      iteration.emplace(options, WithTwoSides(sizes), chunk, layout, options.descends());
      const Block<T>& stacked = iteration->stacked;
      // Nothing is there while bytes are counted.
      if (stacked.data != nullptr) chunk.k = stacked.Rows(chunk.keys_unit);
    }
    layout.Take<double>(chunk.chunk, {&c, &weight, &sums});
    diagonal = layout.Take<double>(chunk.chunk * chunk.keys_unit);
    TakeSolutions(options, sizes, layout);
    TakeForward(options, sizes, layout);
    TakeBackward(options, sizes, layout);
  }

 private:
  std::int64_t Outputs(const Sizes& sizes) const {
    return RoundUp(chunk.chunk * sizes.queries, kUnit);
  }

  void TakeSolutions(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t outputs = sizes.tokens * sizes.queries;
    const std::int64_t more_pairs = MorePairs(options, sizes.key_dim);
    // Whole units are written of some of these.
    for (Block<T>* const whole : {&solutions.x, &solutions.z}) {
      *whole = TakeBlock<T>(layout, outputs + kUnit, chunk.keys_unit);
    }
    for (Block<T>* const whole : {&solutions.more.x, &solutions.more.z}) {
      *whole = TakeBlock<T>(layout, more_pairs * outputs, chunk.keys_unit);
    }
    solutions.more.outputs = outputs;
    const bool shares = !options.iterates() && options.ridge != Ridge::kRelative;
    for (Block<T>* const whole : {&solutions.kx, &solutions.rest}) {
      *whole = TakeBlock<T>(layout, shares ? outputs + kUnit : 0, chunk.chunk);
    }
    solutions.blocks = layout.Take<T>(
        options.descends() ? sizes.tokens * chunk.keys_unit * iteration->p.block : 0);
    solutions.worth = layout.Take<double>(sizes.tokens);
    solutions.bound_slope = layout.Take<double>(options.iteration.relative ? sizes.tokens : 0);
    const std::int64_t normed = options.depends_on_norm() ? sizes.tokens : 0;
    solutions.norm = layout.Take<double>(normed);
    solutions.ak = TakeBlock<T>(layout, normed > 0 ? normed + kUnit : 0, chunk.keys_unit);
    solutions.stretches = layout.Take<Stretch>(2 * sizes.tokens + 2);
  }

  void TakeForward(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    const bool own = HasOwnSystems(options, sizes);
    const std::int64_t outputs = Outputs(sizes);
    forward.a_before = TakeStrided<T>(layout, own ? chunk.keys_unit : 0, chunk.a.stride);
    forward.b_before = TakeStrided<T>(layout, own ? chunk.keys_unit : 0, chunk.b.stride);
    forward.bt = TakeBlock<T>(layout, chunk.values_unit, chunk.keys_unit);
    forward.vt = TakeBlock<T>(layout, chunk.values_unit, chunk.chunk);
    forward.u = TakeBlock<T>(layout, outputs, chunk.keys_unit);
    forward.scores = TakeBlock<T>(layout, outputs, chunk.chunk);
    forward.solutions = TakeBlock<T>(layout, chunk.columns, chunk.keys_unit);
    forward.steps = TakeBlock<T>(
        layout, options.descends() ? options.iteration.steps * chunk.columns : 0, chunk.keys_unit);
    forward.low_rank = layout.Take<double>(5 * sizes.key_dim);
  }

  void TakeBackward(const Options& options, const Sizes& sizes, ScratchLayout& layout) {
    const std::int64_t outputs = Outputs(sizes);
    const bool shares = !options.iterates() && options.ridge != Ridge::kRelative;
    dyt = TakeBlock<T>(layout, chunk.values_unit, outputs);
    f = TakeBlock<T>(layout, chunk.keys_unit, chunk.keys_unit);
    rows = TakeBlock<T>(layout, chunk.chunk, chunk.keys_unit);
    backward.b = TakeBlock<T>(layout, chunk.keys_unit, chunk.values_unit);
    backward.bt = TakeBlock<T>(layout, chunk.values_unit, chunk.keys_unit);
    for (Block<T>* const t : {&backward.xt, &backward.zt}) {
      *t = TakeBlock<T>(layout, chunk.keys_unit, outputs);
    }
    for (Block<T>* const products : {&backward.kx, &backward.kz, &backward.vdy}) {
      *products = TakeBlock<T>(layout, chunk.chunk, outputs);
    }
    for (Block<T>* const stretch : {&backward.stretch_kx, &backward.stretch_rest}) {
      *stretch = TakeBlock<T>(layout, shares ? outputs : 0, chunk.chunk);
    }
    backward.dk = TakeBlock<T>(layout, chunk.chunk, chunk.keys_unit);
    backward.dv = TakeBlock<T>(layout, chunk.chunk, chunk.values_unit);
  }
};

/// `scratch` is aligned and holds what GradientScratch takes.
void RunGradientFloat(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                      std::byte* scratch);
void RunGradientDouble(const Options& options, const GradientMemory& memory, const Sizes& sizes,
                       std::byte* scratch);

}  // namespace ttr::least_squares
