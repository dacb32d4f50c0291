/// The compiled gradient kernels behind run-time dispatch.
#pragma once

#include <cstddef>

#include "src/engines/scan/gradient_layout.h"

namespace ttr::scan {

/// One memory through one sequence and back, on the chosen target; `scratch` is 64-byte aligned and
/// holds the bytes of VectorGradientScratch or MatrixGradientScratch at these sizes and tokens.
void BackScanVector(const Options& options, const Vector& memory, const VectorGradient& gradient,
                    const Sizes& sizes, std::byte* scratch);
void BackScanMatrix(const Options& options, const Matrix& memory, const MatrixGradient& gradient,
                    const Sizes& sizes, std::byte* scratch);

}  // namespace ttr::scan
