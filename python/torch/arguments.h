/// The arguments of an operator as it finds them on the dispatcher's stack, in the words of the
/// library.
#pragma once

#include <torch/csrc/stable/library.h>

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tensors.h"
#include "ttr/call.h"
#include "ttr/error.h"
#include "ttr/inputs.h"
#include "ttr/layer.h"
#include "ttr/state.h"

namespace ttr::pytorch {

/// Takes the arguments off the stack, one after another. All are taken before anything throws: each
/// is a reference that somebody has to give back.
class Stack {
 public:
  explicit Stack(StableIValue* values) : values_(values) {}

  template <class T>
  T Take() {
    return torch::stable::detail::to<T>(values_[next_++]);
  }
  std::string TakeText() { return Take<std::string>(); }

 private:
  StableIValue* values_;
  std::size_t next_ = 0;
};

/// The switches of a call (python/switches.h) as keywords of a schema, ", bool
/// bfloat16_products=False"; and off the stack, where they stand last.
std::string SwitchKeywords();
CallOptions TakeSwitches(Stack& stack);

/// Tensors by the bits of a number: bit i is set where the i-th thing of some list has one. The
/// tensors stand in the order of the list.
class ByBits {
 public:
  ByBits(std::vector<Tensor> tensors, std::int64_t bits)
      : tensors_(std::move(tensors)), bits_(static_cast<std::uint64_t>(bits)) {}

  std::uint64_t bits() const { return bits_; }
  std::size_t size() const { return tensors_.size(); }
  std::vector<Tensor>& tensors() { return tensors_; }

  /// use(i, tensor) for every thing of the list that has one. Error where there are not as many
  /// tensors as bits, or bits beyond `most`.
  template <class Use>
  void ForEach(std::string_view op, std::string_view name, std::size_t most, const Use& use) {
    Check(op, name, most);
    std::size_t next = 0;
    for (std::uint64_t rest = bits_; rest != 0; rest &= rest - 1) {
      use(static_cast<std::size_t>(std::countr_zero(rest)), tensors_[next++]);
    }
  }

 private:
  void Check(std::string_view op, std::string_view name, std::size_t most) const;

  std::vector<Tensor> tensors_;
  std::uint64_t bits_;
};

/// The two arguments of a ByBits.
ByBits TakeByBits(Stack& stack);

/// The inputs of a layer as views for the length of the call. Bits: InputFields(). Tensors whose
/// last axis is not contiguous, and int32 sequences, are replaced by copies.
Inputs InputViews(std::string_view op, ByBits& tensors);

/// The view of rows for the length of the call, absent where there is no tensor. A tensor whose
/// last axis is not contiguous is replaced by a copy.
TensorView RowsOf(std::string_view op, std::string_view name, OptionalTensor& tensor);
/// As they are.
TensorView ViewOf(std::string_view op, std::string_view name, const OptionalTensor& tensor);
/// Bounds of packed sequences; int32 is replaced by a copy.
TensorView SequencesOf(std::string_view op, OptionalTensor& tensor);
/// Integers; int32 is replaced by a copy.
TensorView IntegersOf(std::string_view op, std::string_view name, OptionalTensor& tensor);

/// A state bound to tensors as they are. Bits: StateSpecs().
State StateViews(std::string_view op, const std::vector<StateSpec>& specs, ByBits& tensors);

/// All entries, in the order of StateSpecs(); or none.
State WholeState(std::string_view op, const Layer& layer, std::vector<Tensor> tensors);
/// A tensor for each entry.
std::vector<Tensor> CopiesOf(std::string_view op, const State& state);

/// Puts the results where the dispatcher looks for them.
template <class... T>
void Return(StableIValue* stack, const T&... results) {
  std::size_t next = 0;
  ((stack[next++] = torch::stable::detail::from(results)), ...);
}

/// Throws the error that is being handled as the caller's words have it: he writes features_w for
/// the input features.w.
[[noreturn]] void Rethrow(const Error& error);

/// Calls body(stack), which takes its arguments from it and returns into it.
template <void (*body)(StableIValue*)>
void Operator(StableIValue* stack, std::uint64_t, std::uint64_t) {
  try {
    body(stack);
  } catch (const Error& error) {
    Rethrow(error);
  }
}

}  // namespace ttr::pytorch
