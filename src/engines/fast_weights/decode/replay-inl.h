// A few rows beside pairs that are pending (decode/pending.h): one pass over the memory reads it
// for all of their keys and queries. Pairs that have waited long enough are written in that pass.
// Compiled once for every target.
//
//     r_j S + sum_{i < j} (r_j . w_i) u_i        for a key that erases, likewise for queries
//
// The products of keys belong to no column and are found before the pass; what a row writes joins
// the pairs that the next row sees.

#if defined(TTR_FAST_WEIGHTS_DECODE_REPLAY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_DECODE_REPLAY_INL_H_
#undef TTR_FAST_WEIGHTS_DECODE_REPLAY_INL_H_
#else
#define TTR_FAST_WEIGHTS_DECODE_REPLAY_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/fast_weights/decode/columns-inl.h"
#include "src/engines/fast_weights/decode/decode-inl.h"
#include "src/engines/fast_weights/decode/pending-inl.h"
#include "src/engines/fast_weights/layout.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// M readers on NV vectors of columns of the state: products[m] = reader m . S.
template <int M, int NV, class T, class Stored>
HWY_INLINE void ReadColumns(const T* const* readers, std::int64_t rows,
                            const Stored* HWY_RESTRICT state, std::int64_t stride,
                            const Following<NV, T, Stored>& following, T* products) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  // Two vectors of bfloat16 are those of even and of odd columns until all rows have been read:
  // that takes two operations where columns in their order take four.
  constexpr bool kInPairs = std::is_same_v<Stored, BFloat16> && NV > 1 && kLanes > 1;
  // Copies that nothing refers to, which stay in registers.
  const Following<NV, T, Stored> fetched = following;
  const T* from[M];
  hn::Vec<hn::ScalableTag<T>> sum[M][NV];
  TTR_UNROLL
  for (int m = 0; m < M; ++m) {
    from[m] = readers[m];
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) sum[m][n] = hn::Zero(d);
  }
  for (std::int64_t row = 0; row < rows; ++row, state += stride) {
    fetched.Fetch(row);
    hn::Vec<hn::ScalableTag<T>> reader[M];
    TTR_UNROLL
    for (int m = 0; m < M; ++m) reader[m] = hn::Set(d, from[m][row]);
    const auto read = [&](int n, hn::Vec<hn::ScalableTag<T>> x) HWY_ATTR {
      TTR_UNROLL
      for (int m = 0; m < M; ++m) sum[m][n] = hn::MulAdd(reader[m], x, sum[m][n]);
    };
    TTR_UNROLL
    for (int n = 0; n < NV; n += kInPairs ? 2 : 1) {
      if constexpr (kInPairs) {
        sn::LoadEvenAndOdd(d, state + n * kLanes, [&](auto even, auto odd) HWY_ATTR {
          read(n, even);
          read(n + 1, odd);
        });
      } else {
        read(n, sn::LoadWide(d, state + n * kLanes));
      }
    }
  }
  TTR_UNROLL
  for (int m = 0; m < M; ++m) {
    T* const to = products + m * NV * kLanes;
    TTR_UNROLL
    for (int n = 0; n < NV; n += kInPairs ? 2 : 1) {
      if constexpr (kInPairs) {
        hn::StoreInterleaved2(sum[m][n], sum[m][n + 1], d, to + n * kLanes);
      } else {
        hn::StoreU(sum[m][n], d, to + n * kLanes);
      }
    }
  }
}

/// A sequence of a few rows whose pairs stay pending.
template <class T>
class ReplayRun {
 public:
  ReplayRun(const Options& options, const Memory& memory, const Memory& next, Scratch<T>& scratch)
      : options_(options),
        memory_(memory),
        next_(next),
        scratch_(scratch),
        gathered_(scratch.gathered),
        s_(scratch.replay),
        pending_(options, memory),
        in_place_(options, memory, next, scratch),
        prepared_(in_place_.prepared()),
        columns_(RoundUp(memory.dims.value_dim, kLine<T>)),
        width_(memory.extent.end_column - memory.extent.first_column) {}

