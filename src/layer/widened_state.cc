#include "src/layer/widened_state.h"

#include <algorithm>
#include <array>
#include <string>

#include "ttr/inputs.h"

namespace ttr {
namespace {

/// Row n of an entry, [1, ...].
TensorView RowOf(const TensorView& view, std::int64_t n) {
  std::array<std::int64_t, kMaxRank> sizes{}, strides{};
  const auto rank = static_cast<std::size_t>(view.rank());
  for (std::size_t axis = 0; axis < rank; ++axis) {
    sizes[axis] = axis == 0 ? 1 : view.size(static_cast<int>(axis));
    strides[axis] = view.stride(static_cast<int>(axis));
  }
  std::byte* const row = static_cast<std::byte*>(view.data()) +
                         n * view.stride(0) * static_cast<std::int64_t>(SizeOf(view.dtype()));
  return {row, view.dtype(), Shape(std::span<const std::int64_t>(sizes.data(), rank)),
          std::span<const std::int64_t>(strides.data(), rank)};
}

/// Calls each(row of the state, row of the copy) for all rows.
template <class Each>
void ForRows(const TensorView& state, const TensorView& copy, std::span<const std::int64_t> slots,
             const Each& each) {
  for (std::int64_t n = 0; n < copy.size(0); ++n) {
    each(RowOf(state, slots.empty() ? n : slots[static_cast<std::size_t>(n)]), RowOf(copy, n));
  }
}

}  // namespace

bool IsRounded(const Requirements& requirements, const State& state) {
  return std::ranges::any_of(requirements.state, [&](const StateSpec& spec) {
    const TensorView view =
        spec.role == EntryRole::kWrittenMatrix ? state.Get(spec.name) : TensorView();
    return view.defined() && IsNarrow(view.dtype());
  });
}

State Widened(const State& state, std::span<const std::int64_t> slots) {
  State wide;
  for (const State::Entry& entry : state.entries()) {
    const TensorView& view = entry.view;
    std::array<std::int64_t, kMaxRank> sizes{};
    for (int axis = 0; axis < view.rank(); ++axis) {
      sizes[static_cast<std::size_t>(axis)] = view.size(axis);
    }
    if (!slots.empty()) sizes[0] = static_cast<std::int64_t>(slots.size());
    Tensor copy(WideOf(view.dtype()),
                Shape(std::span(sizes).first(static_cast<std::size_t>(view.rank()))));
    ForRows(view, copy.view(), slots,
            [](const TensorView& from, const TensorView& to) { CopyInto(from, to); });
    wide.Set(entry.name, std::move(copy));
  }
  return wide;
}

void Round(const State& wide, const State& state, std::span<const std::int64_t> slots) {
  for (const State::Entry& entry : wide.entries()) {
    ForRows(state.Get(entry.name), entry.view, slots,
            [](const TensorView& to, const TensorView& from) { CopyInto(from, to); });
  }
}

}  // namespace ttr
