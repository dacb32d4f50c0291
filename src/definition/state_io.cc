#include "src/definition/state_io.h"

#include <algorithm>

namespace ttr::definition {
namespace {

// The axes that one memory sees are those of the spec without sequence and head: [N, S, H, D]
// becomes [S, D]. `Visit` walks them and calls f(offset in the tensor, index in the array).
struct Layout {
  std::vector<int> axes;  // of the tensor, without the sequence and head axes
  int sequence_axis = -1;
  int head_axis = -1;
};

Layout LayoutOf(const StateSpec& spec, int rank) {
  Layout layout;
  // Start weights of networks may lack the sequence axis.
  const int missing = static_cast<int>(spec.shape.size()) - rank;
  for (int i = missing; i < static_cast<int>(spec.shape.size()); ++i) {
    switch (spec.shape[static_cast<std::size_t>(i)]) {
      case Axis::kStates: layout.sequence_axis = i - missing; break;
      case Axis::kHeads: layout.head_axis = i - missing; break;
      default: layout.axes.push_back(i - missing);
    }
  }
  return layout;
}

template <class F>
void Visit(const TensorView& view, const Layout& layout, std::int64_t sequence, std::int64_t head,
           const std::vector<std::int64_t>& shape, const F& f) {
  std::int64_t base = 0;
  if (layout.sequence_axis >= 0) base += sequence * view.stride(layout.sequence_axis);
  if (layout.head_axis >= 0) base += head * view.stride(layout.head_axis);
  const std::int64_t rows = shape.size() > 1 ? shape[0] : 1;
  const std::int64_t cols = shape.empty() ? 1 : shape.back();
  const std::int64_t row_stride = shape.size() > 1 ? view.stride(layout.axes[0]) : 0;
  const std::int64_t col_stride = shape.empty() ? 0 : view.stride(layout.axes.back());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      f(base + r * row_stride + c * col_stride, static_cast<std::size_t>(r * cols + c));
    }
  }
}

/// Is there a place for every number? Rows of pairs may be more than are held.
bool Fits(const TensorView& view, const StateSpec& spec, const Shape& shape) {
  if (!view.defined() || view.rank() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool grows = spec.shape[static_cast<std::size_t>(i)] == Axis::kPairs;
    if (grows ? view.size(i) < shape[i] : view.size(i) != shape[i]) return false;
  }
  return true;
}

}  // namespace

Arrays LoadArrays(const Recipe& recipe, const State& state, std::int64_t sequence,
                  std::int64_t head) {
  Arrays arrays;
  for (const StateSpec& spec : StateSpecs(recipe)) {
    const TensorView view = state.Get(spec.name);
    if (!view.defined()) continue;
    const Layout layout = LayoutOf(spec, view.rank());
    Array array;
    std::size_t elements = 1;
    for (const int axis : layout.axes) {
      array.shape.push_back(view.size(axis));
      elements *= static_cast<std::size_t>(view.size(axis));
    }
    array.values.resize(elements);
    if (elements > 0) {
      Visit(view, layout, sequence, head, array.shape, [&](std::int64_t offset, std::size_t i) {
        array.values[i] = LoadElement(view.data(), view.dtype(), offset);
      });
    }
    arrays[spec.name] = std::move(array);
  }
  return arrays;
}

void StoreArrays(const Recipe& recipe, const std::vector<Arrays>& memories, std::int64_t heads,
                 DType dtype, State& state) {
  if (memories.empty()) return;
  const std::int64_t sequences = static_cast<std::int64_t>(memories.size()) / heads;
  for (const StateSpec& spec : StateSpecs(recipe)) {
    const Layout layout = LayoutOf(spec, static_cast<int>(spec.shape.size()));
    std::vector<std::int64_t> sizes(spec.shape.size(), 0);
    sizes[static_cast<std::size_t>(layout.sequence_axis)] = sequences;
    sizes[static_cast<std::size_t>(layout.head_axis)] = heads;
    for (const Arrays& arrays : memories) {
      const Array& array = arrays.at(spec.name);
      for (std::size_t i = 0; i < layout.axes.size(); ++i) {
        auto& size = sizes[static_cast<std::size_t>(layout.axes[i])];
        size = std::max(size, array.shape[i]);
      }
    }
    const Shape shape{std::span<const std::int64_t>(sizes)};
    TensorView view = state.Get(spec.name);
    if (!Fits(view, spec, shape)) {
      const DType made = spec.counts() ? DType::kInt64 : dtype;
      state.Set(spec.name, Tensor(view.defined() ? view.dtype() : made, shape));
      view = state.Get(spec.name);
    }
    for (std::size_t m = 0; m < memories.size(); ++m) {
      const Array& array = memories[m].at(spec.name);
      if (array.values.empty()) continue;
      Visit(view, layout, static_cast<std::int64_t>(m) / heads,
            static_cast<std::int64_t>(m) % heads, array.shape,
            [&](std::int64_t offset, std::size_t i) {
              StoreElement(view.data(), view.dtype(), offset, array.values[i]);
            });
    }
  }
}

}  // namespace ttr::definition
