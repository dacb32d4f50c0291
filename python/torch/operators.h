/// The operators, as the dispatcher calls them: arguments on the stack, results into it. Schemas:
/// library.cc.
#pragma once

#include <torch/csrc/stable/library.h>

namespace ttr::pytorch {

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

void Describe(StableIValue* stack);
void InputNamesOf(StableIValue* stack);
void DimsOf(StableIValue* stack);
void PhiDimOf(StableIValue* stack);
void SavedBytesOf(StableIValue* stack);

}  // namespace ttr::pytorch
