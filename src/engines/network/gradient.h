/// What goes back through one memory: what the glue hands to the kernel, and how this divides its
/// scratch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/network/backward.h"
#include "src/engines/network/checkpoints.h"
#include "src/engines/network/coefficients.h"
#include "src/engines/network/task.h"

namespace ttr::network {

/// Gradients of one memory, of which y of the Memory is dy.
struct MemoryGradients {
  HeadRows q;
  Rows k, v, step, momentum, weight_decay;
  Rows ln_weight, ln_bias, row_bias;
  const StateParameters* final = nullptr;
  const StateParameters* initial = nullptr;
};

struct GradientTask {
  const Options& options;
  const Shape& shape;
  Team& team;
  Memory memory;
  MemoryGradients gradients;
  Levels levels;
  std::int64_t longest = 0;          // tokens, for which checkpoints have room
  const std::byte* saved = nullptr;  // checkpoints of the first level, or null
  std::byte* scratch = nullptr;
};

/// Gradients of a chunk's queries, of one layer.
template <class T>
struct QueryGradients {
  Block<T> pairs;     // [query][pair]: gradients for scores
  Block<T> zq, u;     // [token][channel]
  Block<T> residual;  // [token][channel]: for what the residual connection adds
};

template <class T>
struct GradientScratch {
  Scratch<T> forward;
  StateBlocks<T> state;
  StateBlocks<T> kept;      // the parameters, while what the chunk makes of them is read
  TokenRows<T> curvatures;  // act''(z) of keys
  TokenRows<T> before;      // of keys, what comes down to x before it meets act'(z)
  TokenRows<T> ddz, z, x;   // gradients for dz, z and x
  QueryGradients<T> queries;
  T *error, *room;         // [channel]
  T* dots[3];              // [row of weights]
  T *ln_weight, *ln_bias;  // [channel]: sums
  T* row_bias;             // [place]
  Coefficients<T> coefficients;
  RateGradients<T> rates;
  T* checkpoints;  // [level][checkpoint]

  GradientScratch(const Options& options, const Shape& shape, const Levels& levels,
                  std::int64_t tokens, bool saved, ScratchLayout& layout)
      : forward(options, shape, layout),
        state(options, shape, layout),
        curvatures(shape, TokenRows<T>::Of::kOut, layout),
        before(shape, TokenRows<T>::Of::kOut, layout),
        ddz(shape, TokenRows<T>::Of::kOut, layout),
        z(shape, TokenRows<T>::Of::kOut, layout),
        x(shape, TokenRows<T>::Of::kIn, layout),
        coefficients(layout),
        rates(layout) {
    if (options.read == Read::kBatchEnd || options.adapts()) {
      kept.weights = {shape, true, layout};
      kept.second = {shape, options.has_second(), layout};
      kept.squares = {shape, options.adapts(), layout};
    }
    const std::int64_t width = Scratch<T>::Widest(shape);
    const auto block = [&](std::int64_t columns) {
      const std::int64_t stride = linalg::StrideOf<T>(columns);
      return Block<T>{layout.Take<T>(kBlock * stride), stride};
    };
    all_scores_ = block(kBlock);
    for (std::int64_t l = 1; l < shape.depth; ++l) block(kBlock);
    queries = {.pairs = block(kBlock),
               .zq = block(width),
               .u = block(width),
               .residual = block(linalg::RoundUp(shape.value_dim, kUnit))};
    layout.Take(shape.value_dim, {&error, &room, &ln_weight, &ln_bias});
    layout.Take(width, {&dots[0], &dots[1], &dots[2]});
    row_bias = layout.Take<T>(options.inverse_rows ? options.mini_batch : 0);
    const std::int64_t checkpoint = Checkpoint<T>(options, shape).Numbers();
    const std::int64_t chunks = MostChunks(options, tokens);
    std::int64_t count = 0;
    for (int level = saved ? 1 : 0; level < levels.count; ++level) {
      count += levels.Kept(level, chunks);
    }
    checkpoints = layout.Take<T>(count * checkpoint);
  }

  Block<T> Scores(std::int64_t l) const {
    return {all_scores_.data + l * RoundedScores(), all_scores_.stride};
  }

 private:
  std::int64_t RoundedScores() const { return kBlock * all_scores_.stride; }
  Block<T> all_scores_;
};

/// One memory through one sequence and back; GradientTask::scratch, at a multiple of 64, has the
/// bytes of GradientScratch.
void RunBack(const GradientTask& task, DType dtype);

}  // namespace ttr::network
