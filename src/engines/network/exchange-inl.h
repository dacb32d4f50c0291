// Parameters in the state, and in blocks of a scratch. Compiled once for every target.

#if defined(TTR_NETWORK_EXCHANGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_EXCHANGE_INL_H_
#undef TTR_NETWORK_EXCHANGE_INL_H_
#else
#define TTR_NETWORK_EXCHANGE_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/task.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

/// The weights of one layer, wherever they lie.
template <class T>
struct LayerRows {
  T* w = nullptr;
  std::int64_t stride = 0;
  T* b = nullptr;  // null: no bias

  T* Row(std::int64_t r) const { return w + r * stride; }
};

/// The parameters of one memory: in the state, or in blocks of a scratch.
template <class T>
struct Place {
  const Shape* shape = nullptr;
  const Memory* memory = nullptr;          // in the state, or
  const Parameters* parameters = nullptr;  // null:
  Weights<T> blocks;

  LayerRows<T> operator[](std::int64_t l) const {
    if (parameters == nullptr) {
      const Block<T> block = blocks[l];
      return {block.data, block.stride, shape->bias ? block.Row(shape->In(l)) : nullptr};
    }
    const auto i = static_cast<std::size_t>(l);
    const Rows w = common::StateOf(parameters->w[i], memory->state_row, memory->head);
    T* const b = shape->bias
                     ? static_cast<T*>(
                           common::StateOf(parameters->b[i], memory->state_row, memory->head).data)
                     : nullptr;
    return {static_cast<T*>(w.data), w.stride, b};
  }
};

/// Takes parameters from the state to blocks, or back.
template <class T>
class Exchange {
 public:
  Exchange(const Shape& shape, const Memory& memory) : shape_(shape), memory_(memory) {}

  /// Numbers beyond the weights become zero. Absent tensors give zeros.
  void Load(const StateParameters& from, const StateBlocks<T>& to) const {
    for (const auto& entry : StateBlocks<T>::kEntries) {
      const Parameters& tensors = from.*entry.tensors;
      const Weights<T>& blocks = to.*entry.blocks;
      if (blocks.data() == nullptr) continue;
      std::fill(blocks.data(), blocks.data() + blocks.numbers(), T(0));
      if (!tensors.w.empty()) Move(tensors, blocks, true);
    }
  }
  void Store(const StateBlocks<T>& from, const StateParameters& to) const {
    for (const auto& entry : StateBlocks<T>::kEntries) {
      const Weights<T>& blocks = from.*entry.blocks;
      if (blocks.data() != nullptr) Move(to.*entry.tensors, blocks, false);
    }
  }

 private:
  void Move(const Parameters& tensors, const Weights<T>& blocks, bool load) const {
    const Place<T> state{&shape_, &memory_, &tensors, {}},
        scratch{&shape_, nullptr, nullptr, blocks};
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      const LayerRows<T> there = state[l], here = scratch[l];
      const std::int64_t count = shape_.Out(l);
      const auto copy = [&](T* outside, T* inside) {
        load ? std::copy(outside, outside + count, inside)
             : std::copy(inside, inside + count, outside);
      };
      for (std::int64_t r = 0; r < shape_.In(l); ++r) copy(there.Row(r), here.Row(r));
      if (shape_.bias) copy(there.b, here.b);
    }
  }

  const Shape& shape_;
  const Memory& memory_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_EXCHANGE_INL_H_
