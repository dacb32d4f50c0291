// From inputs to a block of rows, for the backward pass. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_BACKWARD_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_BACKWARD_GATHER_INL_H_
#undef TTR_FAST_WEIGHTS_BACKWARD_GATHER_INL_H_
#else
#define TTR_FAST_WEIGHTS_BACKWARD_GATHER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/rotation-inl.h"
#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/fast_weights/operands/gather-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Sum of x (.) y (.) z, whole vectors.
template <class T>
HWY_INLINE T Dot(const T* x, const T* y, const T* z, std::int64_t count) {
  const hn::ScalableTag<T> d;
  auto sum = hn::Zero(d);
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    sum = hn::MulAdd(hn::Mul(hn::Load(d, x + i), hn::Load(d, y + i)), hn::Load(d, z + i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

/// Where chunks are gathered to: row r of the block and what follows it.
template <class T>
Gathered<T> GatheredAt(const Options& options, const BackwardRows<T>& rows, std::int64_t r) {
  const std::int64_t stride = rows.key_stride, at = r * stride;
  Gathered<T> g;
  g.stride = stride;
  g.write = rows.write + at;
  g.erase = rows.erase + at;
  g.value = options.separate_value_key() ? rows.key + at : nullptr;
  g.query_stride = rows.rows * stride;
  g.query = rows.query + at;
  g.raw = rows.row;
  g.factors = options.by_channel() ? rows.gates + at : nullptr;
  g.cosines = options.phase ? rows.rotation.cosines + at : nullptr;
  g.sines = options.phase ? rows.rotation.sines + at : nullptr;
  return g;
}

/// What a chunk's numbers are for the backward pass.
template <class T>
void TakeNumbers(const Options& options, const Gathered<T>& g, std::int64_t r, std::int64_t count,
                 BackwardRows<T>& rows) {
  std::copy_n(g.step, count, rows.step + r);
  std::copy_n(g.decay, count, rows.decay + r);
  std::copy_n(g.seen, count, rows.erase_decay + r);
  if (options.momentum) std::copy_n(g.momentum, count, rows.momentum + r);
  if (options.step != Step::kLogWeight) return;
  std::copy_n(g.log_scale, count, rows.running.maxima + r + 1);
  for (std::int64_t i = 0; i < count; ++i) rows.running.from_past[r + i] = g.saved[i] ? T(1) : T(0);
}

/// Queries of a chunk, scaled, and the weights of the bonus.
template <class T>
void FinishQueries(const Options& options, const Memory& memory, std::int64_t r, std::int64_t count,
                   BackwardRows<T>& rows) {
  const std::int64_t stride = rows.key_stride;
  if (options.bonus) {
    LoadRow(memory.inputs.bonus, 0, 0, memory.dims.key_dim, rows.row);
    Pad(rows.row, memory.dims.key_dim, stride);
  }
  for (std::int64_t q = 0; q < rows.queries; ++q) {
    for (std::int64_t i = r; i < r + count; ++i) {
      T* const query = rows.query + (q * rows.rows + i) * stride;
      if (!memory.Reads(rows.first + i)) {
        std::fill_n(query, stride, T(0));
      } else if (options.scale != 1 && !rows.folds_scale) {
        MultiplyBy(query, stride, static_cast<T>(options.scale));
      }
      if (!options.bonus) continue;
      rows.bonus[q * rows.rows + i] = Dot(rows.row, rows.key + i * stride, query, stride);
    }
  }
}

/// The values that a memory carries along from row to row, as they are before the block.
template <class T>
Running<T> BeforeBlock(const Options& options, const Memory& memory, BackwardRows<T>& rows) {
  const std::int64_t stride = rows.key_stride, block = rows.first / kGradientBlock;
  Running<T> running{};
  if (memory.entries.position) {
    running.position = static_cast<std::int64_t>(LoadOne<double>(memory.entries.position, 0));
  }
  if (rows.running.maxima != nullptr) {
    running.maximum = rows.running.block_maxima[block];
    rows.running.maxima[0] = static_cast<T>(running.maximum);
  }
  if (options.preconditioned) {
    std::copy_n(rows.running.block_curvatures + block * stride, stride, rows.running.curvature);
  }
  if (options.rotates()) {
    std::fill_n(rows.rotation.frame, stride / 2, T(1));
    std::fill_n(rows.rotation.frame + stride / 2, stride / 2, T(0));
  }
  return running;
}

/// Stores the carried values as they are behind the block.
template <class T>
void StoreRunning(const Options& options, const Running<T>& running, BackwardRows<T>& rows) {
  const std::int64_t stride = rows.key_stride, block = rows.first / kGradientBlock;
  if (rows.running.maxima != nullptr) rows.running.block_maxima[block + 1] = running.maximum;
  if (!options.preconditioned) return;
  std::copy_n(rows.running.curvature + rows.count * stride, stride,
              rows.running.block_curvatures + (block + 1) * stride);
}

template <class T>
void GatherValue(const Options& options, const Memory& memory, std::int64_t r,
                 BackwardRows<T>& rows) {
  T* const value = rows.value + r * rows.value_stride;
  LoadFirst(memory.inputs.v, rows.first + r, memory.dims.value_dim, value);
  Pad(value, memory.dims.value_dim, rows.value_stride);
  if (options.denominator != Denominator::kNone) value[memory.dims.value_dim] = 1;
}

template <class T>
void GatherBlock(const Options& options, const Memory& memory, bool values, bool queries,
                 BackwardRows<T>& rows) {
  const std::int64_t stride = rows.key_stride;
  Running<T> running = BeforeBlock(options, memory, rows);
  Memory gathered = memory;
  if (!queries) gathered.inputs.q = {};
  const std::int64_t most = options.preconditioned ? 1 : kChunk;
  for (std::int64_t r = 0; r < rows.count; r += most) {
    const Chunk chunk{rows.first + r, std::min(most, rows.count - r), false};
    Gathered<T> g = GatheredAt(options, rows, r);
    if (options.preconditioned) {
      running.curvature = rows.running.curvature + (r + 1) * stride;
      std::copy_n(running.curvature - stride, stride, running.curvature);
    }
    if (!rows.in_place.keys) GatherRows(options, gathered, chunk, running, g);
    GatherNumbers(options, gathered, chunk, running, g);
    TakeNumbers(options, g, r, chunk.rows, rows);
    if (queries && !rows.in_place.keys) FinishQueries(options, memory, r, chunk.rows, rows);
    if (options.rotates()) {
      RotateRows(options.read_before, queries, memory.dims.key_dim, r, chunk.rows, rows);
    }
    if (!values || rows.in_place.value) continue;
    for (std::int64_t i = r; i < r + chunk.rows; ++i) GatherValue(options, memory, i, rows);
  }
  StoreRunning(options, running, rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_GATHER_INL_H_
