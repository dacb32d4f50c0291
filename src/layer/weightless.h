/// Pairs of weight 0: a factor of exactly 0 takes nothing, not even NaN.
#pragma once

#include <vector>

#include "src/core/working_copy.h"
#include "ttr/inputs.h"
#include "ttr/tensor.h"

namespace ttr {

/// The inputs of a call with zeros in place of every row that is not finite and that a step, an
/// importance or a gate of exactly 0 weighs. Engines multiply such a row by its factor, and 0 times
/// NaN is NaN. Padding of models rests on it. A call without such a row costs a look at every
/// factor and at the rows of those that are 0; any other one copies the inputs concerned, with a
/// row for every memory where several share one.
///
/// What each factor weighs: InputSpec::weighs.
///
/// Memories that keep pairs or a dictionary leave out those of weight 0 themselves, gates of a
/// vector memory's channels are looked at in its kernel, and the definition has the rule of its
/// own.
class WithoutWeightless {
 public:
  WithoutWeightless(const Requirements& requirements, const Dims& dims, const Inputs& inputs);

  const Inputs& inputs() const { return inputs_; }
  bool changed() const { return !copies_.empty(); }

  /// Where the gradients of inputs() go that are wanted in `dinputs`.
  Inputs GradientsFor(const Inputs& dinputs);
  /// Adds up, in the wanted gradients, those of memories that share a row.
  void Gather() const;

 private:
  using Field = TensorView Inputs::*;
  struct Copy {
    Field field;
    Tensor rows;
    WorkingCopy gradient{};
  };

  void Clean(const InputSpec& spec, Field field, std::int64_t heads);

  Inputs inputs_;
  std::vector<Copy> copies_;
};

}  // namespace ttr
