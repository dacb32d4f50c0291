// The passes over one memory. Compiled once for every target and type of arithmetic.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/output_scaling-inl.h"
#include "src/engines/fast_weights/chunked/save-inl.h"
#include "src/engines/fast_weights/chunked/strip-inl.h"
#include "src/engines/fast_weights/decode/decode-inl.h"
#include "src/engines/fast_weights/operands/rows-inl.h"
#include "src/simd/prefetcher.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
constexpr std::int64_t Lanes() {
  return hn::MaxLanes(hn::ScalableTag<T>());
}

/// Width of the strip that begins at `column`: two vectors, or one at the end.
template <class T>
std::int64_t Width(const Memory& memory, std::int64_t column) {
  return memory.value_dim - column > Lanes<T>() ? 2 * Lanes<T>() : Lanes<T>();
}

/// A memory of `rows` rows between its home and the strips of the scratch, where it begins at row
/// `first`: columns that a strip has beyond the memory's last are zero.
template <class T>
void LoadStrips(const Memory& memory, const Rows& home, std::int64_t first, std::int64_t state_rows,
                const Scratch<T>& scratch) {
  const T* state = static_cast<const T*>(home.data);
  for (std::int64_t c = memory.first_column; c < memory.end_column;) {
    const std::int64_t width = Width<T>(memory, c);
    const std::int64_t filled = std::min(width, memory.value_dim - c);
    T* strip = scratch.strips + c * state_rows + first * width;
    for (std::int64_t row = 0; row < memory.key_dim; ++row, strip += width) {
      const T* from = state + row * home.stride + c;
      std::fill(std::copy(from, from + filled, strip), strip + width, T(0));
    }
    // Tiles of rows go beyond the last.
    std::fill(strip, scratch.strips + c * state_rows + state_rows * width, T(0));
    c += width;
  }
}

template <class T>
void StoreStrips(const Memory& memory, const Rows& home, std::int64_t first,
                 std::int64_t state_rows, const Scratch<T>& scratch) {
  T* state = static_cast<T*>(home.data);
  for (std::int64_t c = memory.first_column; c < memory.end_column;) {
    const std::int64_t width = Width<T>(memory, c);
    const std::int64_t filled = std::min(width, memory.value_dim - c);
    const T* strip = scratch.strips + c * state_rows + first * width;
    for (std::int64_t row = 0; row < memory.key_dim; ++row, strip += width) {
      std::copy(strip, strip + filled, state + row * home.stride + c);
    }
    c += width;
  }
}

/// What a memory keeps beside its rows and columns: as it was given, or as its last turn left it.
template <class T>
void LoadCarried(const Memory& memory, Scratch<T>& scratch) {
  const std::int64_t stride = scratch.gathered.stride;
  auto load = [&](const Rows& rows, T* to, std::int64_t count) {
    if (!rows) return;
    LoadRow(rows, 0, 0, count, to);
    Pad(to, count, stride);
  };
  load(memory.bonus, scratch.gathered.bonus, memory.key_dim);
  if (memory.from > 0) {
    std::memcpy(&scratch.carried, scratch.resting, sizeof(scratch.carried));
    return;
  }
  Running<T>& carried = scratch.carried;
  load(memory.sum, carried.sum, memory.key_dim);
  load(memory.curvature, carried.curvature, memory.key_dim);
  carried.owed = 1;
  carried.maximum = memory.maximum ? LoadOne<double>(memory.maximum, 0) : 0;
  carried.position =
      memory.position ? static_cast<std::int64_t>(LoadOne<double>(memory.position, 0)) : 0;
}

template <class T>
void StoreCarried(const Memory& memory, const Scratch<T>& scratch) {
  if (memory.to < memory.rows) {
    std::memcpy(scratch.resting, &scratch.carried, sizeof(scratch.carried));
    return;
  }
  auto store = [&](const Rows& rows, const T* from) {
    if (rows) StoreRow(from, 0, 0, memory.key_dim, rows);
  };
  store(memory.sum, scratch.carried.sum);
  store(memory.curvature, scratch.carried.curvature);
  if (memory.maximum) {
    StoreRow(&scratch.carried.maximum, 0, 0, 1, memory.maximum);
  }
  if (memory.position) {
    const auto position =
        static_cast<double>(scratch.carried.position + memory.rows / memory.steps);
    StoreRow(&position, 0, 0, 1, memory.position);
  }
}

