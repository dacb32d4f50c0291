#include "src/layer/widened_call.h"

#include <algorithm>
#include <array>

#include "src/simd/half.h"

namespace ttr {
namespace {

/// Calls each(rows of a, rows of b, numbers) for all rows of two tensors of one shape, whose last
/// axes are contiguous; for both as one row where they are that.
template <class Each>
void ForRows(const TensorView& a, const TensorView& b, const Each& each) {
  const std::int64_t elements = a.shape().elements();
  if (elements == 0) return;
  if (a.contiguous() && b.contiguous()) return each(0, 0, elements);
  std::array<std::int64_t, kMaxRank> index{};
  const int last = a.rank() - 1;
  while (true) {
    std::int64_t from = 0, to = 0;
    for (int axis = 0; axis < last; ++axis) {
      from += index[static_cast<std::size_t>(axis)] * a.stride(axis);
      to += index[static_cast<std::size_t>(axis)] * b.stride(axis);
    }
    each(from, to, a.size(last));
    int axis = last - 1;
    while (axis >= 0 && ++index[static_cast<std::size_t>(axis)] == a.size(axis)) {
      index[static_cast<std::size_t>(axis--)] = 0;
    }
    if (axis < 0) return;
  }
}

}  // namespace

TensorView WidenedTensors::Read(const TensorView& view) {
  if (!view.defined() || view.dtype() != DType::kFloat16) return view;
  const Tensor& copy = copies_.emplace_back(DType::kFloat32, view.shape());
  ForRows(view, copy, [&](std::int64_t from, std::int64_t to, std::int64_t count) {
    simd::Widen(view.as<const Float16>() + from, count, copy.view().as<float>() + to);
  });
  return copy;
}

TensorView WidenedTensors::Write(const TensorView& view) {
  if (!view.defined() || view.dtype() != DType::kFloat16) return view;
  const Tensor& room = copies_.emplace_back(DType::kFloat32, view.shape());
  written_.emplace_back(view, room.view());
  return room;
}

void WidenedTensors::WriteBack() const {
  for (const auto& [given, room] : written_) {
    ForRows(given, room, [&](std::int64_t to, std::int64_t from, std::int64_t count) {
      simd::Narrow(room.as<const float>() + from, count, given.as<Float16>() + to);
    });
  }
}

bool HasFloat16(const Inputs& inputs, const TensorView& rows) {
  const auto is = [](const TensorView& view) {
    return view.defined() && view.dtype() == DType::kFloat16;
  };
  return is(rows) || std::ranges::any_of(InputFields(), [&](const InputField& field) {
           return is(inputs.*field.view);
         });
}

Inputs WidenedInputs(const Inputs& inputs, WidenedTensors& tensors, bool written) {
  Inputs widened = inputs;
  for (const InputField& field : InputFields()) {
    TensorView& view = widened.*field.view;
    view = written ? tensors.Write(view) : tensors.Read(view);
  }
  return widened;
}

}  // namespace ttr
