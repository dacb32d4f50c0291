// Matrix memories, compiled for every target.

#include "src/engines/scan/matrix/kernel.h"

#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/scan/matrix/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/scan/matrix/backward-inl.h"
#include "src/engines/scan/matrix/forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

template <class T>
void Forward(const MatrixTask& task) {
  ScratchLayout layout(task.scratch);
  MatrixForward<T>(task, MatrixScratch<T>(task.sizes, layout)).Run();
}

template <class T>
void Backward(const MatrixTask& task) {
  const bool saved = task.memory.saved.data != nullptr;
  ScratchLayout layout(task.scratch);
  const MatrixGradientScratch<T> scratch(task.sizes, saved ? 0 : task.memory.tokens, layout);
  MatrixBackward<T>(task, scratch).Run();
}

void MatrixForwards(const MatrixTask& task) {
  task.sizes.state == DType::kFloat64 ? Forward<double>(task) : Forward<float>(task);
}
void MatrixBackwards(const MatrixTask& task) {
  task.sizes.state == DType::kFloat64 ? Backward<double>(task) : Backward<float>(task);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::scan {

HWY_EXPORT(MatrixForwards);
HWY_EXPORT(MatrixBackwards);
HWY_EXPORT(StoreTotal);

void ScanMatrix(const MatrixTask& task) { TTR_DISPATCH(MatrixForwards)(task); }
void ScanMatrixBackward(const MatrixTask& task) { TTR_DISPATCH(MatrixBackwards)(task); }
void StoreGradient(const Rows& input, const Rows& gradient, std::int64_t count, double* total,
                   double* room) {
  TTR_DISPATCH(StoreTotal)(input, gradient, count, total, room);
}

}  // namespace ttr::scan
#endif  // HWY_ONCE
