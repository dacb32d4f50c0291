// The chunked forward pass over one memory, compiled for every target.

#include "src/engines/fast_weights/kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/ahead-inl.h"
#include "src/engines/fast_weights/direct-inl.h"
#include "src/engines/fast_weights/prepare-inl.h"
#include "src/engines/fast_weights/rows-inl.h"
#include "src/engines/fast_weights/strip-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

template <class T>
constexpr std::int64_t Lanes() {
  return hn::MaxLanes(hn::ScalableTag<T>());
}

/// Width of the strip that begins at `column`: two vectors, or one at the end.
template <class T>
std::int64_t Width(const Memory& memory, std::int64_t column) {
  return memory.value_dim - column > Lanes<T>() ? 2 * Lanes<T>() : Lanes<T>();
}

/// The memory between its home and the strips of the scratch: columns that a strip has beyond the
/// memory's last are zero.
template <class T>
void LoadStrips(const Memory& memory, const Scratch<T>& scratch, std::int64_t key_rows) {
  const T* state = static_cast<const T*>(memory.state);
  for (std::int64_t c = memory.first_column; c < memory.end_column;) {
    const std::int64_t width = Width<T>(memory, c);
    const std::int64_t filled = std::min(width, memory.value_dim - c);
    T* strip = scratch.strips + c * key_rows;
    for (std::int64_t row = 0; row < key_rows; ++row, strip += width) {
      const std::int64_t count = row < memory.key_dim ? filled : 0;
      const T* from = state + row * memory.state_stride + c;
      for (std::int64_t i = 0; i < count; ++i) strip[i] = from[i];
      std::fill(strip + count, strip + width, T(0));
    }
    c += width;
  }
}

template <class T>
void StoreStrips(const Memory& memory, const Scratch<T>& scratch, std::int64_t key_rows) {
  T* state = static_cast<T*>(memory.state);
  for (std::int64_t c = memory.first_column; c < memory.end_column;) {
    const std::int64_t width = Width<T>(memory, c);
    const std::int64_t filled = std::min(width, memory.value_dim - c);
    const T* strip = scratch.strips + c * key_rows;
    for (std::int64_t row = 0; row < memory.key_dim; ++row, strip += width) {
      std::copy(strip, strip + filled, state + row * memory.state_stride + c);
    }
    c += width;
  }
}

/// The first column from which rows of this type go through the scratch instead of being read or
/// written where they lie: all of them where they need conversion, else a last strip that they do
/// not fill.
template <class T>
std::int64_t FirstConverted(const Memory& memory, DType dtype, bool whole_rows) {
  if (dtype != DTypeOf<T>() || whole_rows) return memory.first_column;
  const std::int64_t filled = memory.value_dim / Lanes<T>() * Lanes<T>();
  const std::int64_t last = filled / (2 * Lanes<T>()) * (2 * Lanes<T>());
  const std::int64_t end = filled == memory.value_dim ? filled : last;
  return std::clamp(end, memory.first_column, memory.end_column);
}

