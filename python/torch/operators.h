/// The operators, as the dispatcher calls them: arguments on the stack, results into it. Schemas:
/// library.cc.
#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

namespace ttr::pytorch {

/// A layer without gradients of its own takes two forward calls of the definition for every number:
/// of more numbers than these they are refused.
inline constexpr std::int64_t kMostDifferences = 4096;

void Forward(StableIValue* stack);
void Backward(StableIValue* stack);

void Step(StableIValue* stack);
void StepState(StableIValue* stack);
void DecoderStart(StableIValue* stack);
void DecoderState(StableIValue* stack);
void DecoderBytes(StableIValue* stack);

void PoolBytes(StableIValue* stack);
void PoolStep(StableIValue* stack);
void PoolStart(StableIValue* stack);
void PoolState(StableIValue* stack);
void PoolPending(StableIValue* stack);
void PoolRollBack(StableIValue* stack);

void ShortConvForward(StableIValue* stack);
void ShortConvBackward(StableIValue* stack);
void ShortConvStep(StableIValue* stack);
void NormForward(StableIValue* stack);
void NormBackward(StableIValue* stack);
void DecayGateForward(StableIValue* stack);
void DecayGateBackward(StableIValue* stack);
void StepGateForward(StableIValue* stack);
void StepGateBackward(StableIValue* stack);
void SkipGateForward(StableIValue* stack);
void SkipGateBackward(StableIValue* stack);

void InputNames(StableIValue* stack);
void SizeNames(StableIValue* stack);
void MostDifferences(StableIValue* stack);
void DimsOf(StableIValue* stack);
void SavedBytes(StableIValue* stack);

}  // namespace ttr::pytorch
