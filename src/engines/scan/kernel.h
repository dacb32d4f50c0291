/// The compiled kernels behind run-time dispatch.
#pragma once

#include <cstddef>

#include "src/engines/scan/layout.h"

namespace ttr::scan {

/// One memory through one sequence, on the chosen target; `scratch` is 64-byte aligned and holds
/// the bytes of VectorScratch or MatrixScratch. Of the `next` memory, if it has tokens, a first
/// part is fetched.
void ScanVector(const Options& options, const Vector& memory, const Sizes& sizes,
                std::byte* scratch);
void ScanMatrix(const Options& options, const Matrix& memory, const Matrix& next,
                const Sizes& sizes, std::byte* scratch);

}  // namespace ttr::scan