  void Run() {
    FetchInputs<T>(options_, next_);
    FetchPending();
    in_place_.WithRows([&] { Rows(); });
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  static_assert(ln::kTileRows <= kReplayVectors);

  /// The pairs of the next memory.
  void FetchPending() const {
    if (!next_.pending.keys) return;
    // As many as this memory has: neighbours have mostly taken the same steps.
    const PendingLayout& layout = pending_.layout();
    const T* const keys = static_cast<const T*>(next_.pending.keys.data);
    const T* const values = static_cast<const T*>(next_.pending.values);
    simd::FetchRow(keys, layout.template HeadNumbers<T>());
    for (std::int64_t i = 0; i < pending_.count(); ++i) {
      const auto of_key = pending_.key(i) - static_cast<const T*>(memory_.pending.keys.data);
      const auto of_value = pending_.value(i) - static_cast<const T*>(memory_.pending.values);
      simd::FetchRow(keys + of_key, layout.OfSlot());
      simd::FetchRow(values + of_value, layout.keys * layout.columns);
    }
  }

  void Rows() {
    if (HasFaded(pending_, memory_)) {
      Flush();
    } else if (pending_.count() >= memory_.pending.window) {
      written_ = pending_.count() - memory_.pending.kept;
    }
    for (std::int64_t r = 0; r < memory_.dims.rows; ++r) {
      const Chunk chunk = NextChunk<T>(options_, memory_, r, 1);
      SaveBeside();
      PrepareRow(options_, memory_, chunk, in_place_.keys_in_place(), scratch_, prepared_);
      if (memory_.writes() && !chunk.forget) {
        if (Joins(r)) continue;
        if (pending_.count() == pending_.room()) {
          // Pairs over a small c would leave the range of float16.
          const bool fits =
              memory_.entries.state.dtype != DType::kFloat16 || !HasFaded(pending_, memory_);
          Flush(fits ? memory_.pending.kept : 0);
          if (Joins(r)) continue;
        }
        Flush();
        if (Joins(r)) continue;
      } else {
        Flush();
      }
      Apply(r, chunk);
    }
    Pass();
  }

  /// Row r on the memory in place, of which nothing is pending.
  void Apply(std::int64_t r, const Chunk& chunk) {
    OfStoredState<T>(memory_, [&]<class Stored>(Stored* state) {
      if constexpr (std::is_same_v<T, Stored>) {
        in_place_.Apply(r, chunk);
      } else {
        Memory wide = memory_;
        wide.entries.state = {.data = s_.wide, .dtype = DTypeOf<T>(), .stride = columns_};
        const auto convert = [&](const auto& each) {
          for (std::int64_t row = 0; row < memory_.dims.key_dim; ++row) {
            each(state + row * memory_.entries.state.stride + memory_.extent.first_column,
                 s_.wide + row * columns_ + memory_.extent.first_column);
          }
        };
        convert([&](const Stored* from, T* to) { sn::ConvertFrom(from, width_, to); });
        const Memory none;
        DecodeRun<T>(options_, wide, none, scratch_).Apply(r, chunk);
        convert([&](Stored* to, const T* from) { sn::ConvertTo(from, width_, to); });
      }
    });
  }

  bool erases() const { return options_.erases(); }
  bool separate() const { return options_.separate_value_key(); }

  /// The rows so far, and then all pairs but the last `keep`, are part of the state's tensor.
  void Flush(std::int64_t keep = 0) {
    Pass();
    FlushPairs<T>(options_, memory_, keep);
    written_ = 0;
  }

  /// What the row needs to be taken back: the state beside the memory, before the row is prepared.
  void SaveBeside() const {
    if (pending_.layout().beside == 0) return;
    T* to = s_.beside;
    for (const T* row : {scratch_.running.sum, scratch_.running.curvature}) {
      if (row == nullptr) continue;
      std::copy_n(row, pending_.layout().key_rows, to);
      to += pending_.layout().key_rows;
    }
    to[0] = static_cast<T>(scratch_.running.maximum);
  }

  /// Row r, which is prepared, joins the pairs and the pass; or there is no room, or its decay is
  /// too small.
  bool Joins(std::int64_t r) {
    if (rows_ == kReplayRows) Pass();
    const Joining<T> joining(pending_, memory_, prepared_.row_decay);
    if (!joining.Fits(kLeastWithin<T>)) return false;
    ReplayedRow<T>& row = s_.rows[rows_];
    row.row = r;
    row.pairs = pending_.count() - written_;
    row.readers = readers_;
    row.queries = memory_.Reads(r) ? memory_.readers() : 0;
    row.erased = prepared_.decay[0] * joining.Before();
    row.step = prepared_.step[0];
    if (erases()) AddReader(joining, in_place_.EraseKey());
    for (std::int64_t q = 0; q < row.queries; ++q) {
      AddReader(joining, gathered_.query + q * gathered_.query_stride);
      const std::int64_t at = (rows_ * memory_.dims.queries + q) * 3;
      s_.reads[at] = prepared_.read[q * kChunk] * joining.Before();
      s_.reads[at + 1] = prepared_.scores[q * kChunk * kChunk];
      s_.reads[at + 2] = separate() ? prepared_.score_values[q * kChunk * kChunk] : T(0);
    }
    std::copy_n(s_.beside, pending_.layout().beside, pending_.beside(pending_.count()));
    LoadValues(r, row);
    row.scale =
        joining.Leave(gathered_.write, separate() ? gathered_.value : nullptr, gathered_.stride);
    ++rows_;
    return true;
  }

  void LoadValues(std::int64_t r, ReplayedRow<T>& row) const {
    const std::int64_t first = memory_.extent.first_column;
    row.values = static_cast<const T*>(memory_.inputs.v.data);
    if (in_place_.values_in_place()) return;
    T* const values = s_.values + rows_ * columns_;
    LoadRow(memory_.inputs.v, r, first, width_, values + first);
    std::fill(values + first + width_, values + RoundUp(first + width_, kLanes), T(0));
    row.values = values;
  }

  /// A reader, and its products with the keys that are pending.
  void AddReader(const Joining<T>& joining, const T* row) {
    const T* const reader = ReaderOf(joining, row);
    s_.readers[readers_] = reader;
    T* const products = Products(readers_);
    const std::int64_t keys = pending_.layout().keys, count = pending_.count();
    for (std::int64_t i = written_; i < count; ++i) {
      for (std::int64_t which = 0; which < keys; ++which) {
        products[(i - written_) * keys + which] =
            DotUnaligned(pending_.key(i, which), reader, gathered_.stride);
      }
    }
    ++readers_;
  }

  /// Where it lies, if it is read as it is before the next row is prepared.
  const T* ReaderOf(const Joining<T>& joining, const T* row) const {
    if (memory_.dims.rows == 1 && !joining.scales()) return row;
    T* const copy = s_.copies + readers_ * gathered_.stride;
    joining.Reader(row, gathered_.stride, copy);
    return copy;
  }

  static T DotUnaligned(const T* x, const T* y, std::int64_t count) {
    const hn::ScalableTag<T> d;
    auto sum = hn::Zero(d);
    for (std::int64_t i = 0; i < count; i += kLanes) {
      sum = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum);
    }
    return hn::GetLane(hn::SumOfLanes(d, sum));
  }

