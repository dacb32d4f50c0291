/// What all operators ask of their arguments.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "ttr/tensor.h"

namespace ttr::operators {

struct Named {
  std::string_view name;
  TensorView view;
};

/// float16 has none: it is a type of a layer's rows alone.
constexpr bool HasKernels(DType dtype) { return IsFloating(dtype) && dtype != DType::kFloat16; }

/// Defined, floating-point, of this shape (written as `axes`, "[B,T,H,D]"), contiguous in its last
/// axis.
void CheckTensor(std::string_view op, const Named& argument, std::string_view axes,
                 const Shape& shape);

/// CheckTensor() of a parameter, whose first axis is H or 1.
void CheckParameter(std::string_view op, const Named& argument, std::string_view axes,
                    const Shape& shape);

/// Rank 4, floating-point, contiguous in its last axis: what an operator takes its sizes from.
void CheckRows(std::string_view op, const Named& argument, std::string_view axes);

/// Absent, because of `why`.
void CheckAbsent(std::string_view op, const Named& argument, std::string_view why);

/// Every element has a place of its own, and shares it with none of the others.
void CheckApart(std::string_view op, const Named& written, std::initializer_list<Named> others);

/// Are both one view, so that an output may take the place of its input?
bool Same(const TensorView& a, const TensorView& b);

/// A gradient and what it is that of.
struct Gradient {
  Named gradient;
  const TensorView& input;
};

/// Every gradient that is defined has an input of its shape, and shares memory with no other
/// gradient and with nothing that is read.
void CheckGradients(std::string_view op, std::initializer_list<Gradient> gradients,
                    std::initializer_list<Named> read);

/// The bounds of packed sequences of `tokens` tokens, empty where absent: int64 [N+1], contiguous,
/// from 0 to `tokens` without falling, beside a batch of 1.
std::span<const std::int64_t> CheckSequences(std::string_view op, const TensorView& cu_seqlens,
                                             std::int64_t batch, std::int64_t tokens);

}  // namespace ttr::operators
