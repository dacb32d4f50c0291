// One memory taken through its sequence, chunk by chunk. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_RUN_INL_H_
#undef TTR_LEAST_SQUARES_RUN_INL_H_
#else
#define TTR_LEAST_SQUARES_RUN_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/careful.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/iterate-inl.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/own_systems-inl.h"
#include "src/engines/least_squares/prefixes-inl.h"
#include "src/engines/least_squares/step-inl.h"
#include "src/engines/least_squares/step_factor-inl.h"
#include "src/engines/least_squares/step_values-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

template <class T>
class Runner {
 public:
  Runner(const Options& options, const Memory& memory, const Sizes& sizes, std::byte* scratch)
      : options_(options),
        memory_(memory),
        s_(options, sizes, scratch),
        carried_(memory, s_),
        prefixes_(options, memory, s_, carried_, &ahead_),
        sizes_(sizes),
        behind_(scratch + s_.bytes) {}

  void Run() {
    const std::int64_t tokens = memory_.tokens;
    if (tokens == 1 && memory_.writes() && options_.causal) {
      if (memory_.defers) {
        StepAhead();
      } else {
        Step();
      }
      return;
    }
    if (tokens == 1 && !memory_.writes()) {
      ReadStep();
      return;
    }
    Stretch whole = WholeOf(memory_);
    Go(memory_.stretch != nullptr ? *memory_.stretch : whole);
  }

 private:
  void Go(Stretch& stretch) {
    const std::int64_t tokens = memory_.tokens;
    const bool blocks = memory_.queries > 0 && options_.own_systems() && Systems<T>::Pays(tokens);
    // Writes end with blocks, too: sums of other chunks would have other bits.
    const std::int64_t block = blocks ? Systems<T>::BlockTokens(tokens) : 1;
    const bool reads = carried_.Begin(options_, block, stretch);
    if (reads && options_.read_before && stretch.begin == 0) Answer(0, 1);
    std::int64_t t = stretch.begin;
    if (reads && blocks) {
      const SystemsScratch<T> systems(sizes_, sizes_.queries, behind_);
      OwnSystems<T> own(options_, memory_, s_, carried_, systems);
      while (t < stretch.end) t += own.Next(t);
    } else {
      while (t < stretch.end) {
        std::int64_t most = reads && options_.own_systems() ? 1 : s_.chunk;
        if (blocks) most = std::min(most, block - t % block);
        const std::int64_t done = Next(t, most, reads, stretch);
        if (done == 0) return;
        t += done;
      }
    }
    carried_.End(t, stretch);
    if (stretch.reads_last) AnswerAll(stretch.first, stretch.end);
  }

  /// Tokens from t on, `most` at the most; how many. 0: that would write more than the stretch.
  std::int64_t Next(std::int64_t t, std::int64_t most, bool reads, Stretch& stretch) {
    const Fetch fetch = reads && most > 1 ? Fetch::kLater : Fetch::kNow;
    const Chunk chunk = GatherChunk(memory_, t, most, s_, fetch);
    if (!carried_.Enter(chunk, stretch)) return 0;
    carried_.Fade(chunk.decay);
    const std::int64_t begin = FirstAnswer(t);
    const std::int64_t answered = reads ? AnsweredFrom(begin, chunk.tokens) : 0;
    if (answered == 0) {
      carried_.Write(chunk);
    } else if (chunk.tokens == 1) {
      carried_.Write(chunk);
      Answer(begin, answered);
    } else {
      FetchAfter(begin + chunk.tokens);
      const std::int64_t right = Solve(chunk, begin, answered, fetch);
      if (right == chunk.tokens) {
        ScatterAnswers(memory_, begin, answered, s_);
        carried_.Write(chunk);
      } else {
        // What stays written is always the chunk as a whole: a thread that only writes would not
        // know of the parts, and sums of parts have other bits.
        carried_.Keep(s_.saved);
        AnswerInParts(chunk, right);
        carried_.Load(s_.saved);
        carried_.Write(GatherChunk(memory_, t, most, s_));
      }
    }
    return chunk.tokens;
  }

