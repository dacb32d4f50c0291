// One token of one memory, in the caller's state. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_DECODE_DECODER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_DECODE_DECODER_INL_H_
#undef TTR_LEAST_SQUARES_DECODE_DECODER_INL_H_
#else
#define TTR_LEAST_SQUARES_DECODE_DECODER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/least_squares/decode/state-inl.h"
#include "src/engines/least_squares/decode/step_factor-inl.h"
#include "src/engines/least_squares/exact/minimum_norm-inl.h"
#include "src/engines/least_squares/exact/prefixes-inl.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/gather-inl.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

/// The rows of W as StepFactor::Update() says, of which every one takes up a share of what those
/// before it leave of v; with kRead y = W^T (U^-T q) after it.
template <bool kRead, class T>
HWY_INLINE void UpdateValues(const StepFactor<T>& factor,
                             const typename StepFactor<T>::Shares& shares, const T* v, T* y) {
  const hn::CappedTag<T, kUnit> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const FactorLayout<T>& f = factor.layout();
  ForStrips(d, f.values, [&](std::int64_t c, auto vectors, std::size_t) HWY_ATTR {
    constexpr int kVectors = vectors();
    hn::Vec<decltype(d)> rest[kVectors], sum[kVectors];
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) {
      rest[n] = hn::Load(d, v + c + n * lanes);
      sum[n] = hn::Zero(d);
    }
    T* HWY_RESTRICT row = f.w + c;
    for (std::int64_t i = 0; i < f.unit; ++i, row += f.values) {
      const auto by = hn::Set(d, shares.by[i]);
      const auto w = hn::Set(d, shares.w[i]);
      const auto read = hn::Set(d, kRead ? shares.read[i] : T(0));
      TTR_UNROLL
      for (int n = 0; n < kVectors; ++n) {
        const auto old = hn::Load(d, row + n * lanes);
        rest[n] = hn::NegMulAdd(w, old, rest[n]);
        const auto now = hn::MulAdd(by, rest[n], old);
        if constexpr (kRead) sum[n] = hn::MulAdd(read, now, sum[n]);
        hn::Store(now, d, row + n * lanes);
      }
    }
    if constexpr (!kRead) return;
    TTR_UNROLL
    for (int n = 0; n < kVectors; ++n) hn::Store(sum[n], d, y + c + n * lanes);
  });
}

/// Writes A and B in place and solves by a factor that is updated from token to token beside them
/// (step_factor-inl.h); or, deferred, updates that factor alone, with B in it (UpdateValues).
/// Without such a factor, or where it cannot bear the token, A is factored anew.
template <class T>
class Decoder {
 public:
  Decoder(const Options& options, const Memory& memory, const Scratch<T>& scratch,
          const RunningSums<T>& sums)
      : options_(options),
        memory_(memory),
        s_(scratch),
        sums_(sums),
        prefixes_(options, memory, scratch, sums) {}

  void Run() {
    if (!memory_.writes()) return Read();
    if (memory_.state.deferred) return StepDeferred();
    Step();
  }

 private:
  using Shares = typename StepFactor<T>::Shares;

  bool reads() const { return memory_.queries > 0; }
  bool reads_after() const { return reads() && !options_.read_before; }

  void Step() {
    if (reads() && options_.read_before) Read();
    const Chunk chunk = GatherChunk(memory_, 0, 1, s_);
    const T g = static_cast<T>(chunk.decay);
    BitSum<T> before, after;
    WriteGram(memory_, g, s_.k.data, before, after);
    const bool updates = memory_.state.factor != nullptr && !memory_.state.deferred;
    const bool solved =
        updates ? UpdateFactor(g, before, after) : reads_after() && SolveQueries(after);
    if (reads_after() && solved) {
      WriteValues<true>(memory_, g, s_.k.data, s_.v.data, s_.q.data, s_.y.data);
    } else {
      WriteValues<false>(memory_, g, s_.k.data, s_.v.data, s_.q.data, s_.y.data);
    }
    if (!reads_after()) return;
    if (!solved) return ReadByMinimumNorm();
    for (std::int64_t r = 1; r < memory_.queries; ++r) ReadQuery(r);
    ScatterOutputs(memory_, 0, 1, s_);
  }

  /// Updates the factor once the key in s.k is written to A. Queries that read after it become
  /// solutions as well. False: A is singular.
  bool UpdateFactor(T g, const BitSum<T>& before, const BitSum<T>& after) {
    const StepFactor<T> factor(memory_, options_);
    const Shares shares = StepShares();
    T* const p = Spare(3);  // s.k is needed again
    std::copy(s_.k.data, s_.k.data + s_.keys_unit, p);
    if (reads_after()) LoadQueryOfStep(0);
    T* const query = reads_after() ? s_.q.data : nullptr;
    const bool updated = factor.Fits(before) && factor.Update(g, p, query, shares);
    if (!updated) {
      sums_.LoadGram();
      if (!prefixes_.FactorMemory()) {
        factor.Drop();
        return false;
      }
      factor.Take(prefixes_.factor());
    }
    factor.Seal(after);
    if (!reads_after()) return true;
    if (updated) {
      factor.Backward(shares.read, s_.q.data);
    } else {
      SolveQuery(factor, 0);
    }
    for (std::int64_t r = 1; r < memory_.queries; ++r) SolveQuery(factor, r);
    return true;
  }

