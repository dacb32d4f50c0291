// The backward pass's ways between inputs and rows, for every target.

#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/fast_weights/backward/whole.h"
#include "src/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/engines/fast_weights/backward/kernel.cc"
#include "hwy/foreach_target.h"
//
#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/gather-inl.h"
#include "src/engines/fast_weights/backward/outputs-inl.h"
#include "src/engines/fast_weights/backward/scatter-inl.h"
#include "src/engines/fast_weights/backward/whole-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

void GatherFloat(const Options& options, const Memory& memory, bool values, bool queries,
                 BackwardRows<float>& rows) {
  GatherRows(options, memory, values, queries, rows);
}
void GatherDouble(const Options& options, const Memory& memory, bool values, bool queries,
                  BackwardRows<double>& rows) {
  GatherRows(options, memory, values, queries, rows);
}
void OutputsFloat(const Options& options, const Memory& memory, BackwardRows<float>& rows) {
  GatherOutputs(options, memory, rows);
}
void OutputsDouble(const Options& options, const Memory& memory, BackwardRows<double>& rows) {
  GatherOutputs(options, memory, rows);
}
void ScatterFloat(const Options& options, const Memory& memory, const GradientMemory& gradients,
                  Side side, BackwardRows<float>& rows) {
  Scatter<float>(options, memory, gradients, side, rows).Run();
}
void ScatterDouble(const Options& options, const Memory& memory, const GradientMemory& gradients,
                   Side side, BackwardRows<double>& rows) {
  Scatter<double>(options, memory, gradients, side, rows).Run();
}
void WholeFloat(WholePart part, const Options& options, BackwardRows<float>& rows) {
  WholeRows<float>(options, rows).Run(part);
}
void WholeDouble(WholePart part, const Options& options, BackwardRows<double>& rows) {
  WholeRows<double>(options, rows).Run(part);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ttr::fast_weights {

HWY_EXPORT(GatherFloat);
HWY_EXPORT(GatherDouble);
HWY_EXPORT(OutputsFloat);
HWY_EXPORT(OutputsDouble);
HWY_EXPORT(ScatterFloat);
HWY_EXPORT(ScatterDouble);
HWY_EXPORT(WholeFloat);
HWY_EXPORT(WholeDouble);

void GatherBlock(const Options& options, const Memory& memory, bool values, bool queries,
                 BackwardRows<float>& rows) {
  TTR_DISPATCH(GatherFloat)(options, memory, values, queries, rows);
}
void GatherBlock(const Options& options, const Memory& memory, bool values, bool queries,
                 BackwardRows<double>& rows) {
  TTR_DISPATCH(GatherDouble)(options, memory, values, queries, rows);
}
void GatherOutputGradients(const Options& options, const Memory& memory,
                           BackwardRows<float>& rows) {
  TTR_DISPATCH(OutputsFloat)(options, memory, rows);
}
void GatherOutputGradients(const Options& options, const Memory& memory,
                           BackwardRows<double>& rows) {
  TTR_DISPATCH(OutputsDouble)(options, memory, rows);
}
void ScatterBlock(const Options& options, const Memory& memory, const GradientMemory& gradients,
                  Side side, BackwardRows<float>& rows) {
  TTR_DISPATCH(ScatterFloat)(options, memory, gradients, side, rows);
}
void ScatterBlock(const Options& options, const Memory& memory, const GradientMemory& gradients,
                  Side side, BackwardRows<double>& rows) {
  TTR_DISPATCH(ScatterDouble)(options, memory, gradients, side, rows);
}
void RunWhole(WholePart part, const Options& options, BackwardRows<float>& rows) {
  TTR_DISPATCH(WholeFloat)(part, options, rows);
}
void RunWhole(WholePart part, const Options& options, BackwardRows<double>& rows) {
  TTR_DISPATCH(WholeDouble)(part, options, rows);
}

}  // namespace ttr::fast_weights
#endif  // HWY_ONCE
