/// The compiled kernels of matrix memories behind run-time dispatch.
#pragma once

#include <cstdint>

#include "src/engines/scan/matrix/memory.h"

namespace ttr::scan {

/// One memory through one sequence, and back; MatrixTask::scratch, at a multiple of 64, has the
/// bytes of MatrixScratch or MatrixGradientScratch.
void ScanMatrix(const MatrixTask& task);
void ScanMatrixBackward(const MatrixTask& task);

/// Stores the gradient of one row of keys or queries, or of another input, from its `total` over
/// all tasks. `input`: the row, where its gradient goes through x / sqrt(|x|^2 + 1e-6); or absent.
/// `room`: 2 count numbers.
void StoreGradient(const Rows& input, const Rows& gradient, std::int64_t count, double* total,
                   double* room);

}  // namespace ttr::scan
