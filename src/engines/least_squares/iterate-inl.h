// One memory taken through its sequence by solvers that iterate. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_ITERATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_ITERATE_INL_H_
#undef TTR_LEAST_SQUARES_ITERATE_INL_H_
#else
#define TTR_LEAST_SQUARES_ITERATE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/chunk_factor-inl.h"
#include "src/engines/least_squares/factor_scratch.h"
#include "src/engines/least_squares/factored_gradients-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/iteration_scratch.h"
#include "src/engines/least_squares/iterations-inl.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/prefix_systems-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

template <class T>
class IteratingRunner {
 public:
  IteratingRunner(const Options& options, const Memory& memory, const Sizes& sizes,
                  std::byte* scratch)
      : options_(options),
        memory_(memory),
        s_(options, sizes, scratch),
        it_(options, sizes, s_, scratch + s_.bytes),
        carried_(memory, s_),
        f_(options, s_, scratch + s_.bytes + it_.bytes),
        systems_(options, memory, s_, it_, carried_),
        factor_(memory, systems_, s_, it_, f_),
        iterations_(options.iteration, systems_, s_, it_),
        factored_gradients_(options.iteration, systems_, factor_, s_, it_, f_) {
    s_.k = it_.stacked + s_.keys_unit * s_.k_stride;
  }
  IteratingRunner(const IteratingRunner&) = delete;
  IteratingRunner& operator=(const IteratingRunner&) = delete;

  void Run() {
    Stretch whole = WholeOf(memory_);
    Stretch& stretch = memory_.stretch != nullptr ? *memory_.stretch : whole;
    const bool reads = carried_.Begin(options_, 1, stretch);
    if (reads && options_.read_before && stretch.begin == 0) AnswerAll(0, 1);
    std::int64_t t = stretch.begin;
    while (t < stretch.end) {
      const std::int64_t done = Next(t, reads, stretch);
      if (done == 0) return;
      t += done;
    }
    carried_.End(t, stretch);
    if (stretch.reads_last) AnswerAll(stretch.first, stretch.end);
  }

 private:
  using Block = ln::Block<T>;

  /// Tokens from t on; how many. 0: that would write more than the stretch.
  std::int64_t Next(std::int64_t t, bool reads, Stretch& stretch) {
    const Chunk chunk = GatherChunk(memory_, t, s_.chunk, s_);
    if (!carried_.Enter(chunk, stretch)) return 0;
    carried_.Fade(chunk.decay);
    if (!reads || FirstAnswer(t) >= memory_.tokens) {
      carried_.Write(chunk);
      return chunk.tokens;
    }
    const bool finite = chunk.tokens == 1 || Prepare(&chunk);
    if (chunk.tokens == 1 || Serves(chunk)) {
      AnswerAndWrite(chunk, finite);
    } else {
      // What stays written is always the chunk as a whole (Runner::Next).
      carried_.Keep(s_.saved);
      AnswerInParts(chunk, finite);
      carried_.Load(s_.saved);
      carried_.Write(GatherChunk(memory_, t, s_.chunk, s_));
    }
    return chunk.tokens;
  }

  /// Answers, and writes, a chunk whose tokens outweigh the memory by more than its factor, which
  /// is prepared, has digits.
  void AnswerInParts(Chunk part, bool finite) {
    const std::int64_t end = part.first + part.tokens;
    for (;;) {
      if (part.tokens > 1 && !Serves(part)) {
        carried_.Shorten(part, std::max<std::int64_t>(1, factor_.tokens()));
      }
      AnswerAndWrite(part, finite);
      const std::int64_t t = part.first + part.tokens;
      if (t == end) return;
      part = GatherChunk(memory_, t, end - t, s_);
      carried_.Fade(part.decay);
      finite = part.tokens == 1 || Prepare(&part);
    }
  }

  /// Has the factor that was prepared, if there is one, digits for all tokens of the chunk?
  bool Serves(const Chunk& chunk) const { return !factored_ || factor_.tokens() == chunk.tokens; }

