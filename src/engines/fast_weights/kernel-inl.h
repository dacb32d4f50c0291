// One memory through its rows: in place where there are few, else in chunks. Compiled once for
// every target and type of arithmetic.

#if defined(TTR_FAST_WEIGHTS_KERNEL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_KERNEL_INL_H_
#undef TTR_FAST_WEIGHTS_KERNEL_INL_H_
#else
#define TTR_FAST_WEIGHTS_KERNEL_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "src/engines/fast_weights/chunked/run-inl.h"
#include "src/engines/fast_weights/decode/decode-inl.h"
#include "src/engines/fast_weights/decode/replay-inl.h"
#include "src/engines/fast_weights/operands/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

/// What a memory has beside its columns: as it was given, or as its last time slice left it.
template <class T>
void LoadRunning(const Memory& memory, Scratch<T>& scratch) {
  const std::int64_t stride = scratch.gathered.stride;
  auto load = [&](const Rows& rows, T* to, std::int64_t count) {
    if (!rows) return;
    LoadRow(rows, 0, 0, count, to);
    Pad(to, count, stride);
  };
  load(memory.inputs.bonus, scratch.gathered.bonus, memory.dims.key_dim);
  if (memory.extent.from > 0) {
    std::memcpy(&scratch.running, scratch.paused, sizeof(scratch.running));
    return;
  }
  Running<T>& running = scratch.running;
  load(memory.entries.sum, running.sum, memory.dims.key_dim);
  load(memory.entries.curvature, running.curvature, memory.dims.key_dim);
  running.lazy_decay = 1;
  running.maximum = memory.entries.maximum ? LoadOne<double>(memory.entries.maximum, 0) : 0;
  running.position = memory.entries.position
                         ? static_cast<std::int64_t>(LoadOne<double>(memory.entries.position, 0))
                         : 0;
}

template <class T>
void StoreRunning(const Memory& memory, const Scratch<T>& scratch) {
  if (memory.extent.to < memory.dims.rows) {
    std::memcpy(scratch.paused, &scratch.running, sizeof(scratch.running));
    return;
  }
  auto store = [&](const Rows& rows, const T* from) {
    if (rows) StoreRow(from, 0, 0, memory.dims.key_dim, rows);
  };
  store(memory.entries.sum, scratch.running.sum);
  store(memory.entries.curvature, scratch.running.curvature);
  if (memory.entries.maximum) {
    StoreRow(&scratch.running.maximum, 0, 0, 1, memory.entries.maximum);
  }
  if (memory.entries.position) {
    const auto position =
        static_cast<double>(scratch.running.position + memory.dims.rows / memory.dims.steps);
    StoreRow(&position, 0, 0, 1, memory.entries.position);
  }
}

/// What waits beside the memory becomes part of it.
template <class T>
void FlushWaiting(const Options& options, const Memory& memory) {
  if (memory.deferred.keys) FlushRows<T>(memory);
  if (memory.pending.keys) FlushPairs<T>(options, memory);
}

template <class T>
void RunOne(const Options& options, const Memory& memory, const Memory& next, Scratch<T>& scratch) {
  LoadRunning(memory, scratch);
  if (memory.pending.keys) {
    ReplayRun<T>(options, memory, next, scratch).Run();
  } else if (scratch.decode) {
    DecodeRun<T>(options, memory, next, scratch).Run();
  } else {
    ChunkedRun<T>(options, memory, next, scratch).Run();
  }
  if (memory.writes() || memory.extent.to < memory.dims.rows) StoreRunning(memory, scratch);
}

template <class T>
void Run(const Options& options, const Memory& memory, const Memory& next, Scratch<T>& worker) {
  if (memory.dims.rows == 0) return;
  if (memory.extent.place == 0) return RunOne(options, memory, next, worker);
  Scratch<T> own = worker.At(memory.extent.place);
  RunOne(options, memory, next, own);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_KERNEL_INL_H_