  /// Answers, and writes, a chunk of which only `right` tokens were answered by Solve().
  void AnswerInParts(Chunk part, std::int64_t right) {
    const std::int64_t end = part.first + part.tokens;
    std::int64_t patience = 1;  // tokens that are solved one by one before the rest is tried again
    for (;;) {
      const std::int64_t begin = FirstAnswer(part.first);
      if (part.tokens == 1) {
        carried_.Write(part);
        Answer(begin, AnsweredFrom(begin, 1));
      } else {
        if (right == 0) {  // the memory is singular as the part begins
          patience = std::min<std::int64_t>(2 * patience, kUnit);
          carried_.Shorten(part, std::min(part.tokens, patience));
          SolveCarefully(part, begin, AnsweredFrom(begin, part.tokens));
        } else {
          patience = 1;
          carried_.Shorten(part, right);
          ScatterAnswers(memory_, begin, AnsweredFrom(begin, right), s_);
        }
        carried_.Write(part);
      }
      const std::int64_t t = part.first + part.tokens;
      if (t == end) return;
      part = GatherChunk(memory_, t, end - t, s_);
      carried_.Fade(part.decay);
      if (part.tokens > 1) {
        const std::int64_t next = FirstAnswer(t);
        right = Solve(part, next, AnsweredFrom(next, part.tokens), Fetch::kNow);
      }
    }
  }

  /// The first answer after token t is written, and how many of so many there are.
  std::int64_t FirstAnswer(std::int64_t t) const { return t + (options_.read_before ? 1 : 0); }
  std::int64_t AnsweredFrom(std::int64_t begin, std::int64_t tokens) const {
    return std::min(begin + tokens, memory_.tokens) - begin;
  }