/// Are values or answers of this type bfloat16 of which a strip makes, or is made, floats?
template <class T>
bool IsNarrow(DType dtype) {
  return DTypeOf<T>() == DType::kFloat32 && dtype == DType::kBFloat16;
}

/// The first column from which rows of this type go through the scratch instead of being read or
/// written where they lie: all of them where they need another conversion, else a last strip that
/// they do not fill.
template <class T>
std::int64_t FirstConverted(const Memory& memory, DType dtype, bool whole_rows) {
  if ((dtype != DTypeOf<T>() && !IsNarrow<T>(dtype)) || whole_rows) return memory.first_column;
  const std::int64_t filled = memory.value_dim / Lanes<T>() * Lanes<T>();
  const std::int64_t last = filled / (2 * Lanes<T>()) * (2 * Lanes<T>());
  const std::int64_t end = filled == memory.value_dim ? filled : last;
  return std::clamp(end, memory.first_column, memory.end_column);
}

/// The memory as the strips hold it now, where it is wanted: at the beginning.
template <class T>
void KeepFirst(const Memory& memory, std::int64_t state_rows, const Scratch<T>& scratch,
               Keeper<T>& keeper) {
  if (!keeper.Wants(0)) return;
  for (std::int64_t c = memory.first_column; c < memory.end_column;) {
    const std::int64_t width = Width<T>(memory, c);
    keeper.Strip(scratch.strips + c * state_rows, c, width);
    c += width;
  }
  keeper.Finish(scratch.carried.sum);
}

/// Do answers, of V, go past the caches? Then strips write them where they lie, in whole lines.
template <class T, class V>
bool StreamsAs(const Memory& memory) {
  constexpr std::int64_t kStrip = 2 * Lanes<T>() * static_cast<std::int64_t>(sizeof(V));
  const std::int64_t unit = std::is_same_v<T, V> ? kLine<T> : 2 * Lanes<T>();
  return (std::is_same_v<T, V> || kStrip % kAlignment == 0) &&
         simd::PastCaches<V>(memory.y, memory.rows, simd::kUncachedAnswers) &&
         memory.y_head_stride % kLine<V> == 0 && memory.value_dim % unit == 0;
}
template <class T>
bool Streams(const Memory& memory, bool whole_rows) {
  if (whole_rows) return false;
  return IsNarrow<T>(memory.y.dtype) ? StreamsAs<T, BFloat16>(memory) : StreamsAs<T, T>(memory);
}

/// Rows of values or answers from number `offset` on.
template <class T>
OuterRows<T> OuterRowsAt(const Rows& rows, std::int64_t offset) {
  const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
  return {static_cast<std::byte*>(rows.data) + offset * size, rows.stride, IsNarrow<T>(rows.dtype)};
}

/// Rows begin .. end of the inputs and outputs of `memory`.
template <class T>
Prefetcher AheadOf(const Options& options, const Memory& memory, bool streams, std::int64_t begin,
                   std::int64_t end) {
  constexpr std::int64_t kMostQueries = 3;
  Prefetcher ahead(end - begin);
  Keeper<T>(options, memory).Fetch(begin, ahead);
  const std::int64_t width = memory.end_column - memory.first_column;
  ahead.Add(memory.k, begin, 0, memory.input_dim);
  ahead.Add(memory.v, begin, memory.first_column, width);
  auto add = [&](const Rows& rows, std::int64_t first, std::int64_t count) {
    ahead.Add(rows, memory.Token(begin), first, count, memory.steps);
  };
  add(memory.erase_key, 0, memory.key_dim);
  add(memory.erase_gate, 0, memory.key_dim);
  if (options.decay == Decay::kChannel) add(memory.log_decay, 0, memory.key_dim);
  add(memory.phase, 0, memory.key_dim);
  for (std::int64_t q = 0; memory.q && q < std::min(memory.queries, kMostQueries); ++q) {
    add(memory.q, q * memory.q_head_stride, memory.input_dim);
    if (!streams) add(memory.y, q * memory.y_head_stride + memory.first_column, width);
  }
  return ahead;
}

