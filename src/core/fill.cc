#include "src/core/fill.h"

#include <array>
#include <cstring>

namespace ttr {

void Fill(const TensorView& view, double value) {
  if (!view.defined()) return;
  if (value == 0 && view.contiguous()) {
    const auto bytes = static_cast<std::size_t>(view.shape().elements()) * SizeOf(view.dtype());
    if (bytes > 0) std::memset(view.data(), 0, bytes);
    return;
  }
  alignas(8) std::array<std::byte, 8> number{};
  StoreElement(number.data(), view.dtype(), 0, value);
  constexpr std::array<std::int64_t, kMaxRank> kSame{};  // the strides of a number that repeats
  CopyInto(TensorView(number.data(), view.dtype(), view.shape(),
                      std::span(kSame).first(static_cast<std::size_t>(view.rank()))),
           view);
}

}  // namespace ttr
