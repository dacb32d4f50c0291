// Inputs and outputs whose tokens lie apart.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "ttr/inputs.h"
#include "ttr/tensor.h"

namespace ttr::test {

// Rows of tokens so far apart that heads take time slices, from some 64 tokens on.
inline constexpr std::int64_t kTokenBytes = 8192;

// A view [B, T, H, D] of the same numbers, whose tokens lie so far apart, or as far as they are
// long, and which begins `first` numbers behind a line's beginning.
struct Spread {
  explicit Spread(const TensorView& of, std::int64_t token_bytes = kTokenBytes,
                  std::int64_t first = 0) {
    const std::int64_t far = token_bytes / static_cast<std::int64_t>(SizeOf(of.dtype()));
    const std::int64_t stride = std::max(far, of.size(2) * of.size(3));
    memory = Tensor(of.dtype(), {of.size(0) * of.size(1) * stride + first});
    const std::array<std::int64_t, 4> strides{of.size(1) * stride, stride, of.size(3), 1};
    auto* const data = static_cast<std::byte*>(memory.data()) +
                       first * static_cast<std::int64_t>(SizeOf(of.dtype()));
    view = TensorView(data, of.dtype(), of.shape(), strides);
    CopyInto(of, view);
  }
  Tensor memory;
  TensorView view;
};

struct SpreadInputs {
  explicit SpreadInputs(const Inputs& of, std::int64_t token_bytes = kTokenBytes,
                        std::int64_t first = 0)
      : inputs(of) {
    for (TensorView* rows : {&inputs.q, &inputs.k, &inputs.v}) {
      if (rows->defined()) *rows = spread.emplace_back(*rows, token_bytes, first).view;
    }
  }
  std::vector<Spread> spread;
  Inputs inputs;
};

}  // namespace ttr::test
