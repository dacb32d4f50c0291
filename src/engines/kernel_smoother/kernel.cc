// Outputs and pairs, compiled for every target.

#include "src/engines/kernel_smoother/decode.h"
#include "src/engines/kernel_smoother/task.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/kernel_smoother/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/common/write_pairs-inl.h"
#include "src/engines/kernel_smoother/decode-inl.h"
#include "src/engines/kernel_smoother/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

template <class T>
void ComputeOutputsAs(const Task& task) {
  ScratchLayout layout(task.scratch);
  const Scratch<T> scratch(task.memory.key_dim, task.memory.value_dim, layout);
  OutputsPass<T>(task, scratch).Run();
}

void ComputeOutputsAny(const Task& task, DType dtype) {
  dtype == DType::kFloat64 ? ComputeOutputsAs<double>(task) : ComputeOutputsAs<float>(task);
}
void WriteAny(const Memory& memory, const Range& tokens, DType dtype) {
  dtype == DType::kFloat64 ? cn::WritePairsAs<double>(memory, tokens)
                           : cn::WritePairsAs<float>(memory, tokens);
}
void PrepareAny(const ChunkTask& task, DType dtype) {
  dtype == DType::kFloat64 ? PrepareQueriesAs<double>(task) : PrepareQueriesAs<float>(task);
}
void ChunkAny(const ChunkTask& task, DType dtype) {
  dtype == DType::kFloat64 ? ChunkAs<double>(task) : ChunkAs<float>(task);
}
void MergeAny(const ChunkTask& task, std::int64_t chunks, DType dtype) {
  dtype == DType::kFloat64 ? MergeAs<double>(task, chunks) : MergeAs<float>(task, chunks);
}
void WriteOneAny(const Memory& memory, DType dtype) {
  dtype == DType::kFloat64 ? cn::WriteOnePairAs<double>(memory) : cn::WriteOnePairAs<float>(memory);
}
void WeighAny(const Memory& memory) {
  cn::WeighPairsAs(memory);
  cn::ReferQueriesAs(memory);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::kernel_smoother {

HWY_EXPORT(ComputeOutputsAny);
HWY_EXPORT(WriteAny);
HWY_EXPORT(WeighAny);
HWY_EXPORT(PrepareAny);
HWY_EXPORT(ChunkAny);
HWY_EXPORT(MergeAny);
HWY_EXPORT(WriteOneAny);

void ComputeOutputs(const Task& task, DType dtype) { TTR_DISPATCH(ComputeOutputsAny)(task, dtype); }
void WritePairs(const Memory& memory, const Range& tokens, DType dtype) {
  TTR_DISPATCH(WriteAny)(memory, tokens, dtype);
}
void PrepareQueries(const ChunkTask& task, DType dtype) { TTR_DISPATCH(PrepareAny)(task, dtype); }
void SumChunk(const ChunkTask& task, DType dtype) { TTR_DISPATCH(ChunkAny)(task, dtype); }
void MergeChunks(const ChunkTask& task, std::int64_t chunks, DType dtype) {
  TTR_DISPATCH(MergeAny)(task, chunks, dtype);
}
void WritePair(const Memory& memory, DType dtype) { TTR_DISPATCH(WriteOneAny)(memory, dtype); }
void WeighPairs(const Memory& memory) { TTR_DISPATCH(WeighAny)(memory); }

}  // namespace ttr::kernel_smoother
#endif  // HWY_ONCE
