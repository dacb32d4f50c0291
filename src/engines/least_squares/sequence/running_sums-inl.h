// A and B of a memory as running sums, and how chunks are added to them. Compiled once for every
// target.

#if defined(TTR_LEAST_SQUARES_SEQUENCE_RUNNING_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_SEQUENCE_RUNNING_SUMS_INL_H_
#undef TTR_LEAST_SQUARES_SEQUENCE_RUNNING_SUMS_INL_H_
#else
#define TTR_LEAST_SQUARES_SEQUENCE_RUNNING_SUMS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// sum <- g (sum + row), or g sum, in double, from the vector with column `begin` on; row <- the
/// nearest floats. `end` is a multiple of kUnit.
template <bool kAdd>
HWY_INLINE void SumInDouble(double g, std::int64_t begin, std::int64_t end, double* sum,
                            float* row) {
  const hn::CappedTag<double, kUnit> d;
  const hn::Rebind<float, decltype(d)> narrow;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto by = hn::Set(d, g);
  for (std::int64_t i = begin / lanes * lanes; i < end; i += lanes) {
    auto x = hn::Load(d, sum + i);
    if constexpr (kAdd) x = hn::Add(x, hn::PromoteTo(d, hn::Load(narrow, row + i)));
    x = hn::Mul(by, x);
    hn::Store(x, d, sum + i);
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128
    // DemoteTo turns infinity into a finite number there.
    for (std::int64_t j = i; j < i + lanes; ++j) row[j] = static_cast<float>(sum[j]);
#else
    hn::Store(hn::DemoteTo(narrow, x), narrow, row + i);
#endif
  }
}

/// A (its upper triangle) and B in the scratch of a worker, and the chunk that is written to them.
/// Floats of chunks are summed in double. Were every sum rounded, their rounding would soon pass
/// for data in directions that no key has.
template <class T>
class RunningSums {
 public:
  RunningSums(const Memory& memory, const Scratch<T>& scratch) : memory_(memory), s_(scratch) {}

