/// The state of a layer: named tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ttr/inputs.h"
#include "ttr/tensor.h"

namespace ttr {

/// The tensors of StateSpecs(), by name: float32 or float64, counts int64. An entry that is missing
/// means the recipe's start; so does a state without entries. What an entry holds is always true:
/// nothing else is part of a memory. (Decoding with less traffic than that allows: Decoder.)
class State {
 public:
  struct Entry {
    std::string name;
    TensorView view;
    Tensor owned;  ///< empty where the caller's memory is bound
  };

  State() = default;
  /// Copies what the state owns; bound memory stays shared.
  State(const State& other);
  State& operator=(const State& other);
  State(State&&) = default;
  State& operator=(State&&) = default;

  /// Puts or replaces a tensor that this state owns.
  void Set(std::string_view name, Tensor tensor);
  /// Puts or replaces memory of the caller's, which is then updated in place.
  void Bind(std::string_view name, const TensorView& view);

  /// The tensor of a name; an undefined view when there is none.
  TensorView Get(std::string_view name) const;
  bool empty() const { return entries_.empty(); }
  const std::vector<Entry>& entries() const { return entries_; }
  void clear() { entries_.clear(); }

  /// A state of the same memory: changes of entries are shared, entries that are added are not.
  State Shared() const;

 private:
  std::vector<Entry> entries_;
};

/// Counts that earlier versions wrote as floating-point numbers become int64 tensors that the state
/// owns. What is no whole number from 0 to 2^53 stays as it is, for CheckState() to refuse.
void UpgradeCounts(const Requirements& requirements, State& state);

}  // namespace ttr
