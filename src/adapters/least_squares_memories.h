/// The memories of a call of least squares: its state, or the start of one.
#pragma once

#include <cstddef>
#include <string_view>

#include "src/core/call_scratch.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"
#include "ttr/state.h"

namespace ttr {

/// [H, Dphi], the ridge of every memory, as it is `given` or as the recipe says; none on the 1 of
/// an affine memory.
TensorView RidgeOfMemories(const Recipe& recipe, const Dims& dims, const TensorView& given,
                           CallScratch& scratch);

/// The entry of a state that has A, or the triangle that stands for it.
std::string_view GramEntry(const Recipe& recipe);

/// Is a ridge to be asked for? Not where it is part of an A that is given.
bool AsksForRidge(const Recipe& recipe, const State& state);

/// A and B (or L, D and W), where the recipe carries them and where it does not: a state without
/// entries begins with no associations, and with the ridge where that is part of A.
class LeastSquaresMemories {
 public:
  LeastSquaresMemories(const Recipe& recipe, const Dims& dims, const TensorView& ridge, DType dtype,
                       State& state, CallScratch& scratch);

  /// Copies A back into the caller's tensor; called after the memories are written.
  void Return() const;

  /// Bytes that they take of the scratch.
  static std::size_t ScratchBytes(const Recipe& recipe, const Dims& dims);

  TensorView a, b, rss;

 private:
  void AddSquares(const Recipe& recipe, const Dims& dims, DType dtype, State& state,
                  CallScratch& scratch);
  /// The ridge on the diagonals of A, or as D.
  void StartWith(const TensorView& ridge) const;

  TensorView given_a_, given_rss_;
};

}  // namespace ttr
