// One memory taken through its sequence, chunk by chunk. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_RUN_INL_H_
#undef TTR_LEAST_SQUARES_RUN_INL_H_
#else
#define TTR_LEAST_SQUARES_RUN_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/careful.h"
#include "src/engines/least_squares/carried-inl.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/layout.h"
#include "src/engines/least_squares/own_systems-inl.h"
#include "src/simd/blocks-inl.h"
#include "src/simd/strided-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// How much larger a token's leverage may be at the start of its chunk than when its turn comes:
/// digits are lost in proportion.
inline constexpr double kMostLoss = 8;

template <class T>
class Runner {
 public:
  Runner(const Options& options, const Memory& memory, const Sizes& sizes, std::byte* scratch)
      : options_(options),
        memory_(memory),
        s_(options, sizes, scratch),
        carried_(memory, s_),
        block_(sizes, sizes.queries,
               SystemsBytes<T>(options, sizes) > 0 ? scratch + s_.bytes : nullptr) {}

  void Run() {
    carried_.Load();
    const std::int64_t tokens = memory_.tokens;
    if (!memory_.writes()) {
      AnswerAll();
      return;
    }
    const bool reads = memory_.queries > 0 && options_.causal;
    if (reads && options_.read_before && tokens > 0) Answer(0, 1);
    if (reads && options_.own_systems() && OwnSystems<T>::Pays(tokens)) {
      OwnSystems<T>(options_, memory_, s_, carried_, block_).Run();
    } else {
      for (std::int64_t t = 0; t < tokens;) t += Next(t, reads);
    }
    carried_.Store();
    if (!options_.causal) AnswerAll();
  }

 private:
  using Block = sn::Block<T>;
  using Left = sn::Left<T>;

  Block a() const { return carried_.a(); }
  Block b() const { return carried_.b(); }
  Block values() const { return carried_.values(); }
  Block queries() const { return {s_.q, s_.k_stride}; }
  Block answers() const { return {s_.y, s_.y_stride}; }
  Block first() const { return {s_.first, s_.first_stride}; }
  Block second() const { return {s_.second, s_.second_stride}; }

  /// Tokens from t on; how many.
  std::int64_t Next(std::int64_t t, bool reads) {
    const std::int64_t most = reads && options_.own_systems() ? 1 : s_.chunk;
    Chunk chunk = GatherChunk(memory_, t, most, s_);
    carried_.Fade(chunk.decay);
    const std::int64_t begin = t + (options_.read_before ? 1 : 0);
    auto answered = [&] { return std::min(begin + chunk.tokens, memory_.tokens) - begin; };
    if (!reads || answered() == 0) {
      carried_.Write(chunk);
      return chunk.tokens;
    }
    if (chunk.tokens == 1) {
      carried_.Write(chunk);
      Answer(begin, answered());
      return 1;
    }
    GatherQueries(options_, memory_, begin, answered(), s_);
    const std::int64_t right = Solve(chunk, answered());
    if (right == 0) {
      // The memory is singular as the chunk begins: some tokens one by one, then it is tried anew.
      patience_ = std::min<std::int64_t>(2 * patience_, kUnit);
      carried_.Shorten(chunk, std::min(chunk.tokens, patience_));
      SolveCarefully(chunk, begin, answered());
    } else {
      patience_ = 1;
      carried_.Shorten(chunk, right);
      ScatterAnswers(memory_, begin, answered(), s_);
    }
    carried_.Write(chunk);
    return chunk.tokens;
  }