  /// Takes a token into the factor alone; only Flush() writes the caller's state. A token that the
  /// factor cannot bear is left to Step().
  void StepDeferred() {
    const StepFactor<T> factor(memory_, options_);
    const Chunk chunk = GatherChunk(memory_, 0, 1, s_);
    const T g = static_cast<T>(chunk.decay);
    if (!factor.holds() || !chunk.finite || !factor.Bears(g, s_.k.data)) {
      Flush<T>(memory_.state);
      Step();
      BeginDeferred(factor);
      return;
    }
    if (reads() && options_.read_before) ReadDeferred(factor, 0);
    if (reads_after()) LoadQueryOfStep(0);
    const Shares shares = StepShares();
    const bool holds = factor.Update(g, s_.k.data, reads_after() ? s_.q.data : nullptr, shares);
    if (reads_after()) {
      UpdateValues<true>(factor, shares, s_.v.data, s_.y.data);
    } else {
      UpdateValues<false>(factor, shares, s_.v.data, s_.y.data);
    }
    if (!holds) Flush<T>(memory_.state);
    if (!reads_after()) return;
    if (!holds) return Read();
    StoreOutput(0);
    ReadDeferred(factor, 1);
  }

  /// From here on a factor stands for A and B, if A has one.
  void BeginDeferred(const StepFactor<T>& factor) {
    sums_.LoadGram();
    if (!prefixes_.FactorMemory()) return;
    factor.Take(prefixes_.factor());
    TakeValues<T>(memory_.state);
  }

  /// Answers the queries from the r-th on, by the factor alone.
  void ReadDeferred(const StepFactor<T>& factor, std::int64_t r) const {
    const FactorLayout<T>& f = factor.layout();
    const Block<T> values{f.w, f.values};
    for (; r < memory_.queries; ++r) {
      factor.Forward(LoadQueryOfStep(r), Spare(2));
      ReadRows(values, f.unit, f.values, Spare(2), s_.y.data);
      StoreOutput(r);
    }
  }
  /// Stores the first row of s.y as the output of the r-th query.
  void StoreOutput(std::int64_t r) const {
    sn::StoreRow(s_.y.data, 0, 0, memory_.value_dim(), OutputRows(memory_, r));
  }

  /// Answers all queries from the state as it is.
  void Read() {
    if (!SolveQueries(BitsOfGram<T>(memory_))) return ReadByMinimumNorm();
    for (std::int64_t r = 0; r < memory_.queries; ++r) ReadQuery(r);
    ScatterOutputs(memory_, 0, 1, s_);
  }

  void ReadQuery(std::int64_t r) {
    const Block<T> b{static_cast<T*>(memory_.state.b), memory_.state.b_stride};
    ReadRows(b, memory_.key_dim(), memory_.value_dim(), s_.q.Row(r), s_.y.Row(r));
  }

  void ReadByMinimumNorm() {
    sums_.Load();
    GatherQueries(options_, memory_, 0, 1, s_);
    MinimumNormReader<T>(options_, memory_, s_).ReadMemory(0, 1);
  }

  /// Turns the queries in s.q into solutions. `bits` are those of A. False: A is singular.
  bool SolveQueries(const BitSum<T>& bits) {
    if (memory_.state.factor != nullptr) {
      const StepFactor<T> factor(memory_, options_);
      if (factor.Fits(bits)) {
        for (std::int64_t r = 0; r < memory_.queries; ++r) SolveQuery(factor, r);
        return true;
      }
    }
    GatherQueries(options_, memory_, 0, 1, s_);
    sums_.LoadGram();
    if (!prefixes_.SolveColumns(memory_.queries)) return false;
    for (std::int64_t r = 0; r < memory_.queries; ++r) {
      for (std::int64_t i = 0; i < s_.keys_unit; ++i) {
        s_.q.Row(r)[i] = prefixes_.columns().Row(i)[r];
      }
    }
    return true;
  }

  void SolveQuery(const StepFactor<T>& factor, std::int64_t r) const {
    T* const q = LoadQueryOfStep(r);
    factor.Forward(q, Spare(2));
    factor.Backward(Spare(2), q);
  }

  T* LoadQueryOfStep(std::int64_t r) const {
    LoadQuery(options_, memory_, 0, r, s_.q.Row(r), s_.keys_unit);
    return s_.q.Row(r);
  }

  Shares StepShares() const { return {Spare(0), Spare(1), Spare(2)}; }
  /// Four rows of D numbers in the scratch of B, which no step of a token needs.
  T* Spare(std::int64_t row) const {
    return s_.b.data + row * RoundUp(s_.keys_unit, common::kLineBytes);
  }

  const Options& options_;
  const Memory& memory_;
  const Scratch<T>& s_;
  const RunningSums<T>& sums_;
  Prefixes<T> prefixes_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_DECODE_DECODER_INL_H_
