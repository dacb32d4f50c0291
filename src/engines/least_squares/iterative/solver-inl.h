// Outputs by solvers that iterate. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATIVE_SOLVER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATIVE_SOLVER_INL_H_
#undef TTR_LEAST_SQUARES_ITERATIVE_SOLVER_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATIVE_SOLVER_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/core/diverged.h"
#include "src/engines/least_squares/iterative/chunk_factor-inl.h"
#include "src/engines/least_squares/iterative/chunk_factor_solver-inl.h"
#include "src/engines/least_squares/iterative/iterations-inl.h"
#include "src/engines/least_squares/iterative/prepared_systems-inl.h"
#include "src/engines/least_squares/iterative/scratch.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/engines/least_squares/sequence/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The Solver of Walk where systems are iterated.
template <class T>
class IterativeSolver {
 public:
  static constexpr Fetch kFetch = Fetch::kNow;

  /// Moves the chunk's keys of `s` to the matrix that is iterated with.
  IterativeSolver(const Options& options, const Memory& memory, const Sizes& sizes, Scratch<T>& s,
                  const RunningSums<T>& sums, ScratchLayout& layout)
      : options_(options),
        memory_(memory),
        s_(s),
        it_(options, sizes, s, layout),
        f_(options, s, layout),
        sums_(sums),
        prepared_(options, memory, s, it_),
        factor_(memory, prepared_.systems(), s, it_, f_),
        iterations_(options.iteration, prepared_, s, it_),
        chunk_factor_solver_(options.iteration, prepared_.systems(), factor_, s, it_, f_) {
    s.k = it_.stacked.Rows(s.keys_unit);
  }
  IterativeSolver(const IterativeSolver&) = delete;
  IterativeSolver& operator=(const IterativeSolver&) = delete;

  std::int64_t BlockTokens() const { return 1; }
  std::int64_t NextBlock(std::int64_t) const { return 0; }
  std::int64_t MostTokens() const { return s_.chunk; }

  void ReadMemory(std::int64_t begin, std::int64_t end) {
    const bool finite = Prepare(nullptr);
    for (std::int64_t t = begin; t < end; t += s_.chunk) {
      Read({t, std::min(s_.chunk, end - t)}, 0, finite);
    }
  }

  std::int64_t ReadChunk(const Chunk& chunk, const Reads& read, Fetch) {
    const bool finite = Prepare(&chunk);
    const std::int64_t right = factored_ ? factor_.tokens() : chunk.tokens;
    if (right <= 1) return 0;  // the first token outweighs the memory
    Read({read.begin, std::min(read.count, right)}, right, finite);
    return right;
  }

  void BeginParts() const {}
  void TakeFirst(Chunk& part, std::int64_t begin) {
    sums_.Shorten(part, 1);
    sums_.Write(part);
    ReadMemory(begin, std::min(begin + 1, memory_.tokens));
  }

 private:
  /// The systems of a chunk, or (no chunk) of the memory as it is, and the factor that they share.
  /// False: A is not finite.
  bool Prepare(const Chunk* chunk) {
    factored_ = false;
    if (!prepared_.Prepare(chunk)) return false;
    if (options_.iteration.preconditioner == Preconditioner::kChunkFactor) {
      factored_ = factor_.Prepare(chunk ? chunk->tokens : 0);
      if (!factored_) prepared_.blocks().PrepareDiagonals();
    }
    return true;
  }

  /// Outputs of tokens of which each sees one of the chunk's `tokens` more.
  void Read(const Reads& read, std::int64_t tokens, bool finite) {
    GatherQueries(options_, memory_, read.begin, read.count, s_);
    const std::int64_t rows = read.count * memory_.queries;
    if (finite) {
      const Block<T> x = Solve(read.begin, rows, tokens);
      if (memory_.residual || Judged()) iterations_.FindResiduals(s_.q, x, rows, memory_.queries);
      sums_.Read(it_.kt, x, tokens, RoundUp(rows, kUnit), it_.scores);
    } else {
      for (std::int64_t j = 0; j < rows; ++j) {
        T* const y = s_.y.Row(j);
        std::fill(y, y + memory_.value_dim(), std::numeric_limits<T>::quiet_NaN());
        it_.sides.status[j] = 0;
        it_.sides.iterations[j] = 0;
        it_.sides.residual[j] = std::numeric_limits<double>::quiet_NaN();
      }
    }
    ScatterOutputs(memory_, read.begin, read.count, s_);
    Report(read.begin, rows);
  }

  /// Does the status follow from residuals? Conjugate gradients find the size of their steps
  /// themselves: in the norm of A they never make matters worse.
  bool Judged() const {
    return memory_.status && options_.iteration.solver != Solver::kConjugateGradient;
  }

  /// c_i x for every row of s.q, of the tokens from `begin` on, (A_i + R_i) x = q.
  Block<T> Solve(std::int64_t begin, std::int64_t rows, std::int64_t tokens) {
    if (factored_) return chunk_factor_solver_.Solve(s_.q, rows, memory_.queries);
    for (std::int64_t j = 0; options_.iteration.given && j < rows; ++j) {
      const std::int64_t steps = options_.iteration.steps;
      sn::LoadRow(memory_.step, begin + j / memory_.queries, 0, steps, it_.etas + j * steps);
    }
    for (std::int64_t j = 0; options_.iteration.momentum && j < rows; ++j) {
      it_.momentum[j] = sn::LoadOne<T>(memory_.momentum, begin + j / memory_.queries);
    }
    const Block<T> x = iterations_.Solve(s_.q, rows, memory_.queries);
    for (std::int64_t j = 0; tokens > 0 && j < rows; ++j) {
      const T fade = static_cast<T>(prepared_.systems().Fade(j / memory_.queries));
      if (fade != 1) sn::Multiply(x.Row(j), s_.keys_unit, fade);
    }
    return x;
  }

  void Report(std::int64_t begin, std::int64_t rows) const {
    for (std::int64_t j = 0; j < rows; ++j) {
      const std::int64_t token = begin + j / memory_.queries;
      const std::int64_t query = j % memory_.queries;
      if (!memory_.Stores(token)) continue;
      std::int8_t status = it_.sides.status[j];
      if (status == Iterations<T>::kSolved && Judged() && Diverged(it_.sides.residual[j])) {
        status = Iterations<T>::kNotConverged;
      }
      if (status != 0) memory_.status.Set(token, query, status);
      memory_.iterations.Set(token, query, it_.sides.iterations[j]);
      memory_.residual.Set(token, query, it_.sides.residual[j]);
    }
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const IterationScratch<T> it_;
  const ChunkFactorScratch<T> f_;
  const RunningSums<T>& sums_;
  PreparedSystems<T> prepared_;
  ChunkFactor<T> factor_;
  const Iterations<T> iterations_;
  ChunkFactorSolver<T> chunk_factor_solver_;
  bool factored_ = false;  // is there a factor for the systems that are prepared?
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATIVE_SOLVER_INL_H_
