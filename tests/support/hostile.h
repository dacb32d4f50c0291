// Views that a call does not want, drawn at random, in memory of exactly their extents.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ttr/tensor.h"

namespace ttr::test {

// `usual`, or what the environment's TTR_DRAWS says.
int Draws(int usual);

// Tensors in memory of their exact extents, and what lay in them.
class Memory {
 public:
  explicit Memory(std::uint64_t seed) : random_(seed) {}

  std::int64_t Below(std::int64_t count) {
    return std::uniform_int_distribution<std::int64_t>(0, count - 1)(random_);
  }
  bool OneIn(std::int64_t count) { return Below(count) == 0; }

  // A view of this shape with these strides; `shift` bytes behind an aligned address.
  TensorView Make(DType dtype, const Shape& shape, const std::vector<std::int64_t>& strides,
                  std::int64_t shift = 0) {
    std::int64_t first = 0, last = 0;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      const std::int64_t reach =
          std::max<std::int64_t>(shape[axis] - 1, 0) * strides[static_cast<std::size_t>(axis)];
      (reach < 0 ? first : last) += reach;
    }
    const auto size = static_cast<std::int64_t>(SizeOf(dtype));
    const auto bytes = static_cast<std::size_t>((last - first + 1) * size + shift);
    blocks_.emplace_back(new std::byte[bytes], bytes);
    std::memset(blocks_.back().first.get(), 0, bytes);
    return TensorView(blocks_.back().first.get() + shift - first * size, dtype, shape, strides);
  }
  // Contiguous, a copy of what is given.
  TensorView Copy(const TensorView& view) {
    std::vector<std::int64_t> strides(static_cast<std::size_t>(view.rank()), 1);
    for (int axis = view.rank() - 2; axis >= 0; --axis) {
      const auto i = static_cast<std::size_t>(axis);
      strides[i] = strides[i + 1] * view.size(axis + 1);
    }
    const TensorView made = Make(view.dtype(), view.shape(), strides);
    CopyInto(view, made);
    return made;
  }

  std::vector<std::vector<std::byte>> Snapshot() const {
    std::vector<std::vector<std::byte>> all;
    for (const auto& [data, bytes] : blocks_) all.emplace_back(data.get(), data.get() + bytes);
    return all;
  }

 private:
  std::mt19937_64 random_;
  std::vector<std::pair<std::unique_ptr<std::byte[]>, std::size_t>> blocks_;
};

// What may be done to one view of a call. `others`: views whose memory it may be laid into.
void Spoil(Memory& memory, const std::vector<TensorView*>& others, TensorView& view);

std::string Describe(const TensorView& view);

// Runs `act`; true where it is refused, and then nothing has been written.
bool Refuses(const Memory& memory, const std::function<void()>& act);

}  // namespace ttr::test