/// The strips' copies for products in bfloat16, where there are any.
template <class T>
void PairStrips(const Memory& memory, std::int64_t state_rows, const Scratch<T>& scratch) {
  if constexpr (kNarrows<T>) {
    if (scratch.narrowed.strips == nullptr) return;
    for (std::int64_t c = memory.first_column; c < memory.end_column;) {
      const std::int64_t width = Width<T>(memory, c);
      const T* const strip = scratch.strips + c * state_rows;
      std::uint32_t* const pairs = scratch.narrowed.strips + c * state_rows / 2;
      width > Lanes<T>() ? PairStrip<2>(strip, state_rows, pairs)
                         : PairStrip<1>(strip, state_rows, pairs);
      c += width;
    }
  }
}

/// The same of what a chunk's rows read and write.
template <class T>
void PairColumns(const Options& options, const Memory& memory, std::int64_t state_rows,
                 const Scratch<T>& scratch, const Prepared<T>& p) {
  if constexpr (kNarrows<T>) {
    if (scratch.narrowed.strips == nullptr) return;
    if (memory.writes()) {
      if (options.erases()) PairRowsOf(p.erase, state_rows, p.erase_pairs);
      PairTokensOf(p.write, state_rows, p.write_pairs);
      if (options.separate_value_key()) PairTokensOf(p.value, state_rows, p.value_pairs);
    }
    for (std::int64_t q = 0; memory.q && q < memory.queries; ++q) {
      const std::int64_t at = q * state_rows * kChunk;
      PairRowsOf(p.queries + at, state_rows, p.query_pairs + at / 2);
    }
  }
}

