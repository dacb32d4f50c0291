// Rows of one number a channel, by strides: to and from rows of the arithmetic's type. Compiled
// once for every target.

#if defined(TTR_ROWS_CONV_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_ROWS_CONV_COLUMNS_INL_H_
#undef TTR_ROWS_CONV_COLUMNS_INL_H_
#else
#define TTR_ROWS_CONV_COLUMNS_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/rows/short_conv_kernel.h"
#include "src/simd/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::rows {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// use(typed pointer to channel `channel`).
template <class Use>
HWY_INLINE void WithColumns(const ConvColumns& columns, std::int64_t channel, const Use& use) {
  const std::int64_t offset = channel * columns.channel_stride;
  switch (columns.dtype) {
    case DType::kFloat32: return use(static_cast<float*>(columns.data) + offset);
    case DType::kFloat64: return use(static_cast<double*>(columns.data) + offset);
    default: return use(static_cast<BFloat16*>(columns.data) + offset);
  }
}

#if HWY_TARGET != HWY_SCALAR

/// Tensors in PyTorch's order have the W numbers of a channel side by side: a vector of channels is
/// R vectors of numbers. Loads those of `count` channels that fill whole vectors, and returns how
/// many.
template <int R, class T, class From>
HWY_INLINE std::int64_t Deinterleave(const From* from, std::int64_t count, T* to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto load = [](auto tag, const auto* p, auto* v) HWY_ATTR {
    if constexpr (R == 2) hn::LoadInterleaved2(tag, p, v[0], v[1]);
    if constexpr (R == 3) hn::LoadInterleaved3(tag, p, v[0], v[1], v[2]);
    if constexpr (R == 4) hn::LoadInterleaved4(tag, p, v[0], v[1], v[2], v[3]);
  };
  std::int64_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    if constexpr (std::is_same_v<T, From>) {
      hn::Vec<decltype(d)> v[R];
      load(d, from + c * R, v);
      for (int r = 0; r < R; ++r) hn::StoreU(v[r], d, to + r * count + c);
    } else {
      const hn::Rebind<std::uint16_t, decltype(d)> narrow;
      const hn::RebindToUnsigned<decltype(d)> wide;
      hn::Vec<decltype(narrow)> v[R];
      load(narrow, reinterpret_cast<const std::uint16_t*>(from + c * R), v);
      for (int r = 0; r < R; ++r) {
        const auto bits = hn::ShiftLeft<16>(hn::PromoteTo(wide, v[r]));
        hn::StoreU(hn::BitCast(d, bits), d, to + r * count + c);
      }
    }
  }
  return c;
}

/// Stores those of `count` channels that fill whole vectors, and returns how many. Row r of `from`
/// begins at r `count`.
template <int R, class T, class To>
HWY_INLINE std::int64_t Interleave(const T* from, std::int64_t count, To* to) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto store = [](auto tag, const auto* v, auto* p) HWY_ATTR {
    if constexpr (R == 2) hn::StoreInterleaved2(v[0], v[1], tag, p);
    if constexpr (R == 3) hn::StoreInterleaved3(v[0], v[1], v[2], tag, p);
    if constexpr (R == 4) hn::StoreInterleaved4(v[0], v[1], v[2], v[3], tag, p);
  };
  std::int64_t c = 0;
  for (; c + lanes <= count; c += lanes) {
    if constexpr (std::is_same_v<T, To>) {
      hn::Vec<decltype(d)> v[R];
      for (int r = 0; r < R; ++r) v[r] = hn::LoadU(d, from + r * count + c);
      store(d, v, to + c * R);
    } else {
      const hn::Rebind<std::uint16_t, decltype(d)> narrow;
      hn::Vec<decltype(narrow)> v[R];
      for (int r = 0; r < R; ++r) {
        const auto bits = sn::NarrowInUpperHalves(d, hn::LoadU(d, from + r * count + c));
        v[r] = hn::TruncateTo(narrow, hn::ShiftRight<16>(bits));
      }
      store(narrow, v, reinterpret_cast<std::uint16_t*>(to + c * R));
    }
  }
  return c;
}