template <class T>
void RunChunked(const Options& options, const Memory& memory, const Memory& next,
                const Scratch<T>& scratch) {
  const std::int64_t key_rows = RoundUp(memory.key_dim, kAlignment / sizeof(T));
  const std::int64_t columns = RoundUp(memory.value_dim, kAlignment / sizeof(T));
  const std::int64_t queries = memory.q ? memory.queries : 0;
  const std::int64_t values_from =
      memory.k ? FirstConverted<T>(memory, memory.v.dtype, false) : memory.end_column;
  const bool whole_rows = options.output_norm != OutputNorm::kNone;
  const std::int64_t outputs_from =
      memory.q ? FirstConverted<T>(memory, memory.y.dtype, whole_rows) : memory.end_column;
  const T* values = static_cast<const T*>(memory.v.data);
  T* outputs = static_cast<T*>(memory.y.data);
  std::fill(scratch.zeros, scratch.zeros + key_rows, T(0));
  LoadStrips(memory, scratch, key_rows);

  for (std::int64_t begin = 0; begin < memory.tokens;) {
    Chunk chunks[kBlockChunks];
    std::int64_t count = 0;
    std::int64_t end = begin;
    for (; count < kBlockChunks && end < memory.tokens; ++count) {
      chunks[count] = NextChunk(memory, end);
      end += chunks[count].tokens;
      Prepare(options, memory, chunks[count], scratch, Prepared<T>(memory, scratch, count));
    }
    if (values_from < memory.end_column) {
      for (std::int64_t t = begin; t < end; ++t) {
        T* row = scratch.values + (t - begin) * columns;
        LoadRow(memory.v, t, values_from, memory.end_column - values_from, row + values_from);
        std::fill(row + memory.end_column, row + columns, T(0));
      }
    }
    const std::int64_t strips =
        RoundUp(memory.end_column - memory.first_column, 2 * Lanes<T>()) / (2 * Lanes<T>());
    const std::int64_t tiles = RoundUp(memory.key_dim, sn::kTileRows) / sn::kTileRows;
    const bool last = end == memory.tokens;
    const std::int64_t ahead_begin = last ? 0 : end;
    const std::int64_t ahead_tokens = last ? next.tokens : memory.tokens;
    Ahead ahead(last ? next : memory, ahead_begin,
                std::min(ahead_begin + kBlockTokens, ahead_tokens), strips * count * tiles);
    for (std::int64_t c = memory.first_column; c < memory.end_column;) {
      const std::int64_t width = Width<T>(memory, c);
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t t = chunks[i].first;
        const Prepared<T> prepared(memory, scratch, i);
        const StripRows<const T> v =
            c < values_from
                ? StripRows<const T>{values + t * memory.v.stride + c, memory.v.stride}
                : StripRows<const T>{scratch.values + (t - begin) * columns + c, columns};
        const bool direct = c < outputs_from;
        const StripRows<T> y =
            direct ? StripRows<T>{outputs + t * memory.y.stride + c, memory.y.stride}
                   : StripRows<T>{scratch.outputs + (t - begin) * columns + c, columns};
        const std::int64_t y_head_stride = direct ? memory.y_head_stride : kBlockTokens * columns;
        T* strip = scratch.strips + c * key_rows;
        if (width > Lanes<T>()) {
          ProcessStrip<2>(options, memory, chunks[i], prepared, scratch, strip, v, y, y_head_stride,
                          ahead);
        } else {
          ProcessStrip<1>(options, memory, chunks[i], prepared, scratch, strip, v, y, y_head_stride,
                          ahead);
        }
      }
      c += width;
    }
    if (outputs_from < memory.end_column) {
      for (std::int64_t q = 0; q < queries; ++q) {
        for (std::int64_t t = begin; t < end; ++t) {
          T* row = scratch.outputs + (q * kBlockTokens + t - begin) * columns + outputs_from;
          NormaliseOutput(options, row, memory.end_column - outputs_from);
          StoreRow(row, memory.end_column - outputs_from, memory.y.data, memory.y.dtype,
                   t * memory.y.stride + q * memory.y_head_stride + outputs_from);
        }
      }
    }
    begin = end;
  }
  if (memory.k) StoreStrips(memory, scratch, key_rows);
}

template <class T>
void Run(const Options& options, const Memory& memory, const Memory& next, const Sizes& sizes,
         std::byte* memory_block) {
  if (memory.tokens == 0) return;
  const Scratch<T> scratch(sizes, memory_block);
  if (sizes.tokens <= kDirectTokens) {
    RunDirect(options, memory, next, scratch);
  } else {
    RunChunked(options, memory, next, scratch);
  }
}

void RunFloat(const Options& options, const Memory& memory, const Memory& next, const Sizes& sizes,
              std::byte* scratch) {
  Run<float>(options, memory, next, sizes, scratch);
}
void RunDouble(const Options& options, const Memory& memory, const Memory& next, const Sizes& sizes,
               std::byte* scratch) {
  Run<double>(options, memory, next, sizes, scratch);
}
std::int64_t VectorBytes() { return Lanes<float>() * static_cast<std::int64_t>(sizeof(float)); }
const char* CompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {

HWY_EXPORT(RunFloat);
HWY_EXPORT(RunDouble);
HWY_EXPORT(VectorBytes);
HWY_EXPORT(CompiledTarget);

void RunMemory(DType dtype, const Options& options, const Memory& memory, const Memory& next,
               const Sizes& sizes, std::byte* scratch) {
  if (dtype == DType::kFloat64) {
    TTR_DISPATCH(RunDouble)(options, memory, next, sizes, scratch);
  } else {
    TTR_DISPATCH(RunFloat)(options, memory, next, sizes, scratch);
  }
}

std::int64_t StripColumns(DType dtype) {
  return 2 * TTR_DISPATCH(VectorBytes)() / static_cast<std::int64_t>(SizeOf(dtype));
}

const char* KernelTarget() { return TTR_DISPATCH(CompiledTarget)(); }

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