  /// The rows of a chunk from this token on are fetched while the one before is solved.
  void FetchAfter(std::int64_t t) {
    ahead_ = AheadOf(memory_, s_, t);
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      ahead_.Add(OfQuery(memory_.y, memory_.y_head_stride, r), t, 0, memory_.value_dim);
    }
    // Tiles of the products and solves that fetch, or fewer.
    ahead_.Start(TilesOf<T>(3, s_.keys_unit, s_.chunk + s_.columns + s_.values_unit));
  }

  /// One token, of which the caller's state learns by Settle() alone. What the factor cannot bear
  /// goes the ordinary way.
  void StepAhead() {
    const StepFactor<T> factor(memory_, options_);
    const Chunk chunk = GatherChunk(memory_, 0, 1, s_);
    const T g = static_cast<T>(chunk.decay);
    if (!factor.holds() || !chunk.finite || !factor.Bears(g, s_.k)) {
      Flush<T>(memory_);
      Step();
      TakeFactor(factor);
      return;
    }
    const bool reads = memory_.queries > 0;
    const bool answers = reads && !options_.read_before;
    if (reads && options_.read_before) AnswerAhead(factor, 0);
    if (answers) LoadQueryOfStep(0);
    const auto shares = SharesOfStep();
    const bool holds = factor.Update(g, s_.k, answers ? s_.q : nullptr, shares);
    if (answers) {
      UpdateValues<true>(factor, shares, s_.v, s_.y);
    } else {
      UpdateValues<false>(factor, shares, s_.v, s_.y);
    }
    if (!holds) Flush<T>(memory_);
    if (!answers) return;
    if (!holds) {
      ReadStep();
      return;
    }
    LeaveAnswer(0);
    AnswerAhead(factor, 1);
  }

  typename StepFactor<T>::Shares SharesOfStep() const { return {Spare(0), Spare(1), Spare(2)}; }

  /// The queries from the r-th on, by the factor alone.
  void AnswerAhead(const StepFactor<T>& factor, std::int64_t r) const {
    for (; r < memory_.queries; ++r) {
      factor.Forward(LoadQueryOfStep(r), Spare(2));
      ReadValues(factor.layout(), Spare(2), s_.y);
      LeaveAnswer(r);
    }
  }
  /// s_.y as the answer of the r-th query.
  void LeaveAnswer(std::int64_t r) const {
    sn::StoreRow(s_.y, 0, 0, memory_.value_dim, OfQuery(memory_.y, memory_.y_head_stride, r));
  }

  /// From here on tokens go by a factor, if there is one.
  void TakeFactor(const StepFactor<T>& factor) {
    carried_.LoadGram();
    if (!prefixes_.FactorMemory()) return;
    factor.Take(prefixes_.factor());
    TakeValues<T>(memory_);
  }

  /// One token, in the caller's state.
  void Step() {
    const bool reads = memory_.queries > 0;
    if (reads && options_.read_before) ReadStep();
    const Chunk chunk = GatherChunk(memory_, 0, 1, s_);
    const T g = static_cast<T>(chunk.decay);
    const bool answers = reads && !options_.read_before;
    BitSum<T> before, after;
    WriteGram(memory_, g, s_.k, before, after);
    const bool carried = memory_.factor != nullptr && !memory_.defers;
    const bool solved =
        carried ? UpdateFactor(g, before, after, answers) : answers && SolveStep(after);
    if (answers && solved) {
      WriteValues<true>(memory_, g, s_.k, s_.v, s_.q, s_.y);
    } else {
      WriteValues<false>(memory_, g, s_.k, s_.v, s_.q, s_.y);
    }
    if (!answers) return;
    if (!solved) {
      AnswerStepCarefully();
      return;
    }
    for (std::int64_t r = 1; r < memory_.queries; ++r) ReadQuery(r);
    ScatterAnswers(memory_, 0, 1, s_);
  }

  /// Once the key in s_.k is written; with `answers` the queries become solutions as well. False: A
  /// is singular.
  bool UpdateFactor(T g, const BitSum<T>& before, const BitSum<T>& after, bool answers) {
    const StepFactor<T> factor(memory_, options_);
    const auto shares = SharesOfStep();
    T* const p = Spare(3);  // s_.k is needed again
    std::copy(s_.k, s_.k + s_.keys_unit, p);
    if (answers) LoadQueryOfStep(0);
    const bool updated =
        factor.Fits(before) && factor.Update(g, p, answers ? s_.q : nullptr, shares);
    if (!updated) {
      carried_.LoadGram();
      if (!prefixes_.FactorMemory()) {
        factor.Drop();
        return false;
      }
      factor.Take(prefixes_.factor());
    }
    factor.Seal(after);
    if (!answers) return true;
    if (updated) {
      factor.Backward(shares.read, s_.q);
    } else {
      SolveQuery(factor, 0);
    }
    for (std::int64_t r = 1; r < memory_.queries; ++r) SolveQuery(factor, r);
    return true;
  }

  void SolveQuery(const StepFactor<T>& factor, std::int64_t r) const {
    T* const q = LoadQueryOfStep(r);
    factor.Forward(q, Spare(2));
    factor.Backward(Spare(2), q);
  }

  T* LoadQueryOfStep(std::int64_t r) const {
    T* const q = s_.q + r * s_.k_stride;
    LoadQuery(options_, memory_, 0, r, q, s_.keys_unit);
    return q;
  }

  /// One token, of the memory as it is.
  void ReadStep() {
    if (!SolveStep(BitsOfGram<T>(memory_))) {
      AnswerStepCarefully();
      return;
    }
    for (std::int64_t r = 0; r < memory_.queries; ++r) ReadQuery(r);
    ScatterAnswers(memory_, 0, 1, s_);
  }

  void ReadQuery(std::int64_t r) {
    ReadInPlace(memory_, s_.q + r * s_.k_stride, s_.y + r * s_.y_stride);
  }

  void AnswerStepCarefully() {
    carried_.Load();
    GatherQueries(options_, memory_, 0, 1, s_);
    AnswerCarefully(0, 1);
  }

  /// The token's queries become solutions, in s_.q. `bits` are those of A. False: A is singular.
  bool SolveStep(const BitSum<T>& bits) {
    if (memory_.factor != nullptr) {
      const StepFactor<T> factor(memory_, options_);
      if (factor.Fits(bits)) {
        for (std::int64_t r = 0; r < memory_.queries; ++r) SolveQuery(factor, r);
        return true;
      }
    }
    GatherQueries(options_, memory_, 0, 1, s_);
    carried_.LoadGram();
    if (!prefixes_.SolveColumns(memory_.queries)) return false;
    const Block x = prefixes_.columns();
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) s_.q[r * s_.k_stride + i] = x.Row(i)[r];
    }
    return true;
  }

  /// Four rows of D numbers that no step of a token needs.
  T* Spare(std::int64_t row) const { return s_.b + row * RoundUp(s_.keys_unit, kAlignment); }

  /// Answers of a chunk in s_.y. Returns how many of its tokens are right (and the queries that
  /// see no others); 0: the memory that it starts from is singular.
  std::int64_t Solve(const Chunk& chunk, std::int64_t begin, std::int64_t reading, Fetch fetch) {
    GatherQueries(options_, memory_, begin, reading, s_, fetch);
    const std::int64_t rows = reading * memory_.queries;
    const std::int64_t tokens = prefixes_.Begin(chunk.tokens, rows, true);
    if (tokens == 0) return 0;
    prefixes_.Answers(memory_.queries);
    for (std::int64_t j = 0; j < rows && prefixes_.empty(); ++j) {
      const std::int64_t seen = j / memory_.queries + 1;
      if (seen > std::min(tokens, memory_.key_dim - 1)) break;
      MarkRegularised(memory_, begin + seen - 1, j % memory_.queries);
    }
    return tokens;
  }

  /// Answers of the memory as it is: x = (A + R)^-1 q, y = B^T x.
  void Answer(std::int64_t begin, std::int64_t reading) {
    GatherQueries(options_, memory_, begin, reading, s_);
    const std::int64_t rows = reading * memory_.queries;
    if (!prefixes_.SolveColumns(rows)) {
      AnswerCarefully(begin, reading);
      return;
    }
    ln::Multiply<ln::Into::kSet>(ln::Left<T>::Transposed(prefixes_.columns()), carried_.b(),
                                 RoundUp(rows, kUnit), ln::Whole{s_.values_unit, s_.keys_unit},
                                 ln::Block<T>{s_.y, s_.y_stride});
    ScatterAnswers(memory_, begin, reading, s_);
  }

  void AnswerAll(std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; t += s_.chunk) Answer(t, std::min(s_.chunk, end - t));
  }

  /// Token by token, in double.
  void SolveCarefully(const Chunk& chunk, std::int64_t begin, std::int64_t reading) {
    CarefulMemory<T> careful(memory_, options_, s_);
    for (std::int64_t i = 0; i < chunk.tokens; ++i) {
      careful.Add(s_.k + i * s_.k_stride, s_.v + i * s_.v_stride);
      if (i < reading) AnswerFrom(careful, begin + i, i);
    }
  }

  void AnswerCarefully(std::int64_t begin, std::int64_t reading) {
    CarefulMemory<T> careful(memory_, options_, s_);
    for (std::int64_t i = 0; i < reading; ++i) AnswerFrom(careful, begin + i, i);
  }

  /// The queries of `token`, which are the i-th of those gathered.
  void AnswerFrom(CarefulMemory<T>& careful, std::int64_t token, std::int64_t i) {
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      const std::int64_t j = i * memory_.queries + r;
      T* const y = s_.y + j * s_.y_stride;
      if (careful.Answer(s_.q + j * s_.k_stride, y)) MarkRegularised(memory_, token, r);
      if (!memory_.Leaves(token)) continue;
      sn::StoreRow(y, token, 0, memory_.value_dim, OfQuery(memory_.y, memory_.y_head_stride, r));
    }
  }

  using Block = ln::Block<T>;

  const Options& options_;
  const Memory& memory_;
  const Scratch<T> s_;
  const Carried<T> carried_;
  Prefetcher ahead_{0};
  Prefixes<T> prefixes_;
  const Sizes& sizes_;
  std::byte* const behind_;  // where the scratch of own systems begins
};

template <class T>
void Run(const Options& options, const Memory& memory, const Sizes& sizes, std::byte* scratch) {
  if (options.iterates()) {
    IteratingRunner<T>(options, memory, sizes, scratch).Run();
  } else {
    Runner<T>(options, memory, sizes, scratch).Run();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_RUN_INL_H_
