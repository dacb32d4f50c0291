/// Inputs for the gradient of the fast weights' engine, and the gradient in double, token by token.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "src/engines/fast_weights/adjoint/gradient.h"

namespace ttr::fast_weights {

enum class Gates { kMild, kMixed, kStrong, kNegative };

struct GradientShape {
  std::int64_t tokens = 0;
  GradientSizes sizes;
  Seen seen = Seen::kDecayed;
  bool read_before = false;
  bool reset = false;
  Gates gates = Gates::kMild;
  bool value = true;
  bool step = true;
  bool bonus = false;
  bool states = true;  // an initial memory, and a gradient of the final one

  std::string Name() const;
};

/// Arrays by name, without padding: "erase", "write", "second_write" [T, Dk]; "query" [p, T, Dk];
/// "value", "second_value" [T, Dv]; "step", "decay", "erase_decay" [T]; "log_decay" [T, Dk];
/// "bonus" [p, T]; "initial", "final" [Dk, Dv]; "output" [p, T, Dv]. Absent ones are not there.
using GradientArrays = std::map<std::string, std::vector<double>>;

GradientArrays RandomInputs(const GradientShape& shape, std::uint64_t seed);

/// "output" and "final" of the recurrence.
GradientArrays Recurrence(const GradientShape& shape, const GradientArrays& inputs);

/// The gradients by input, of the loss sum output . d["output"] + final . d["final"]; `magnitudes`
/// are the sums of the absolute values of what each of them sums.
GradientArrays ReverseMode(const GradientShape& shape, const GradientArrays& inputs,
                           const GradientArrays& d, GradientArrays* magnitudes);

/// Gradients by the engine in T, for which the recurrence saves memories and errors. Scratch and
/// gradients begin as NaN.
template <class T>
GradientArrays EngineGradients(const GradientShape& shape, const GradientArrays& inputs,
                               const GradientArrays& d);

}  // namespace ttr::fast_weights
