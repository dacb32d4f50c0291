/// The compiled kernels behind run-time dispatch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/layout.h"
#include "src/engines/fast_weights/scratch.h"

namespace ttr::fast_weights {

/// One memory through one sequence, on the chosen target, in float or double as the state is.
/// `scratch` is the worker's, of any memory of the call. `next` is only fetched towards the caches:
/// the memory that probably comes after this one, or one without rows.
template <class T>
using RunMemory = void (*)(const Options& options, const Memory& memory, const Memory& next,
                           Scratch<T>& scratch);
template <class T>
RunMemory<T> ChosenKernel();
template <>
RunMemory<float> ChosenKernel();
template <>
RunMemory<double> ChosenKernel();

/// All that waits beside a memory becomes part of its state.
using FlushMemory = void (*)(const Options& options, const Memory& memory);
template <class T>
FlushMemory ChosenFlush();
template <>
FlushMemory ChosenFlush<float>();
template <>
FlushMemory ChosenFlush<double>();

/// What of simd::ChosenBf16Products() the chosen target has.
simd::Bf16Products TargetBf16Products();

/// Value columns of a strip on the chosen target.
std::int64_t StripColumns(DType dtype);

}  // namespace ttr::fast_weights
