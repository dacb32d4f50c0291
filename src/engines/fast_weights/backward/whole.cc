// The backward pass of one memory that is read when all is written.

#include "src/engines/fast_weights/backward/whole.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "src/engines/fast_weights/row_io.h"

namespace ttr::fast_weights {
namespace {

/// d_initial = from^T, a memory's rows.
template <class T>
void Transpose(const T* from, BackwardRows<T>& rows) {
  for (std::int64_t v = 0; v < rows.value_stride; ++v) {
    T* const to = rows.d_initial + v * rows.key_stride;
    for (std::int64_t d = 0; d < rows.key_stride; ++d) to[d] = from[d * rows.value_stride + v];
  }
}

/// From the decays of every block to those of all blocks behind it; sums become 0.
template <class T>
void TakeFactors(const Options& options, const Memory& memory, std::int64_t blocks,
                 BackwardRows<T>& rows) {
  const std::int64_t keys = rows.key_stride, planes = options.phase ? 2 : 1;
  std::fill_n(rows.whole.sums, planes * keys, T(0));
  for (std::int64_t k = 0; k < (options.by_channel() ? keys : 1); ++k) {
    // There is nothing beyond the last channel, NaN included.
    T real = k < memory.dims.key_dim ? T(1) : T(0), imaginary = 0;
    for (std::int64_t block = blocks - 1; block >= 0; --block) {
      T* const factor = rows.whole.factors + block * planes * keys + k;
      const T own = std::exchange(factor[0], real);
      if (options.phase) {
        const T own_imaginary = std::exchange(factor[keys], imaginary);
        const T rotated = real * own_imaginary + imaginary * own;
        real = real * own - imaginary * own_imaginary;
        imaginary = rotated;
      } else {
        real *= own;
      }
    }
  }
}

}  // namespace

template <class T>
void DifferentiateWhole(const Options& options, const Memory& memory, const GradientMemory& out,
                        BackwardRows<T>& rows) {
  const BackwardKernels<T> kernels = ChosenKernels<T>();
  const std::int64_t blocks = (memory.dims.rows + kGradientBlock - 1) / kGradientBlock;
  auto go_to = [&](std::int64_t block) {
    rows.first = block * kGradientBlock;
    rows.count = std::min<std::int64_t>(kGradientBlock, memory.dims.rows - rows.first);
  };
  if (rows.running.maxima != nullptr)
    rows.running.block_maxima[0] = -std::numeric_limits<double>::infinity();
  const std::int64_t numbers = rows.key_stride * rows.value_stride;
  std::fill_n(rows.whole.memory, numbers, T(0));
  ReadMemory(memory, memory.entries.state, memory.entries.sum, rows, rows.whole.memory);
  Transpose(rows.whole.memory, rows);
  std::fill_n(rows.d_final, numbers, T(0));
  for (std::int64_t block = 0; block < blocks; ++block) {
    go_to(block);
    kernels.gather(options, memory, false, true, rows);
    kernels.whole(WholePass::kDecays, options, rows);
    // All outputs are read from the memory as it is divided at the end.
    if (rows.running.maxima != nullptr) {
      std::fill_n(rows.running.maxima, rows.count + 1, ReadOne<T>(memory.entries.maximum, 0));
    }
    if (rows.whole.y != nullptr) kernels.whole(WholePass::kOutputs, options, rows);
    kernels.gather_outputs(options, memory, rows);
    kernels.whole(WholePass::kQueries, options, rows);
    kernels.scatter(options, memory, out, Side::kQueries, rows);
  }
  Transpose(rows.d_final, rows);
  TakeFactors(options, memory, blocks, rows);
  for (std::int64_t block = 0; block < blocks; ++block) {
    go_to(block);
    kernels.gather(options, memory, true, false, rows);
    kernels.whole(WholePass::kWrites, options, rows);
    kernels.scatter(options, memory, out, Side::kWrites, rows);
  }
}

template void DifferentiateWhole(const Options&, const Memory&, const GradientMemory&,
                                 BackwardRows<float>&);
template void DifferentiateWhole(const Options&, const Memory&, const GradientMemory&,
                                 BackwardRows<double>&);

}  // namespace ttr::fast_weights