  T* Products(std::int64_t reader) const {
    return s_.products + reader * pending_.room() * pending_.layout().keys;
  }
  /// Column 0 of outputs.
  T* Outputs(std::int64_t j, std::int64_t q) const {
    if (in_place_.outputs_in_place()) {
      return static_cast<T*>(memory_.y.data) + q * memory_.y_head_stride;
    }
    return s_.outputs + (j * memory_.dims.queries + q) * columns_;
  }

  /// The rows that have joined read the memory, leave their values and answer.
  void Pass() {
    if (rows_ == 0) return;
    OfStoredState<T>(memory_, [&]<class Stored>(Stored* state) {
      std::int64_t column = memory_.extent.first_column;
      const Stored* const after =
          next_.entries.state
              ? static_cast<const Stored*>(next_.entries.state.data) + next_.extent.first_column
              : nullptr;
      readers_ <= 2 ? Groups<ln::kTileRows>(state, after, column)
                    : Groups<ln::kTileRows / 2>(state, after, column);
      if (column < memory_.extent.end_column) Tail(state, column);
    });
    for (std::int64_t j = 0; j < rows_ && !in_place_.outputs_in_place(); ++j) StoreOutputs(j);
    if (written_ > 0) pending_.DropFirst(written_);
    rows_ = readers_ = written_ = 0;
  }

