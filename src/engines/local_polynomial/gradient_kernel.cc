// The backward pass, compiled for every target.

#include "src/engines/local_polynomial/gradient.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/local_polynomial/gradient_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/local_polynomial/pair_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

template <class T, bool PAIRS>
void DifferentiateAs(const GradientTask& task) {
  const Memory& m = task.memory;
  ScratchLayout layout(task.scratch);
  const GradientScratch<T> scratch(task.monomials.count, m.key_dim, m.value_dim, layout);
  if constexpr (PAIRS) {
    PairGradients<T>(task, scratch).Run();
  } else {
    QueryGradients<T>(task, scratch).Run();
  }
}

void QueriesAny(const GradientTask& task, DType dtype) {
  dtype == DType::kFloat64 ? DifferentiateAs<double, false>(task)
                           : DifferentiateAs<float, false>(task);
}
void PairsAny(const GradientTask& task, DType dtype) {
  dtype == DType::kFloat64 ? DifferentiateAs<double, true>(task)
                           : DifferentiateAs<float, true>(task);
}
void FinishAny(const GradientTask& task) { FinishAs(task); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::local_polynomial {

HWY_EXPORT(QueriesAny);
HWY_EXPORT(PairsAny);
HWY_EXPORT(FinishAny);

void DifferentiateQueries(const GradientTask& task, DType dtype) {
  TTR_DISPATCH(QueriesAny)(task, dtype);
}
void DifferentiatePairs(const GradientTask& task, DType dtype) {
  TTR_DISPATCH(PairsAny)(task, dtype);
}
void FinishGradient(const GradientTask& task) { TTR_DISPATCH(FinishAny)(task); }

}  // namespace ttr::local_polynomial
#endif  // HWY_ONCE