#endif  // HWY_TARGET != HWY_SCALAR

/// do_rows(the number of rows as a constant) where the numbers of a channel lie side by side, are
/// a few, and have vectors for their type; 0 elsewhere.
template <class T, class Stored, class DoRows>
HWY_INLINE std::int64_t SideBySide([[maybe_unused]] const ConvColumns& columns,
                                   [[maybe_unused]] const DoRows& do_rows) {
#if HWY_TARGET != HWY_SCALAR
  constexpr bool kVectors =
      std::is_same_v<T, Stored> || (std::is_same_v<T, float> && std::is_same_v<Stored, BFloat16>);
  if constexpr (kVectors) {
    if (columns.row_stride != 1 || columns.channel_stride != columns.rows) return 0;
    switch (columns.rows) {
      case 2: return do_rows(std::integral_constant<int, 2>());
      case 3: return do_rows(std::integral_constant<int, 3>());
      case 4: return do_rows(std::integral_constant<int, 4>());
      default: return 0;
    }
  }
#endif
  return 0;
}

/// to[r][c], rows of `count`: channels begin .. begin + count of all rows.
template <class T>
void LoadColumns(const ConvColumns& columns, std::int64_t begin, std::int64_t count, T* to) {
  WithColumns(columns, begin, [&](const auto* from) HWY_ATTR {
    using From = std::remove_const_t<std::remove_pointer_t<decltype(from)>>;
    std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
    done = SideBySide<T, From>(columns, [&](auto rows) HWY_ATTR {
      return Deinterleave<rows(), T, From>(from, count, to);
    });
#endif
    for (std::int64_t r = 0; r < columns.rows; ++r) {
      const From* const row = from + r * columns.row_stride;
      if (columns.channel_stride == 1) {
        sn::ConvertFrom(row, count, to + r * count);
        continue;
      }
      for (std::int64_t c = done; c < count; ++c) {
        to[r * count + c] = static_cast<T>(sn::Widen(row[c * columns.channel_stride]));
      }
    }
  });
}

/// Channels begin .. begin + count of all rows = from[r][c], rows of `count`.
template <class T>
void StoreColumns(const T* from, std::int64_t begin, std::int64_t count,
                  const ConvColumns& columns) {
  WithColumns(columns, begin, [&](auto* to) HWY_ATTR {
    using To = std::remove_pointer_t<decltype(to)>;
    std::int64_t done = 0;
#if HWY_TARGET != HWY_SCALAR
    done = SideBySide<T, To>(
        columns, [&](auto rows) HWY_ATTR { return Interleave<rows(), T, To>(from, count, to); });
#endif
    for (std::int64_t r = 0; r < columns.rows; ++r) {
      To* const row = to + r * columns.row_stride;
      if (columns.channel_stride == 1) {
        sn::ConvertTo(from + r * count, count, row);
        continue;
      }
      for (std::int64_t c = done; c < count; ++c) {
        row[c * columns.channel_stride] = sn::Narrow<To>(from[r * count + c]);
      }
    }
  });
}

/// Row `r` of `to` gets row `from_row` of `from`, which has the same type: bit for bit.
inline void CopyColumns(const ConvColumns& from, std::int64_t from_row, const ConvColumns& to,
                        std::int64_t r, std::int64_t count) {
  WithColumns(to, 0, [&](auto* out) HWY_ATTR {
    const auto* in = static_cast<decltype(out)>(from.data) + from_row * from.row_stride;
    out += r * to.row_stride;
    for (std::int64_t c = 0; c < count; ++c) {
      out[c * to.channel_stride] = in[c * from.channel_stride];
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::rows
HWY_AFTER_NAMESPACE();

#endif  // TTR_ROWS_CONV_COLUMNS_INL_H_
