// Outputs and pairs, compiled for every target.

#include "src/engines/local_polynomial/task.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/local_polynomial/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/common/write_pairs-inl.h"
#include "src/engines/local_polynomial/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::local_polynomial {
namespace HWY_NAMESPACE {

template <class T>
void PredictAs(const Task& task) {
  const Memory& m = task.memory;
  ScratchLayout layout(task.scratch);
  const Scratch<T> scratch(task.monomials.count, m.key_dim, m.value_dim, layout);
  Outputs<T>(task, scratch).Run();
}

void PredictAny(const Task& task, DType dtype) {
  dtype == DType::kFloat64 ? PredictAs<double>(task) : PredictAs<float>(task);
}
void WriteAny(const Memory& memory, const Range& tokens, DType dtype) {
  dtype == DType::kFloat64 ? cn::WritePairsAs<double>(memory, tokens)
                           : cn::WritePairsAs<float>(memory, tokens);
}
void WriteOneAny(const Memory& memory, DType dtype) {
  dtype == DType::kFloat64 ? cn::WriteOnePairAs<double>(memory) : cn::WriteOnePairAs<float>(memory);
}
void WeighAny(const Memory& memory) {
  cn::WeighPairsAs(memory);
  cn::ReferQueriesAs(memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::local_polynomial
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::local_polynomial {

HWY_EXPORT(PredictAny);
HWY_EXPORT(WriteAny);
HWY_EXPORT(WriteOneAny);
HWY_EXPORT(WeighAny);

void Predict(const Task& task, DType dtype) { TTR_DISPATCH(PredictAny)(task, dtype); }
void WritePairs(const Memory& memory, const Range& tokens, DType dtype) {
  TTR_DISPATCH(WriteAny)(memory, tokens, dtype);
}
void WritePair(const Memory& memory, DType dtype) { TTR_DISPATCH(WriteOneAny)(memory, dtype); }
void WeighPairs(const Memory& memory) { TTR_DISPATCH(WeighAny)(memory); }

}  // namespace ttr::local_polynomial
#endif  // HWY_ONCE
