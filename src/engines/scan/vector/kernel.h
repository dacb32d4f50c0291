/// The compiled kernels of vector memories behind run-time dispatch.
#pragma once

#include "src/engines/scan/vector/memory.h"

namespace ttr::scan {

/// One memory through one sequence, and back; VectorTask::scratch, at a multiple of 64, has the
/// bytes of VectorScratch or VectorGradientScratch.
void ScanVector(const VectorTask& task);
void ScanVectorBackward(const VectorTask& task);

}  // namespace ttr::scan
