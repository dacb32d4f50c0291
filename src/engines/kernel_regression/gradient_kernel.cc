// The backward pass, compiled for every target.

#include "src/engines/kernel_regression/gradient.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/kernel_regression/gradient_kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/kernel_regression/gradient-inl.h"
#include "src/engines/kernel_regression/minimum_norm_gradient-inl.h"
#include "src/engines/kernel_regression/nonfinite-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

template <class T, class Run>
void WithPass(const GradientTask& of, const Run& run) {
  const Task& task = of.task;
  const Memory& m = task.memory;
  ScratchLayout factor(task.factor), scratch(task.scratch), solutions(of.solutions);
  const Factor<T> f(task.room, m.key_dim, m.value_dim, factor);
  const GradientScratch<T> s(task.room, m.key_dim, m.value_dim, scratch);
  const Solutions<T> x(m.visible, m.rows, m.queries, task.room, solutions);
  run(GradientPass<T>(of, f, s, x));
}

template <class Run>
void WithPassIn(const GradientTask& task, DType dtype, const Run& run) {
  dtype == DType::kFloat64 ? WithPass<double>(task, run) : WithPass<float>(task, run);
}

void SolveQueriesAny(const GradientTask& task, std::int64_t block, DType dtype) {
  WithPassIn(task, dtype, [&](const auto& pass) { pass.SolveQueries(block); });
}
void FillSlopesAny(const GradientTask& task, std::int64_t block, DType dtype) {
  WithPassIn(task, dtype, [&](const auto& pass) { pass.FillSlopes(block); });
}
void SumPairsAny(const GradientTask& task, std::int64_t block, DType dtype) {
  WithPassIn(task, dtype, [&](const auto& pass) { pass.SumPairs(block); });
}
void MinimumNormAny(const GradientTask& of, DType dtype) {
  const Task& task = of.task;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    ScratchLayout factor(task.factor);
    const Factor<T> f(task.room, task.memory.key_dim, task.memory.value_dim, factor);
    MinimumNormGradient<T>(of, f).Run();
  };
  dtype == DType::kFloat64 ? run(double()) : run(float());
}
void FinishAny(const GradientTask& task, DType dtype) {
  WithPassIn(task, dtype, [&](const auto& pass) { pass.Finish(); });
}
void SpreadNonfiniteAny(const GradientTask& task, std::int64_t first, DType dtype) {
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    const Memory& m = task.task.memory;
    ScratchLayout layout(task.task.scratch);
    const GradientScratch<T> s(task.task.room, m.key_dim, m.value_dim, layout);
    ttr::kernel_regression::HWY_NAMESPACE::SpreadNonfinite(m, task.gradient, s, first);
  };
  dtype == DType::kFloat64 ? run(double()) : run(float());
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::kernel_regression {

HWY_EXPORT(SolveQueriesAny);
HWY_EXPORT(FillSlopesAny);
HWY_EXPORT(SumPairsAny);
HWY_EXPORT(MinimumNormAny);
HWY_EXPORT(FinishAny);
HWY_EXPORT(SpreadNonfiniteAny);

void SolveQueries(const GradientTask& task, std::int64_t block, DType dtype) {
  TTR_DISPATCH(SolveQueriesAny)(task, block, dtype);
}
void FillSlopes(const GradientTask& task, std::int64_t block, DType dtype) {
  TTR_DISPATCH(FillSlopesAny)(task, block, dtype);
}
void SumPairs(const GradientTask& task, std::int64_t block, DType dtype) {
  TTR_DISPATCH(SumPairsAny)(task, block, dtype);
}
void DifferentiateByMinimumNorm(const GradientTask& task, DType dtype) {
  TTR_DISPATCH(MinimumNormAny)(task, dtype);
}
void FinishSums(const GradientTask& task, DType dtype) { TTR_DISPATCH(FinishAny)(task, dtype); }
void SpreadNonfinite(const GradientTask& task, std::int64_t first, DType dtype) {
  TTR_DISPATCH(SpreadNonfiniteAny)(task, first, dtype);
}

}  // namespace ttr::kernel_regression
#endif  // HWY_ONCE