template <class T>
void RunChunked(const Options& options, const Memory& memory, const Memory& next,
                Scratch<T>& scratch) {
  const std::int64_t state_rows = StateRows<T>(options, memory.key_dim);
  const std::int64_t columns = RoundUp(memory.value_dim, kAlignment / sizeof(T));
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const std::int64_t values_from =
      memory.writes() ? FirstConverted<T>(memory, memory.v.dtype, false) : memory.end_column;
  const bool whole_rows = options.output_norm != OutputNorm::kNone || memory.steps > 1;
  const std::int64_t outputs_from =
      memory.q ? FirstConverted<T>(memory, memory.y.dtype, whole_rows) : memory.end_column;
  const bool streams = Streams<T>(memory, whole_rows);
  std::fill(scratch.zeros, scratch.zeros + scratch.gathered.stride, T(0));
  Keeper<T> keeper(options, memory);
  if (memory.from == 0) {
    LoadStrips(memory, memory.state, 0, state_rows, scratch);
    if (options.paired()) {
      LoadStrips(memory, memory.second, memory.key_dim, state_rows, scratch);
    }
    PairStrips(memory, state_rows, scratch);
    KeepFirst(memory, state_rows, scratch, keeper);
  }

  static_assert(kBlockChunks == 2);
  const Prepared<T> prepared[kBlockChunks] = {{options, memory, scratch, 0},
                                              {options, memory, scratch, 1}};
  for (std::int64_t begin = memory.from; begin < memory.to;) {
    Chunk chunks[kBlockChunks];
    std::int64_t count = 0;
    std::int64_t end = begin;
    for (; count < kBlockChunks && end < memory.to; ++count) {
      chunks[count] = NextChunk(options, memory, end);
      end += chunks[count].rows;
      // Whether anything is kept or not: answers are the same numbers.
      const bool wanted = end % kGradientBlock == 0 || end == memory.rows;
      Prepare(options, memory, wanted, chunks[count], scratch, prepared[count]);
      PairColumns(options, memory, state_rows, scratch, prepared[count]);
      // What is kept beside the strips is that of a block's end.
      if (keeper.Wants(end)) {
        ++count;
        break;
      }
    }
    const bool keeps = keeper.Wants(end);
    if (values_from < memory.end_column) {
      for (std::int64_t t = begin; t < end; ++t) {
        T* row = scratch.values + (t - begin) * columns;
        LoadRow(memory.v, t, values_from, memory.end_column - values_from, row + values_from);
        std::fill(row + memory.end_column, row + columns, T(0));
      }
    }
    const std::int64_t strips =
        RoundUp(memory.end_column - memory.first_column, 2 * Lanes<T>()) / (2 * Lanes<T>());
    const std::int64_t tiles = RoundUp(StripRowsOf(options, memory), kWrittenRows) / kWrittenRows *
                               (options.separate_value_key() ? 2 : 1);
    const bool last = end == memory.to;
    const std::int64_t ahead_begin = last ? next.from : end;
    const std::int64_t ahead_end = std::min(ahead_begin + kBlockRows, last ? next.to : memory.to);
    Prefetcher ahead = AheadOf<T>(options, last ? next : memory, streams, ahead_begin, ahead_end);
    ahead.Start(strips * count * tiles);
    for (std::int64_t c = memory.first_column; c < memory.end_column;) {
      const std::int64_t width = Width<T>(memory, c);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t t = chunks[i].first;
        const OuterRows<T> v =
            c < values_from
                ? OuterRowsAt<T>(memory.v, t * memory.v.stride + c)
                : OuterRows<T>{scratch.values + (t - begin) * columns + c, columns, false};
        const SavedRows<T> saved{{keeper.Errors(t, c), keeper.errors_stride()},
                                 {keeper.Answers(t, c), keeper.answers_stride()},
                                 keeper.values()};
        const bool direct = c < outputs_from;
        const OuterRows<T> y =
            direct ? OuterRowsAt<T>(memory.y, t * memory.y.stride + c)
                   : OuterRows<T>{scratch.outputs + (t - begin) * columns + c, columns, false};
        const std::int64_t y_head_stride = direct ? memory.y_head_stride : kBlockRows * columns;
        T* strip = scratch.strips + c * state_rows;
        auto process = [&]<int NV, bool NARROW>(std::uint32_t* pairs) {
          ProcessStrip<NV, NARROW>(options, memory, chunks[i], prepared[i], scratch, strip, pairs,
                                   v, saved, y, y_head_stride, streams, ahead);
        };
        if (kNarrows<T> && scratch.narrowed.strips != nullptr) {
          std::uint32_t* const pairs = scratch.narrowed.strips + c * state_rows / 2;
          width > Lanes<T>() ? process.template operator()<2, kNarrows<T>>(pairs)
                             : process.template operator()<1, kNarrows<T>>(pairs);
        } else {
          width > Lanes<T>() ? process.template operator()<2, false>(nullptr)
                             : process.template operator()<1, false>(nullptr);
        }
      }
      if (keeps) keeper.Strip(scratch.strips + c * state_rows, c, width);
      c += width;
      if (c >= memory.end_column) keeper.PadErrors(begin, end, c);
    }
    if (keeps) keeper.Finish(scratch.carried.sum);
    if (outputs_from < memory.end_column) {
      for (std::int64_t q = 0; q < queries; ++q) {
        for (std::int64_t r = begin; r < end; ++r) {
          if (!memory.Reads(r)) continue;
          T* row = scratch.outputs + (q * kBlockRows + r - begin) * columns + outputs_from;
          NormaliseOutput(options, row, memory.end_column - outputs_from);
          StoreRow(row, memory.Token(r), q * memory.y_head_stride + outputs_from,
                   memory.end_column - outputs_from, memory.y);
        }
      }
    }
    begin = end;
  }
  if (memory.to < memory.rows) return;
  if (streams) hwy::FlushStream();
  if (!memory.writes()) return;
  StoreStrips(memory, memory.state, 0, state_rows, scratch);
  if (options.paired()) {
    StoreStrips(memory, memory.second, memory.key_dim, state_rows, scratch);
  }
}

template <class T>
void RunOne(const Options& options, const Memory& memory, const Memory& next, Scratch<T>& scratch) {
  LoadCarried(memory, scratch);
  if (scratch.direct) {
    RunDirect(options, memory, next, scratch);
  } else {
    RunChunked(options, memory, next, scratch);
  }
  if (memory.writes() || memory.to < memory.rows) StoreCarried(memory, scratch);
}

template <class T>
void Run(const Options& options, const Memory& memory, const Memory& next, Scratch<T>& worker) {
  if (memory.rows == 0) return;
  if (memory.place == 0) return RunOne(options, memory, next, worker);
  Scratch<T> own = worker.At(memory.place);
  RunOne(options, memory, next, own);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_RUN_INL_H_