  /// [A + R | ...] in `first`, R the ridge that is not in the state; ones on the diagonal behind D.
  void CopyMemory() {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      std::copy(a().Row(i) + i, a().Row(i) + s_.keys_unit, first().Row(i) + i);
    }
    for (std::int64_t i = memory_.key_dim; i < s_.keys_unit; ++i) first().Row(i)[i] = T(1);
    if (options_.ridge == Ridge::kInState) return;
    const double factor = options_.ridge == Ridge::kRelative ? carried_.FrobeniusNorm() : 1;
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      first().Row(i)[i] += static_cast<T>(memory_.ridge[i] * factor);
    }
  }

  /// U, or false where A is singular to rounding or not finite.
  bool FactorMemory() {
    const T rounding = static_cast<T>(Rounding<T>(memory_.key_dim));
    const auto goes_on = [&](std::int64_t, T diagonal, T left) {
      return left > rounding * diagonal && diagonal > static_cast<T>(kFaded<T>);
    };
    return sn::Factor(first(), s_.keys_unit, goes_on).index == s_.keys_unit;
  }

  bool Empty() const {
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      if (a().Row(i)[i] != 0) return false;
    }
    return options_.ridge == Ridge::kInState;
  }

  /// Answers of a chunk in s_.y. Returns how many of its tokens are right (and the queries that
  /// see no others); 0: the memory it starts from is singular.
  std::int64_t Solve(const Chunk& chunk, std::int64_t reading) {
    const bool empty = Empty();
    const std::int64_t tokens_unit = RoundUp(chunk.tokens, kUnit);
    const std::int64_t columns = RoundUp(reading * memory_.queries, kUnit);
    const Block wk = first().Columns(s_.first_k());
    const Block wq = first().Columns(s_.first_q());
    const Block wb = first().Columns(s_.first_b());
    sn::TransposeStrided(s_.k, s_.k_stride, tokens_unit, s_.keys_unit, wk.data, wk.stride);
    sn::TransposeStrided(s_.q, s_.k_stride, columns, s_.keys_unit, wq.data, wq.stride);
    if (!empty) {
      CopyMemory();
      if (!FactorMemory()) return 0;
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
        std::copy(b().Row(i), b().Row(i) + s_.values_unit, wb.Row(i));
      }
      // Columns that are not there are not touched; those that are stand in three places.
      sn::SubstituteDown(first(), s_.keys_unit, first(), s_.first_k(), s_.first_k() + tokens_unit);
      sn::SubstituteDown(first(), s_.keys_unit, first(), s_.first_q(), s_.first_q() + columns);
      sn::SubstituteDown(first(), s_.keys_unit, first(), s_.first_b(), s_.first_end());
    }
    std::int64_t tokens = chunk.tokens;
    for (;;) {
      const std::int64_t right = FactorTokens(tokens, empty);
      if (right == tokens) break;
      if (right == 0) return 0;
      tokens = right;
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
        std::fill(wk.Row(i) + tokens, wk.Row(i) + tokens_unit, T(0));
      }
    }
    SolveTokens(tokens, columns, empty);
    if (empty) {  // fewer tokens than dimensions: the solution of least norm
      for (std::int64_t j = 0; j < reading * memory_.queries; ++j) {
        if (j / memory_.queries + 1 >= memory_.key_dim) break;
        MarkRegularised(memory_, chunk.first + (options_.read_before ? 1 : 0) + j / memory_.queries,
                        j % memory_.queries);
      }
    }
    return tokens;
  }

  /// S = I + Wk^T Wk = L L^T (without I where the memory is empty), for this many tokens. Returns
  /// how many of them keep their digits.
  std::int64_t FactorTokens(std::int64_t tokens, bool empty) {
    const std::int64_t unit = RoundUp(tokens, kUnit);
    const Block wk = first().Columns(s_.first_k());
    sn::Multiply<sn::Into::kSet>(Left::Transposed(wk), wk, unit,
                                 sn::UpperResult{unit, s_.keys_unit}, second());
    for (std::int64_t i = 0; i < unit; ++i) {
      T& diagonal = second().Row(i)[i];
      diagonal = i < tokens ? diagonal + (empty ? T(0) : T(1)) : T(1);
    }
    const T rounding = static_cast<T>(Rounding<T>(memory_.key_dim));
    // A token this far beyond all that the memory has seen leaves it singular to rounding.
    const T most_leverage = static_cast<T>(1 / Rounding<double>(memory_.key_dim));
    const auto goes_on = [&](std::int64_t i, T diagonal, T left) {
      if (empty) return left > rounding * diagonal && diagonal > static_cast<T>(kFaded<T>);
      if (diagonal > most_leverage) return false;
      return left * static_cast<T>(kMostLoss) >= diagonal || (i == 0 && !(left <= 0));
    };
    return std::min(sn::Factor(second(), unit, goes_on).index, tokens);
  }

  /// E and P, then Y.
  void SolveTokens(std::int64_t tokens, std::int64_t columns, bool empty) {
    const std::int64_t unit = RoundUp(tokens, kUnit);
    const Block wk = first().Columns(s_.first_k());
    const Block wq = first().Columns(s_.first_q());
    const Block wb = first().Columns(s_.first_b());
    const Block e = second().Columns(s_.second_v());
    const Block p = second().Columns(s_.second_q());
    for (std::int64_t i = 0; i < unit; ++i) {
      std::copy(values().Row(i), values().Row(i) + s_.values_unit, e.Row(i));
      if (i >= tokens) std::fill(e.Row(i), e.Row(i) + s_.values_unit, T(0));
    }
    if (!empty) {
      sn::Multiply<sn::Into::kSubtract>(Left::Transposed(wk), wb, unit,
                                        sn::Whole{s_.values_unit, s_.keys_unit}, e);
    }
    sn::Multiply<sn::Into::kSet>(Left::Transposed(wk), wq, unit,
                                 sn::UpperResult{columns, s_.keys_unit, memory_.queries}, p);
    sn::SubstituteDown(second(), unit, e, 0, s_.values_unit);
    sn::SubstituteDown(second(), unit, p, 0, columns);
    for (std::int64_t i = 0; i < unit; ++i) {  // a query sees no later token
      const std::int64_t unseen = i < tokens ? std::min(i * memory_.queries, columns) : columns;
      std::fill(p.Row(i), p.Row(i) + unseen, T(0));
    }
    if (empty) {
      for (std::int64_t i = 0; i < columns; ++i) {
        std::fill(answers().Row(i), answers().Row(i) + s_.values_unit, T(0));
      }
    } else {
      sn::Multiply<sn::Into::kSet>(Left::Transposed(wq), wb, columns,
                                   sn::Whole{s_.values_unit, s_.keys_unit}, answers());
    }
    sn::Multiply<sn::Into::kAdd>(Left::Transposed(p), e, columns,
                                 sn::LowerLeft{s_.values_unit, unit, memory_.queries}, answers());
  }

  /// Answers of the memory as it is: x = (A + R)^-1 q, y = B^T x.
  void Answer(std::int64_t begin, std::int64_t reading) {
    GatherQueries(options_, memory_, begin, reading, s_);
    const std::int64_t columns = RoundUp(reading * memory_.queries, kUnit);
    const Block x = first().Columns(s_.first_q());
    sn::TransposeStrided(s_.q, s_.k_stride, columns, s_.keys_unit, x.data, x.stride);
    CopyMemory();
    if (!FactorMemory()) {
      AnswerCarefully(begin, reading);
      return;
    }
    sn::SubstituteDown(first(), s_.keys_unit, x, 0, columns);
    sn::SubstituteUp(first(), s_.keys_unit, x, 0, columns);
    sn::Multiply<sn::Into::kSet>(Left::Transposed(x), b(), columns,
                                 sn::Whole{s_.values_unit, s_.keys_unit}, answers());
    ScatterAnswers(memory_, begin, reading, s_);
  }

  void AnswerAll() {
    for (std::int64_t t = 0; t < memory_.tokens; t += s_.chunk) {
      Answer(t, std::min(s_.chunk, memory_.tokens - t));
    }
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
      sn::StoreRow(y, token, 0, memory_.value_dim, OfQuery(memory_.y, memory_.y_head_stride, r));
    }
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T> s_;
  const Carried<T> carried_;
  const SystemsScratch<T> block_;  // of own systems only
  std::int64_t patience_ = 1;  // tokens that are solved one by one before a chunk is tried again
};

template <class T>
void Run(const Options& options, const Memory& memory, const Sizes& sizes, std::byte* scratch) {
  Runner<T>(options, memory, sizes, scratch).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_RUN_INL_H_
