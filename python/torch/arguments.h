/// The arguments of an operator as it finds them on the dispatcher's stack, in the words of the
/// library.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tensors.h"
#include "ttr/error.h"
#include "ttr/inputs.h"
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

/// "features.w" is the argument `features_w`.
std::string ArgumentName(std::string_view input);

/// The inputs of a layer: as many optional tensors as InputFields(), in their order.
class InputTensors {
 public:
  /// Reads nothing of the tensors yet.
  explicit InputTensors(Stack& stack);

  /// Views for the length of the call; tensors whose last axis is not contiguous, and int32
  /// sequences, are copied here.
  const Inputs& Views(std::string_view op);
  const OptionalTensor& at(std::size_t field) const { return tensors_[field]; }

 private:
  std::vector<OptionalTensor> tensors_;
  Inputs views_;
};

/// Entries of a state: of all that StateSpecs() lists those whose bit is set; -1: all of them, or
/// none where the list is empty.
class StateTensors {
 public:
  StateTensors() = default;
  StateTensors(std::vector<Tensor> tensors, std::int64_t entries);

  /// Binds the entries by their names; as they are.
  State Views(std::string_view op, const std::vector<StateSpec>& specs);
  /// Null where the entry is absent.
  const Tensor* Find(std::size_t entry) const;

 private:
  std::vector<Tensor> tensors_;
  std::int64_t entries_ = -1;
};

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

/// "Tensor? q=None, Tensor? k=None, ...": every input.
std::string InputArguments();

}  // namespace ttr::pytorch
