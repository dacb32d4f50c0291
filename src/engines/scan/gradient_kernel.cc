// The gradients of one memory, compiled for every target.

#include "src/engines/scan/gradient_kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/scan/gradient_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/scan/gradient_matrix-inl.h"
#include "src/engines/scan/gradient_vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

template <class T>
void AnyVector(const Options& options, const Vector& memory, const VectorGradient& gradient,
               const Sizes& sizes, std::byte* memory_block) {
  const std::int64_t keeps = memory.saved_re == nullptr ? memory.tokens : 0;
  const VectorGradientScratch<T> scratch(sizes, keeps, memory.im != nullptr, memory_block);
  BackVector(options, memory, gradient, VectorScratch<T>(sizes, scratch.forward), scratch);
}

template <class T>
void AnyMatrix(const Options& options, const Matrix& memory, const MatrixGradient& gradient,
               const Sizes& sizes, std::byte* memory_block) {
  const std::int64_t keeps = memory.saved == nullptr ? memory.tokens : 0;
  const MatrixGradientScratch<T> scratch(sizes, keeps, memory_block);
  Sizes group = sizes;
  group.value_dim = scratch.columns;
  const MatrixScratch<T> forward(group, scratch.forward);
  MatrixBackward<T>(options, memory, gradient, forward, scratch).Run();
}

void VectorFloat(const Options& options, const Vector& memory, const VectorGradient& gradient,
                 const Sizes& sizes, std::byte* scratch) {
  AnyVector<float>(options, memory, gradient, sizes, scratch);
}
void VectorDouble(const Options& options, const Vector& memory, const VectorGradient& gradient,
                  const Sizes& sizes, std::byte* scratch) {
  AnyVector<double>(options, memory, gradient, sizes, scratch);
}
void MatrixFloat(const Options& options, const Matrix& memory, const MatrixGradient& gradient,
                 const Sizes& sizes, std::byte* scratch) {
  AnyMatrix<float>(options, memory, gradient, sizes, scratch);
}
void MatrixDouble(const Options& options, const Matrix& memory, const MatrixGradient& gradient,
                  const Sizes& sizes, std::byte* scratch) {
  AnyMatrix<double>(options, memory, gradient, sizes, scratch);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::scan {

HWY_EXPORT(VectorFloat);
HWY_EXPORT(VectorDouble);
HWY_EXPORT(MatrixFloat);
HWY_EXPORT(MatrixDouble);

void BackScanVector(const Options& options, const Vector& memory, const VectorGradient& gradient,
                    const Sizes& sizes, std::byte* scratch) {
  if (sizes.state == DType::kFloat64) {
    TTR_DISPATCH(VectorDouble)(options, memory, gradient, sizes, scratch);
  } else {
    TTR_DISPATCH(VectorFloat)(options, memory, gradient, sizes, scratch);
  }
}

void BackScanMatrix(const Options& options, const Matrix& memory, const MatrixGradient& gradient,
                    const Sizes& sizes, std::byte* scratch) {
  if (sizes.state == DType::kFloat64) {
    TTR_DISPATCH(MatrixDouble)(options, memory, gradient, sizes, scratch);
  } else {
    TTR_DISPATCH(MatrixFloat)(options, memory, gradient, sizes, scratch);
  }
}

}  // namespace ttr::scan
#endif  // HWY_ONCE
