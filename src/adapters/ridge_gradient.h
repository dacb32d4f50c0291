/// The gradient of the input `ridge` of least squares.
#pragma once

#include <cstdint>

#include "src/adapters/engine.h"
#include "src/engines/least_squares/gradient.h"

namespace ttr {

/// [H] or [H, Dk], if it is wanted: from that of R, or where the ridge is part of the start of A,
/// from that of its diagonal.
class RidgeGradient {
 public:
  RidgeGradient(const EngineCall& call, const State& initial, const TensorView& wanted);

  /// Makes the engine leave what is needed.
  void AskFor(const least_squares::Call& call, least_squares::Gradients& gradients);

  /// Sums over sequences, and where one ridge is for all channels over those.
  void Write(const least_squares::Gradients& gradients) const;

 private:
  TensorView wanted_;
  bool in_start_, starts_;
  std::int64_t ridged_;
  Tensor of_ridge_, of_start_;
};

}  // namespace ttr