  /// Loads A and B from the caller's state; Store() copies them back.
  void Load() const {
    LoadGram();
    const Block<T> from{static_cast<T*>(memory_.state.b), memory_.state.b_stride};
    linalg::ZeroRows(s_.b, 0, s_.keys_unit, s_.values_unit);
    linalg::CopyRows(from, memory_.key_dim(), memory_.value_dim(), s_.b);
    BeginSums();
  }
  void LoadGram() const {
    const Block<T> from{static_cast<T*>(memory_.state.a), memory_.state.a_stride};
    linalg::ZeroRows(s_.a, 0, s_.keys_unit, s_.keys_unit);
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      std::copy(from.Row(i) + i, from.Row(i) + memory_.key_dim(), s_.a.Row(i) + i);
    }
  }
  void Store() const {
    const Block<T> to{static_cast<T*>(memory_.state.a), memory_.state.a_stride};
    for (std::int64_t i = 0; i < memory_.key_dim(); ++i) {
      for (std::int64_t j = i; j < memory_.key_dim(); ++j) {
        to.Row(i)[j] = to.Row(j)[i] = s_.a.Row(i)[j];
      }
    }
    linalg::CopyRows(s_.b, memory_.key_dim(), memory_.value_dim(),
                     Block<T>{static_cast<T*>(memory_.state.b), memory_.state.b_stride});
  }

  /// Loads the rows of A's upper triangle and of B with all their digits.
  void Load(const double* saved) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      std::fill(s_.a.Row(i), s_.a.Row(i) + i, T(0));
      saved = LoadRow(saved, i, i, s_.keys_unit, s_.a, s_.a_sum);
      saved = LoadRow(saved, i, 0, s_.values_unit, s_.b, s_.b_sum);
    }
  }
  void Save(double* saved) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      saved = SaveRow(i, i, s_.keys_unit, s_.a, s_.a_sum, saved);
      saved = SaveRow(i, 0, s_.values_unit, s_.b, s_.b_sum, saved);
    }
  }

  /// Begins a segment, whose bounds it rounds to blocks of this many tokens. Does every token read?
  bool Begin(const Options& options, std::int64_t block, Segment& segment) const {
    const std::int64_t tokens = memory_.tokens;
    const bool asked = segment.reads && memory_.queries > 0 && tokens > 0;
    const bool reads = asked && memory_.writes() && options.causal;
    segment.reads_last = asked && !reads;
    const std::int64_t unit = segment.reads_last ? s_.chunk : block;
    for (std::int64_t* bound : {&segment.first, &segment.end}) {
      if (*bound < tokens) *bound = std::min((*bound + unit / 2) / unit * unit, tokens);
    }
    const std::int64_t later = reads && options.read_before ? 1 : 0;
    segment.own_begin = segment.first == 0 ? 0 : segment.first + later;
    segment.own_end = segment.end + later;
    if (segment.start != nullptr) {
      Load(segment.start);
    } else {
      Load();
    }
    return reads;
  }
  /// Called before a chunk is written. False: it goes beyond a segment that only writes, and is
  /// left to the one that reads it.
  bool Enter(const Chunk& chunk, Segment& segment) const {
    if (segment.reads || chunk.first + chunk.tokens <= segment.end) return true;
    End(chunk.first, segment);
    return false;
  }
  /// Saves or stores the memory as it is before token t.
  void End(std::int64_t t, Segment& segment) const {
    segment.saved_at = t;
    if (segment.finish != nullptr) Save(segment.finish);
    if (memory_.segment == nullptr && memory_.writes()) Store();
  }

  /// Starts the sums anew; called after something else has written A and B of the scratch.
  void BeginSums() const {
    if constexpr (kSums) {
      std::copy(s_.a.data, s_.a.Row(s_.keys_unit), s_.a_sum.data);
      std::copy(s_.b.data, s_.b.Row(s_.keys_unit), s_.b_sum.data);
    }
  }

  /// A and B times g. Forgetting everything leaves no NaN.
  void Fade(double g) const {
    if (g == 0) {
      linalg::ZeroRows(s_.a, 0, s_.keys_unit, s_.a.stride);
      linalg::ZeroRows(s_.b, 0, s_.keys_unit, s_.b.stride);
      BeginSums();
    } else if (g != 1) {
      if constexpr (kSums) {
        UpdateSums<false>(g);
      } else {
        Scale(g);
      }
    }
  }

  /// A <- c (A + K^T K), B <- c (B + K^T V), K and V weighted.
  void Write(const Chunk& chunk) const {
    constexpr ln::Into kInto = kSums ? ln::Into::kSet : ln::Into::kAdd;
    const std::int64_t tokens = chunk.tokens;
    const auto transposed = Left<T>::Transposed(s_.k);
    ln::Multiply<kInto>(transposed, s_.k, s_.keys_unit, ln::UpperResult{s_.keys_unit, tokens},
                        s_.a);
    ln::Multiply<kInto>(transposed, s_.v, s_.keys_unit, ln::Whole{s_.values_unit, tokens}, s_.b);
    if constexpr (kSums) {
      UpdateSums<true>(chunk.end);
    } else if (chunk.end != 1) {
      Scale(chunk.end);
    }
  }

  /// y_t = (B + sum_{i <= t} k_i v_i^T)^T x_t, K and V the chunk's: rows j of x and y belong to its
  /// token j / queries, of `rows` in whole units. `kt` is K^T; `scores` has room for as many rows
  /// of `tokens` numbers.
  void Read(const Block<T>& kt, const Block<T>& x, std::int64_t tokens, std::int64_t rows,
            const Block<T>& scores) const {
    const std::int64_t unit = RoundUp(tokens, kUnit);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(x), kt, rows, ln::Whole{unit, s_.keys_unit}, scores);
    linalg::ZeroAboveStairs(scores, rows, unit, memory_.queries);
    ln::Multiply<ln::Into::kSet>(Left<T>::Of(x), s_.b, rows,
                                 ln::Whole{s_.values_unit, s_.keys_unit}, s_.y);
    ln::Multiply<ln::Into::kAdd>(Left<T>::Of(scores), s_.v, rows,
                                 ln::LowerLeft{s_.values_unit, unit, memory_.queries}, s_.y);
  }

  /// Drops all but the first tokens of a chunk.
  void Shorten(Chunk& chunk, std::int64_t tokens) const {
    if (tokens >= chunk.tokens) return;
    double log_c = 0;
    for (std::int64_t i = 1; i < tokens; ++i) log_c += LogDecay(memory_, chunk.first + i);
    linalg::ZeroRows(s_.k, tokens, chunk.tokens, s_.keys_unit);
    linalg::ZeroRows(s_.v, tokens, chunk.tokens, s_.values_unit);
    chunk.tokens = tokens;
    chunk.end = std::exp(log_c);
  }

  /// |A|_F
  double FrobeniusNorm() const {
    double squares = 0;
    for (std::int64_t r = 0; r < memory_.key_dim(); ++r) {
      for (std::int64_t c = r; c < memory_.key_dim(); ++c) {
        const double x = static_cast<double>(s_.a.Row(r)[c]);
        squares += (r == c ? 1 : 2) * x * x;
      }
    }
    return std::sqrt(squares);
  }

 private:
  static constexpr bool kSums = sizeof(T) == sizeof(float);

  /// Columns begin .. end of row i.
  static const double* LoadRow(const double* saved, std::int64_t i, std::int64_t begin,
                               std::int64_t end, const Block<T>& rows, const Block<double>& sums) {
    T* const row = rows.Row(i);
    for (std::int64_t j = begin; j < end; ++j) row[j] = static_cast<T>(saved[j - begin]);
    if constexpr (kSums) std::copy(saved, saved + (end - begin), sums.Row(i) + begin);
    return saved + (end - begin);
  }
  static double* SaveRow(std::int64_t i, std::int64_t begin, std::int64_t end, const Block<T>& rows,
                         const Block<double>& sums, double* saved) {
    if constexpr (kSums) {
      return std::copy(sums.Row(i) + begin, sums.Row(i) + end, saved);
    } else {
      return std::copy(rows.Row(i) + begin, rows.Row(i) + end, saved);
    }
  }

  template <bool kAdd>
  void UpdateSums(double g) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      SumInDouble<kAdd>(g, i, s_.keys_unit, s_.a_sum.Row(i), s_.a.Row(i));
      SumInDouble<kAdd>(g, 0, s_.values_unit, s_.b_sum.Row(i), s_.b.Row(i));
    }
  }
  void Scale(double g) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      sn::Multiply(s_.a.Row(i) + i, s_.keys_unit - i, static_cast<T>(g));
      sn::Multiply(s_.b.Row(i), s_.values_unit, static_cast<T>(g));
    }
  }

  const Memory& memory_;
  const Scratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_SEQUENCE_RUNNING_SUMS_INL_H_
