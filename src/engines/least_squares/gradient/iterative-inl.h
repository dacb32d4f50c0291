// Forward through a sequence for what its gradient needs, where systems are iterated. Compiled once
// for every target.

#if defined(TTR_LEAST_SQUARES_GRADIENT_ITERATIVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_GRADIENT_ITERATIVE_INL_H_
#undef TTR_LEAST_SQUARES_GRADIENT_ITERATIVE_INL_H_
#else
#define TTR_LEAST_SQUARES_GRADIENT_ITERATIVE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gradient/norm_slope-inl.h"
#include "src/engines/least_squares/gradient/scratch.h"
#include "src/engines/least_squares/gradient/sides-inl.h"
#include "src/engines/least_squares/iterative/gradient_descent-inl.h"
#include "src/engines/least_squares/iterative/iterations-inl.h"
#include "src/engines/least_squares/iterative/prepared_systems-inl.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// What ExactSolutions does by factors. x and z take the same iteration, side by side.
template <class T>
class IterativeSolutions {
 public:
  IterativeSolutions(const Options& options, const GradientMemory& memory,
                     const GradientScratch<T>& scratch)
      : options_(options),
        memory_(memory.memory),
        s_(scratch),
        c_(scratch.chunk),
        sums_(memory_, c_),
        sides_(options, memory, scratch),
        norm_slope_(memory, scratch),
        prepared_(options, memory_, c_, *s_.iteration),
        iterations_(options.iteration, prepared_, c_, *s_.iteration),
        slope_(options, memory_, prepared_, *s_.iteration,
               {s_.forward.steps, s_.solutions.more, s_.solutions.blocks, s_.solutions.worth,
                s_.solutions.bound_slope, s_.forward.low_rank, s_.diagonal, s_.rows.data},
               c_.keys_unit, {memory.dstep, memory.dmomentum}) {}
  IterativeSolutions(const IterativeSolutions&) = delete;
  IterativeSolutions& operator=(const IterativeSolutions&) = delete;

  /// Leaves A and B of the end in the scratch. Returns the number of stretches.
  std::int64_t Run() {
    sums_.Load();
    const std::int64_t tokens = memory_.tokens;
    if (options_.causal && options_.read_before && tokens > 0) ReadMemory(0, 1);
    for (std::int64_t t = 0; t < tokens;) t += Next(t);
    if (!options_.causal) ReadMemory(0, tokens);
    return stretches_;
  }

 private:
  /// Tokens from t on; how many.
  std::int64_t Next(std::int64_t t) {
    const Chunk chunk = GatherChunk(memory_, t, c_.chunk, c_);
    sums_.Fade(chunk.decay);
    const std::int64_t begin = t + (options_.read_before ? 1 : 0);
    const std::int64_t reading =
        options_.causal ? std::min(begin + chunk.tokens, memory_.tokens) - begin : 0;
    const Stretch stretch{t, chunk.tokens, begin, reading, chunk.decay, chunk.end, Pairs()};
    if (reading > 0) {
      prepared_.Prepare(&chunk);
      Solve(stretch);
    }
    AddStretch(stretch);
    sums_.Write(chunk);
    return chunk.tokens;
  }

  /// Outputs of the memory as it is.
  void ReadMemory(std::int64_t begin, std::int64_t reading) {
    prepared_.Prepare(nullptr);
    for (std::int64_t t = begin; t < begin + reading; t += c_.chunk) {
      const Stretch stretch{t, 0, t, std::min(c_.chunk, begin + reading - t), 1, 1, Pairs()};
      Solve(stretch);
      AddStretch(stretch);
    }
  }

  std::int64_t Pairs() const { return MorePairs(options_, memory_.key_dim()); }

  void AddStretch(const Stretch& stretch) {
    if (options_.depends_on_norm()) norm_slope_.Find(stretch);
    s_.solutions.stretches[stretches_++] = stretch;
  }

  void Solve(const Stretch& stretch) {
    sides_.Gather(stretch.begin, stretch.reading, stretch.tokens);
    const std::int64_t queries = memory_.queries;
    ScaleRows(stretch, c_.q.Rows(queries));  // u was found from B / c
    if (options_.iteration.given) GatherSteps(stretch);
    for (std::int64_t j = 0; options_.iteration.momentum && j < 2 * stretch.reading * queries;
         ++j) {
      s_.iteration->momentum[j] =
          sn::LoadOne<T>(memory_.momentum, stretch.begin + j / (2 * queries));
    }
    const Block<T> solutions =
        iterations_.Solve(c_.q, 2 * stretch.reading * queries, 2 * queries, s_.forward.steps);
    if (options_.descends()) {
      for (std::int64_t j = 0; j < stretch.reading; ++j) {
        slope_.Store({stretch.begin, stretch.reading}, j, c_.q, solutions);
      }
    }
    ScaleRows(stretch, solutions);
    sides_.Store(solutions, stretch.begin, stretch.reading);
  }

  /// The sizes of steps: for z in reverse order, so that the steps of both meet in each of A.
  void GatherSteps(const Stretch& stretch) const {
    const std::int64_t queries = memory_.queries, steps = options_.iteration.steps;
    for (std::int64_t j = 0; j < 2 * stretch.reading * queries; ++j) {
      T* const etas = s_.iteration->etas + j * steps;
      sn::LoadRow(memory_.step, stretch.begin + j / (2 * queries), 0, steps, etas);
      if (j % (2 * queries) >= queries) std::reverse(etas, etas + steps);
    }
  }

  /// The first half of every token's rows times its c.
  void ScaleRows(const Stretch& stretch, const Block<T>& rows) const {
    for (std::int64_t j = 0; j < stretch.reading && stretch.tokens > 0; ++j) {
      const T c = static_cast<T>(prepared_.systems().Fade(j));
      for (std::int64_t r = 0; r < memory_.queries && c != 1; ++r) {
        sn::Multiply(rows.Row(2 * j * memory_.queries + r), c_.keys_unit, c);
      }
    }
  }

  const Options& options_;
  const Memory& memory_;
  const GradientScratch<T>& s_;
  const Scratch<T>& c_;
  const RunningSums<T> sums_;
  const GradientSides<T> sides_;
  const NormSlope<T> norm_slope_;
  PreparedSystems<T> prepared_;
  const Iterations<T> iterations_;
  const DescentSlope<T> slope_;
  std::int64_t stretches_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_GRADIENT_ITERATIVE_INL_H_