  void AnswerAndWrite(const Chunk& chunk, bool finite) {
    const std::int64_t begin = FirstAnswer(chunk.first);
    const std::int64_t answered = std::min(begin + chunk.tokens, memory_.tokens) - begin;
    if (chunk.tokens == 1) {
      carried_.Write(chunk);
      finite = Prepare(nullptr);
      Answer(begin, answered, 0, finite);
    } else {
      Answer(begin, answered, chunk.tokens, finite);
      carried_.Write(chunk);
    }
  }

  /// The first answer after token t is written.
  std::int64_t FirstAnswer(std::int64_t t) const { return t + (options_.read_before ? 1 : 0); }

  /// The systems of a chunk, or (no chunk) of the memory as it is, and the factor that they share.
  /// False: A is not finite.
  bool Prepare(const Chunk* chunk) {
    factored_ = false;
    if (!systems_.Prepare(chunk)) return false;
    if (options_.iteration.preconditioner == Preconditioner::kChunkFactor) {
      factored_ = factor_.Prepare(chunk ? chunk->tokens : 0);
      if (!factored_) systems_.Diagonals();
    }
    return true;
  }

  /// Answers of the memory as it is.
  void AnswerAll(std::int64_t begin, std::int64_t end) {
    const bool finite = Prepare(nullptr);
    for (std::int64_t t = begin; t < end; t += s_.chunk) {
      Answer(t, std::min(s_.chunk, end - t), 0, finite);
    }
  }

  /// Answers `reading` tokens, of which each sees one of the chunk's `tokens` more.
  void Answer(std::int64_t begin, std::int64_t reading, std::int64_t tokens, bool finite) {
    GatherQueries(options_, memory_, begin, reading, s_);
    const std::int64_t rows = reading * memory_.queries;
    const Block y{s_.y, s_.y_stride};
    if (finite) {
      const Block x = Solve({s_.q, s_.k_stride}, rows, tokens);
      if (memory_.residual) {
        iterations_.FindResiduals({s_.q, s_.k_stride}, x, rows, memory_.queries);
      }
      carried_.Read(systems_.kt(), x, tokens, RoundUp(rows, kUnit), memory_.queries,
                    {it_.scores, it_.kt_stride}, y);
    } else {
      for (std::int64_t j = 0; j < rows; ++j) {
        std::fill(y.Row(j), y.Row(j) + memory_.value_dim, std::numeric_limits<T>::quiet_NaN());
        it_.status[j] = 0;
        it_.iterations[j] = 0;
        it_.residual[j] = std::numeric_limits<double>::quiet_NaN();
      }
    }
    ScatterAnswers(memory_, begin, reading, s_);
    Report(begin, rows);
  }

  /// c_i x for every row, (A_i + R_i) x = q.
  Block Solve(const Block& q, std::int64_t rows, std::int64_t tokens) {
    if (factored_) return factored_gradients_.Solve(q, rows, memory_.queries);
    const Block x = iterations_.Solve(q, rows, memory_.queries);
    for (std::int64_t j = 0; tokens > 0 && j < rows; ++j) {
      const T fade = static_cast<T>(systems_.Fade(j / memory_.queries));
      if (fade != 1) sn::Multiply(x.Row(j), s_.keys_unit, fade);
    }
    return x;
  }

  void Report(std::int64_t begin, std::int64_t rows) const {
    for (std::int64_t j = 0; j < rows; ++j) {
      const std::int64_t token = begin + j / memory_.queries;
      const std::int64_t query = j % memory_.queries;
      if (!memory_.Leaves(token)) continue;
      if (it_.status[j] != 0) memory_.status.Set(token, query, it_.status[j]);
      memory_.iterations.Set(token, query, it_.iterations[j]);
      memory_.residual.Set(token, query, it_.residual[j]);
    }
  }

  const Options& options_;
  const Memory& memory_;
  Scratch<T> s_;
  const IterationScratch<T> it_;
  const Carried<T> carried_;
  const FactorScratch<T> f_;
  PrefixSystems<T> systems_;
  ChunkFactor<T> factor_;
  const Iterations<T> iterations_;
  FactoredGradients<T> factored_gradients_;
  bool factored_ = false;  // is there a factor for the systems that are prepared?
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_ITERATE_INL_H_
