// Factors and answers, compiled for every target.

#include "src/engines/kernel_regression/task.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/kernel_regression/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/common/write_pairs-inl.h"
#include "src/engines/kernel_regression/factor-inl.h"
#include "src/engines/kernel_regression/minimum_norm-inl.h"
#include "src/engines/kernel_regression/retrieve-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

template <class T>
Factor<T> FactorOf(const Task& task) {
  ScratchLayout layout(task.factor);
  return Factor<T>(task.room, task.memory.key_dim, task.memory.value_dim, layout);
}
template <class T>
Scratch<T> ScratchOf(const Task& task) {
  ScratchLayout layout(task.scratch);
  return Scratch<T>(task.room, task.memory.key_dim, task.memory.value_dim, layout);
}

template <class T>
void SolveRowsOf(const Factor<T>& f, std::int64_t block, std::int64_t columns,
                 const Memory& memory) {
  const FactorSteps<T> steps(f);
  if (columns == f.extent.blocks) {
    const Columns<T> e{f.e, linalg::RoundUp(memory.value_dim, kUnit), f.progress->good};
    return steps.Solve(block, &e, 1);
  }
  constexpr std::int64_t kWide = kPanel<T>;
  const std::int64_t first = columns * f.extent.block, rows = (block + 1) * f.extent.block;
  const std::int64_t end =
      std::min(first + f.extent.block, linalg::RoundUp(FinitePairs(memory, f), kWide));
  Columns<T> list[kBlock / kWide];
  std::int64_t count = 0;
  for (std::int64_t column = std::max(first, f.progress->done); column < end; column += kWide) {
    list[count++] = steps.PanelOf(column, rows);
  }
  if (count > 0) steps.Solve(block, list, count);
}

/// run(T()) for the type of the arithmetic.
template <class Run>
HWY_INLINE auto InType(DType dtype, const Run& run) {
  return dtype == DType::kFloat64 ? run(double()) : run(float());
}

void LoadBlockAny(const Task& task, std::int64_t block, DType dtype) {
  InType(dtype, [&](auto zero) {
    const auto f = FactorOf<decltype(zero)>(task);
    PairLoader(task, f).Load(block);
  });
}
void FindNonfiniteAny(const Task& task, DType dtype) {
  InType(dtype, [&](auto zero) {
    using T = decltype(zero);
    FindNonfiniteAs<T>(task, FactorOf<T>(task), ScratchOf<T>(task).row);
  });
}
void FillColumnsAny(const Task& task, std::int64_t block, DType dtype) {
  InType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto f = FactorOf<T>(task);
    const auto s = ScratchOf<T>(task);
    HWY_NAMESPACE::FillColumns(task, f, s, block);
  });
}
bool FactorDiagonalAny(const Task& task, std::int64_t block, DType dtype) {
  return InType(dtype, [&](auto zero) {
    using T = decltype(zero);
    return FactorDiagonalAs<T>(task, FactorOf<T>(task), block);
  });
}
void SolveRowsAny(const Task& task, std::int64_t block, std::int64_t columns, DType dtype) {
  InType(dtype, [&](auto zero) {
    SolveRowsOf(FactorOf<decltype(zero)>(task), block, columns, task.memory);
  });
}
void RetrieveAny(const Task& task, std::int64_t first, DType dtype) {
  InType(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto f = FactorOf<T>(task);
    const auto s = ScratchOf<T>(task);
    Retrieval<T>(task, f, s, first).Run();
  });
}
void MinimumNormAny(const Task& task, DType dtype) {
  InType(dtype, [&](auto zero) {
    using T = decltype(zero);
    RetrieveByMinimumNormAs<T>(task, FactorOf<T>(task), ScratchOf<T>(task).row);
  });
}
void WritePairsAny(const Task& task, DType dtype) {
  const common::Range all{0, task.memory.visible.tokens};
  InType(dtype, [&](auto zero) { cn::WritePairsAs<decltype(zero)>(task.memory, all); });
}
void WeighPairsAny(const Memory& memory) { cn::WeighPairsAs(memory); }

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::kernel_regression {

HWY_EXPORT(LoadBlockAny);
HWY_EXPORT(FindNonfiniteAny);
HWY_EXPORT(FillColumnsAny);
HWY_EXPORT(FactorDiagonalAny);
HWY_EXPORT(SolveRowsAny);
HWY_EXPORT(RetrieveAny);
HWY_EXPORT(MinimumNormAny);
HWY_EXPORT(WritePairsAny);
HWY_EXPORT(WeighPairsAny);

void LoadBlock(const Task& task, std::int64_t block, DType dtype) {
  TTR_DISPATCH(LoadBlockAny)(task, block, dtype);
}
void FindNonfinite(const Task& task, DType dtype) { TTR_DISPATCH(FindNonfiniteAny)(task, dtype); }
void FillColumns(const Task& task, std::int64_t block, DType dtype) {
  TTR_DISPATCH(FillColumnsAny)(task, block, dtype);
}
bool FactorDiagonal(const Task& task, std::int64_t block, DType dtype) {
  return TTR_DISPATCH(FactorDiagonalAny)(task, block, dtype);
}
void SolveRows(const Task& task, std::int64_t block, std::int64_t columns, DType dtype) {
  TTR_DISPATCH(SolveRowsAny)(task, block, columns, dtype);
}
void Retrieve(const Task& task, std::int64_t first, DType dtype) {
  TTR_DISPATCH(RetrieveAny)(task, first, dtype);
}
void RetrieveByMinimumNorm(const Task& task, DType dtype) {
  TTR_DISPATCH(MinimumNormAny)(task, dtype);
}
void WritePairs(const Task& task, DType dtype) { TTR_DISPATCH(WritePairsAny)(task, dtype); }
void WeighPairs(const Memory& memory) { TTR_DISPATCH(WeighPairsAny)(memory); }

}  // namespace ttr::kernel_regression
#endif  // HWY_ONCE