  template <int NV, class Stored>
  void Groups(Stored* state, const Stored* after, std::int64_t& column) const {
    constexpr std::int64_t kWidth = NV * kLanes;
    for (; column + kWidth <= memory_.extent.end_column; column += kWidth) {
      const bool last = column + kWidth >= memory_.extent.end_column;
      const Stored* const next = last ? after : state + column + kWidth;
      const std::int64_t stride = memory_.entries.state.stride;
      Columns<NV>(column, state, {next, stride, memory_.dims.key_dim});
    }
    if constexpr (NV > 1) Groups<NV / 2>(state, after, column);
  }

  /// Columns that do not fill a vector, by way of a padded copy.
  template <class Stored>
  void Tail(Stored* state, std::int64_t column) const {
    const std::int64_t rest = memory_.extent.end_column - column;
    if (written_ > 0) {
      const PairAdder<T, Stored> adder(pending_, memory_, state, written_, false);
      for (std::int64_t c = column; c < memory_.extent.end_column; ++c) {
        adder.template Columns<1>(hn::CappedTag<T, 1>(), c);
      }
    }
    T* padded = scratch_.strips;
    for (std::int64_t row = 0; row < memory_.dims.key_dim; ++row, padded += kLanes) {
      sn::ConvertFrom(state + row * memory_.entries.state.stride + column, rest, padded);
      std::fill(padded + rest, padded + kLanes, T(0));
    }
    Read<1, T>(scratch_.strips, kLanes, {nullptr, kLanes, memory_.dims.key_dim});
    for (std::int64_t j = 0; j < rows_; ++j) Row<1>(j, column);
  }

  /// Columns from `column` on, of a state that begins at `state`.
  template <int NV, class Stored>
  void Columns(std::int64_t column, Stored* state,
               const Following<NV, T, Stored>& following) const {
    if (written_ > 0) {
      PairAdder<T, Stored>(pending_, memory_, state, written_, false)
          .template Columns<NV>(hn::ScalableTag<T>(), column);
    }
    Read<NV, Stored>(state + column, memory_.entries.state.stride, following);
    for (std::int64_t j = 0; j < rows_; ++j) Row<NV>(j, column);
  }

  /// reader . S of all readers, as many at a time as fit in registers.
  template <int NV, class Stored>
  void Read(const Stored* state, std::int64_t stride,
            const Following<NV, T, Stored>& following) const {
    const Following<NV, T, Stored> nothing(nullptr, stride, memory_.dims.key_dim);
    const auto read = [&]<int M>(std::int64_t m) {
      ReadColumns<M, NV>(s_.readers + m, memory_.dims.key_dim, state, stride,
                         m == 0 ? following : nothing, s_.read + m * NV * kLanes);
    };
    std::int64_t m = 0;
    if constexpr (4 * NV <= 2 * ln::kTileRows) {
      for (; m + 4 <= readers_; m += 4) read.template operator()<4>(m);
    }
    for (; m + 2 <= readers_; m += 2) read.template operator()<2>(m);
    if (m < readers_) read.template operator()<1>(m);
  }

