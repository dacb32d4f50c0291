// The memory that a sequence carries, and how it is written. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_CARRIED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_CARRIED_INL_H_
#undef TTR_LEAST_SQUARES_CARRIED_INL_H_
#else
#define TTR_LEAST_SQUARES_CARRIED_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/gather-inl.h"
#include "src/engines/least_squares/layout.h"
#include "src/linalg/blocks-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

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
    // DemoteTo makes a number of infinity there.
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
class Carried {
 public:
  using Block = ln::Block<T>;
  using Left = ln::Left<T>;

  Carried(const Memory& memory, const Scratch<T>& scratch) : memory_(memory), s_(scratch) {}

  Block a() const { return {s_.a, s_.a_stride}; }
  Block b() const { return {s_.b, s_.b_stride}; }
  Block keys() const { return {s_.k, s_.k_stride}; }
  Block values() const { return {s_.v, s_.v_stride}; }

  /// From the caller's state, and back.
  void Load() const {
    LoadGram();
    const T* const from = static_cast<const T*>(memory_.b);
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      std::fill(b().Row(i), b().Row(i) + s_.values_unit, T(0));
      if (i >= memory_.key_dim) continue;
      const T* const row = from + i * memory_.b_stride;
      std::copy(row, row + memory_.value_dim, b().Row(i));
    }
    BeginSums();
  }
  /// With all digits: the rows of A's upper triangle and of B.
  void Load(const double* saved) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      std::fill(a().Row(i), a().Row(i) + i, T(0));
      saved = Take(saved, s_.keys_unit - i, i * s_.a_stride + i, s_.a, s_.a_sum);
      saved = Take(saved, s_.values_unit, i * s_.b_stride, s_.b, s_.b_sum);
    }
  }
  void Keep(double* saved) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      saved = Give(s_.keys_unit - i, i * s_.a_stride + i, s_.a, s_.a_sum, saved);
      saved = Give(s_.values_unit, i * s_.b_stride, s_.b, s_.b_sum, saved);
    }
  }

  /// Begins a stretch, whose bounds it rounds to blocks of this many tokens. Does every token read?
  bool Begin(const Options& options, std::int64_t block, Stretch& stretch) const {
    const std::int64_t tokens = memory_.tokens;
    const bool asked = stretch.answers && memory_.queries > 0 && tokens > 0;
    const bool reads = asked && memory_.writes() && options.causal;
    stretch.reads_last = asked && !reads;
    const std::int64_t unit = stretch.reads_last ? s_.chunk : block;
    for (std::int64_t* bound : {&stretch.first, &stretch.end}) {
      if (*bound < tokens) *bound = std::min((*bound + unit / 2) / unit * unit, tokens);
    }
    const std::int64_t ahead = reads && options.read_before ? 1 : 0;
    stretch.own_begin = stretch.first == 0 ? 0 : stretch.first + ahead;
    stretch.own_end = stretch.end + ahead;
    if (stretch.start != nullptr) {
      Load(stretch.start);
    } else {
      Load();
    }
    return reads;
  }
  /// Before a chunk is written. False: it goes beyond a stretch that only writes, and is left to
  /// who answers.
  bool Enter(const Chunk& chunk, Stretch& stretch) const {
    if (stretch.answers || chunk.first + chunk.tokens <= stretch.end) return true;
    End(chunk.first, stretch);
    return false;
  }
  /// When the memory is where it is to be left: before token t.
  void End(std::int64_t t, Stretch& stretch) const {
    stretch.saved_at = t;
    if (stretch.finish != nullptr) Keep(stretch.finish);
    if (memory_.stretch == nullptr && memory_.writes()) Store();
  }

  /// To be called where A and B were put into the scratch by others.
  void BeginSums() const {
    if constexpr (kSums) {
      std::copy(s_.a, s_.a + s_.keys_unit * s_.a_stride, s_.a_sum);
      std::copy(s_.b, s_.b + s_.keys_unit * s_.b_stride, s_.b_sum);
    }
  }
  void LoadGram() const {
    const T* const from = static_cast<const T*>(memory_.a);
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      std::fill(a().Row(i), a().Row(i) + s_.keys_unit, T(0));
      if (i >= memory_.key_dim) continue;
      const T* const row = from + i * memory_.a_stride;
      std::copy(row + i, row + memory_.key_dim, a().Row(i) + i);
    }
  }
  void Store() const {
    T* const to_a = static_cast<T*>(memory_.a);
    T* const to_b = static_cast<T*>(memory_.b);
    for (std::int64_t i = 0; i < memory_.key_dim; ++i) {
      for (std::int64_t j = i; j < memory_.key_dim; ++j) {
        to_a[i * memory_.a_stride + j] = to_a[j * memory_.a_stride + i] = a().Row(i)[j];
      }
      const T* const values = b().Row(i);
      std::copy(values, values + memory_.value_dim, to_b + i * memory_.b_stride);
    }
  }

  /// A and B times g. What is forgotten altogether leaves no NaN behind.
  void Fade(double g) const {
    if (g == 0) {
      std::fill(s_.a, s_.a + s_.keys_unit * s_.a_stride, T(0));
      std::fill(s_.b, s_.b + s_.keys_unit * s_.b_stride, T(0));
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
    const Left transposed = Left::Transposed(keys());
    ln::Multiply<kInto>(transposed, keys(), s_.keys_unit, ln::UpperResult{s_.keys_unit, tokens},
                        a());
    ln::Multiply<kInto>(transposed, values(), s_.keys_unit, ln::Whole{s_.values_unit, tokens}, b());
    if constexpr (kSums) {
      UpdateSums<true>(chunk.end);
    } else if (chunk.end != 1) {
      Scale(chunk.end);
    }
  }

  /// y_t = (B + sum_{i <= t} k_i v_i^T)^T x_t, K and V the chunk's: rows j of x and y belong to its
  /// token j / queries. `kt` is K^T; `scores` has room for `columns` rows of `tokens` numbers.
  void Read(const Block& kt, const Block& x, std::int64_t tokens, std::int64_t columns,
            std::int64_t queries, const Block& scores, const Block& y) const {
    const std::int64_t unit = RoundUp(tokens, kUnit);
    ln::Multiply<ln::Into::kSet>(Left::Of(x), kt, columns, ln::Whole{unit, s_.keys_unit}, scores);
    for (std::int64_t j = 0; j < columns; ++j) {  // a query sees no later token
      const std::int64_t seen = std::min(j / queries + 1, unit);
      std::fill(scores.Row(j) + seen, scores.Row(j) + unit, T(0));
    }
    ln::Multiply<ln::Into::kSet>(Left::Of(x), b(), columns, ln::Whole{s_.values_unit, s_.keys_unit},
                                 y);
    ln::Multiply<ln::Into::kAdd>(Left::Of(scores), values(), columns,
                                 ln::LowerLeft{s_.values_unit, unit, queries}, y);
  }

  /// Leaves the first tokens of a chunk.
  void Shorten(Chunk& chunk, std::int64_t tokens) const {
    if (tokens >= chunk.tokens) return;
    double log_c = 0;
    for (std::int64_t i = 1; i < tokens; ++i) log_c += LogDecay(memory_, chunk.first + i);
    for (std::int64_t i = tokens; i < chunk.tokens; ++i) {
      std::fill(keys().Row(i), keys().Row(i) + s_.keys_unit, T(0));
      std::fill(values().Row(i), values().Row(i) + s_.values_unit, T(0));
    }
    chunk.tokens = tokens;
    chunk.end = std::exp(log_c);
  }

  /// |A|_F
  double FrobeniusNorm() const {
    double squares = 0;
    for (std::int64_t r = 0; r < memory_.key_dim; ++r) {
      for (std::int64_t c = r; c < memory_.key_dim; ++c) {
        const double x = static_cast<double>(a().Row(r)[c]);
        squares += (r == c ? 1 : 2) * x * x;
      }
    }
    return std::sqrt(squares);
  }

 private:
  static constexpr bool kSums = sizeof(T) == sizeof(float);

  static const double* Take(const double* saved, std::int64_t count, std::int64_t at, T* numbers,
                            double* sums) {
    for (std::int64_t i = 0; i < count; ++i) numbers[at + i] = static_cast<T>(saved[i]);
    if constexpr (kSums) std::copy(saved, saved + count, sums + at);
    return saved + count;
  }
  static double* Give(std::int64_t count, std::int64_t at, const T* numbers, const double* sums,
                      double* saved) {
    if constexpr (kSums) {
      std::copy(sums + at, sums + at + count, saved);
    } else {
      std::copy(numbers + at, numbers + at + count, saved);
    }
    return saved + count;
  }

  template <bool kAdd>
  void UpdateSums(double g) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      SumInDouble<kAdd>(g, i, s_.keys_unit, s_.a_sum + i * s_.a_stride, a().Row(i));
      SumInDouble<kAdd>(g, 0, s_.values_unit, s_.b_sum + i * s_.b_stride, b().Row(i));
    }
  }
  void Scale(double g) const {
    for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
      sn::Multiply(a().Row(i) + i, s_.keys_unit - i, static_cast<T>(g));
      sn::Multiply(b().Row(i), s_.values_unit, static_cast<T>(g));
    }
  }

  const Memory& memory_;
  const Scratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_CARRIED_INL_H_
