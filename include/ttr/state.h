/// The state of a layer: named tensors.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ttr/inputs.h"
#include "ttr/tensor.h"

namespace ttr {

/// The tensors of StateSpecs(), by name: float32 or float64, counts int64; kept pairs (state.k,
/// state.v) may be bfloat16 or float16, and are then rounded as they are written; so may be the
/// matrix of a memory that rank-one steps write (EntryRole::kWrittenMatrix). An entry that is
/// missing means the recipe's start; so does a state without entries. What an entry holds is always
/// true: nothing else is part of a memory. (Decoding with less traffic than that allows: Decoder.)
///
/// Kept pairs have room for more behind them. What a state owns grows to twice its size when it is
/// full, so that a token costs no copy of all pairs; what is bound and full is an Error.
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

/// The dtype of the arithmetic of a call, and of what its state lacks and gets: float64 where any
/// of the entries that a call computes in (state; state.k and state.v; state.w1) is float64,
/// without those where v is, or else q; otherwise float32.
DType ArithmeticType(const Inputs& inputs, const State& state);

/// Room for the pairs of a call in every entry that keeps them, bound ones too: what lacks it
/// becomes a tensor that the state owns, of twice the size at least. Errors: CheckState().
void ReservePairs(std::string_view op, const Requirements& requirements, const Dims& dims,
                  const Inputs& inputs, State& state);

/// Counts that earlier versions wrote as floating-point numbers become int64 tensors that the state
/// owns. What is no whole number from 0 to 2^53 stays as it is, for CheckState() to refuse.
void UpgradeCounts(const Requirements& requirements, State& state);

}  // namespace ttr
