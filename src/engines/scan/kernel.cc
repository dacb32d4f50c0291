// The forward pass over one memory, compiled for every target.

#include "src/engines/scan/kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/scan/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/scan/matrix-inl.h"
#include "src/engines/scan/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

template <class T>
void RunAnyVector(const Options& options, const Vector& memory, const VectorScratch<T>& scratch) {
  if (memory.v) {
    RunVector(options, memory, scratch);
  } else {
    ReadVector(options, memory, scratch);
  }
}

void VectorFloat(const Options& options, const Vector& memory, const Sizes& sizes,
                 std::byte* scratch) {
  RunAnyVector(options, memory, VectorScratch<float>(sizes, scratch));
}
void VectorDouble(const Options& options, const Vector& memory, const Sizes& sizes,
                  std::byte* scratch) {
  RunAnyVector(options, memory, VectorScratch<double>(sizes, scratch));
}
void MatrixFloat(const Options& options, const Matrix& memory, const Matrix& next,
                 const Sizes& sizes, std::byte* scratch) {
  RunMatrix(options, memory, next, MatrixScratch<float>(sizes, scratch));
}
void MatrixDouble(const Options& options, const Matrix& memory, const Matrix& next,
                  const Sizes& sizes, std::byte* scratch) {
  RunMatrix(options, memory, next, MatrixScratch<double>(sizes, scratch));
}
const char* CompiledTarget() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::scan {

HWY_EXPORT(VectorFloat);
HWY_EXPORT(VectorDouble);
HWY_EXPORT(MatrixFloat);
HWY_EXPORT(MatrixDouble);
HWY_EXPORT(CompiledTarget);

void ScanVector(const Options& options, const Vector& memory, const Sizes& sizes,
                std::byte* scratch) {
  if (sizes.state == DType::kFloat64) {
    TTR_DISPATCH(VectorDouble)(options, memory, sizes, scratch);
  } else {
    TTR_DISPATCH(VectorFloat)(options, memory, sizes, scratch);
  }
}

void ScanMatrix(const Options& options, const Matrix& memory, const Matrix& next,
                const Sizes& sizes, std::byte* scratch) {
  if (sizes.state == DType::kFloat64) {
    TTR_DISPATCH(MatrixDouble)(options, memory, next, sizes, scratch);
  } else {
    TTR_DISPATCH(MatrixFloat)(options, memory, next, sizes, scratch);
  }
}

const char* KernelTarget() { return TTR_DISPATCH(CompiledTarget)(); }

}  // namespace ttr::scan
#endif  // HWY_ONCE
