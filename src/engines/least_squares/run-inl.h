// What takes a memory through its sequence. Compiled once for every target.

#if defined(TTR_LEAST_SQUARES_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_LEAST_SQUARES_RUN_INL_H_
#undef TTR_LEAST_SQUARES_RUN_INL_H_
#else
#define TTR_LEAST_SQUARES_RUN_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/engines/least_squares/decode/decoder-inl.h"
#include "src/engines/least_squares/exact/solver-inl.h"
#include "src/engines/least_squares/iterative/solver-inl.h"
#include "src/engines/least_squares/scratch.h"
#include "src/engines/least_squares/sequence/running_sums-inl.h"
#include "src/engines/least_squares/sequence/walk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::least_squares {
namespace HWY_NAMESPACE {

template <class T>
void Run(const Options& options, const Memory& memory, const Sizes& sizes, std::byte* scratch) {
  Scratch<T> s(options, sizes, scratch);
  std::byte* const solver_scratch = scratch + s.bytes;
  const RunningSums<T> sums(memory, s);
  if (options.iterates()) {
    IterativeSolver<T> solver(options, memory, sizes, s, sums, solver_scratch);
    Walk<T, IterativeSolver<T>>(options, memory, s, sums, solver).Run();
  } else if (memory.tokens == 1 && (options.causal || !memory.writes())) {
    Decoder<T>(options, memory, s, sums).Run();
  } else {
    ExactSolver<T> solver(options, memory, sizes, s, sums, solver_scratch);
    Walk<T, ExactSolver<T>>(options, memory, s, sums, solver).Run();
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::least_squares
HWY_AFTER_NAMESPACE();

#endif  // TTR_LEAST_SQUARES_RUN_INL_H_