  template <int NV>
  using Vectors = hn::Vec<hn::ScalableTag<T>>[NV];

  /// x = reader . S + what the pairs before the row add.
  template <int NV>
  HWY_INLINE void Recall(std::int64_t reader, std::int64_t pairs, std::int64_t column,
                         Vectors<NV>& x) const {
    const hn::ScalableTag<T> d;
    const T* const read = s_.read + reader * NV * kLanes;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) x[n] = hn::LoadU(d, read + n * kLanes);
    const T* product = Products(reader);
    const std::int64_t keys = pending_.layout().keys;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const T* value = pending_.value(written_ + i) + column;
      for (std::int64_t which = 0; which < keys; ++which, value += columns_) {
        const auto by = hn::Set(d, *product++);
        TTR_UNROLL
        for (int n = 0; n < NV; ++n) {
          x[n] = hn::MulAdd(by, hn::LoadU(d, value + n * kLanes), x[n]);
        }
      }
    }
  }

  /// Row j on NV vectors of columns: what it writes, and its outputs.
  template <int NV>
  HWY_INLINE void Row(std::int64_t j, std::int64_t column) const {
    const hn::ScalableTag<T> d;
    const ReplayedRow<T>& row = s_.rows[j];
    const bool both = separate(), add_own = !options_.read_before || options_.bonus;
    std::int64_t reader = row.readers;
    Vectors<NV> u, v;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      v[n] = hn::LoadU(d, row.values + column + n * kLanes);
      u[n] = both ? hn::Zero(d) : v[n];
    }
    if (erases()) {
      Vectors<NV> erased;
      Recall<NV>(reader++, row.pairs, column, erased);
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) u[n] = hn::NegMulAdd(hn::Set(d, row.erased), erased[n], u[n]);
    }
    T* const to = pending_.value(written_ + row.pairs) + column;
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      u[n] = hn::Mul(hn::Set(d, row.step), u[n]);
      hn::StoreU(hn::Mul(hn::Set(d, row.scale), u[n]), d, to + n * kLanes);
      if (both) {
        hn::StoreU(hn::Mul(hn::Set(d, row.scale), v[n]), d, to + columns_ + n * kLanes);
      }
    }
    for (std::int64_t q = 0; q < row.queries; ++q) {
      const T* const by = s_.reads + (j * memory_.dims.queries + q) * 3;
      Vectors<NV> y;
      Recall<NV>(reader++, row.pairs, column, y);
      T* const output = Outputs(j, q) + column;
      TTR_UNROLL
      for (int n = 0; n < NV; ++n) {
        y[n] = hn::Mul(hn::Set(d, by[0]), y[n]);
        if (add_own) y[n] = hn::MulAdd(hn::Set(d, by[1]), u[n], y[n]);
        if (add_own && both) y[n] = hn::MulAdd(hn::Set(d, by[2]), v[n], y[n]);
        hn::StoreU(y[n], d, output + n * kLanes);
      }
    }
  }

  void StoreOutputs(std::int64_t j) const {
    const ReplayedRow<T>& row = s_.rows[j];
    for (std::int64_t q = 0; q < row.queries; ++q) {
      T* const y = Outputs(j, q) + memory_.extent.first_column;
      NormaliseOutput(options_, y, width_);
      StoreRow(y, memory_.Token(row.row), q * memory_.y_head_stride + memory_.extent.first_column,
               width_, memory_.y);
    }
  }

  const Options& options_;
  const Memory& memory_;
  const Memory& next_;  // only fetched towards the caches
  Scratch<T>& scratch_;
  const Gathered<T>& gathered_;
  const ReplayScratch<T>& s_;
  const Pending<T> pending_;
  DecodeRun<T> in_place_;
  const Prepared<T>& prepared_;
  const std::int64_t columns_, width_;
  std::int64_t rows_ = 0, readers_ = 0;  // of the pass to come
  std::int64_t written_ = 0;             // the first pairs, which it writes
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_DECODE_REPLAY_INL_H_
