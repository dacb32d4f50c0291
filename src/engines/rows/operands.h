/// What the glue of all row-wise operators shares: parameters and the sums of their gradients.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/core/working_copy.h"
#include "src/engines/common/partial_sums.h"
#include "src/engines/common/row_views.h"
#include "src/engines/common/tasks.h"
#include "ttr/dtype.h"
#include "ttr/tensor.h"

namespace ttr::rows {

/// Double where the input is, else float.
inline DType ArithmeticOf(const TensorView& x) {
  return x.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}

/// A parameter, contiguous and of the arithmetic's type. Its first axis counts heads; one serves
/// all.
class Parameter {
 public:
  Parameter(const TensorView& given, DType arithmetic)
      : copy_(given, arithmetic, Layout::kContiguous) {}

  /// The parameter of one head; null where absent.
  const void* OfHead(std::int64_t head) const {
    const TensorView& view = copy_.view();
    if (!view.defined()) return nullptr;
    const std::int64_t heads = view.size(0);
    return common::ElementOf(view, heads == 1 ? 0 : head * (view.shape().elements() / heads));
  }

 private:
  WorkingCopy copy_;
};

/// Gradients of a parameter [owners, ...]: every task of every head has a sum of its own. Nothing
/// where `gradient` is absent.
class ParameterSums {
 public:
  ParameterSums(const TensorView& gradient, DType arithmetic, std::int64_t heads,
                std::int64_t tasks_a_head)
      : gradient_(gradient), heads_(heads), tasks_(tasks_a_head) {
    if (!gradient.defined()) return;
    const std::int64_t elements = gradient.shape().elements() / gradient.size(0);
    memory_ = Tensor(arithmetic, {heads, tasks_a_head, elements});
    sums_ = common::PartialSums(memory_.data(), arithmetic, 1, elements);
  }

  void* Of(std::int64_t head, std::int64_t task) const { return sums_.At(head * tasks_ + task, 0); }

  /// Writes the sums over all tasks, and over the heads where one parameter serves all.
  void Write() const {
    if (!gradient_.defined()) return;
    const std::int64_t owners = gradient_.size(0);
    const std::int64_t parts = heads_ / owners * tasks_;
    const Tensor totals(DType::kFloat64, gradient_.shape());
    for (std::int64_t owner = 0; sums_ && owner < owners; ++owner) {
      sums_.Total(owner * parts, parts, 1, 0, totals.as<double>().data() + owner * sums_.width());
    }
    CopyInto(totals, gradient_);
  }

 private:
  TensorView gradient_;
  std::int64_t heads_, tasks_;
  Tensor memory_;
  common::PartialSums sums_;
};

/// Tokens begin .. end of one head of batch row `batch`, and scratch of the worker that has them.
struct RowBlock {
  std::int64_t batch, begin, end, head;
  std::int64_t number;  ///< among the blocks of all batch rows
  void* scratch;
};

/// Bytes of a worker's scratch.
inline std::size_t BytesOf(std::int64_t numbers, DType arithmetic) {
  const auto size = static_cast<std::int64_t>(SizeOf(arithmetic));
  return static_cast<std::size_t>(common::RoundUp(numbers * size, common::kLineBytes));
}

/// Tokens of tensors [B, T, H, ...] in blocks, each of which is a task for every head.
struct RowBlocks {
  std::int64_t batch, tokens, heads, block_tokens;

  RowBlocks(const TensorView& x, std::int64_t tokens_of_block)
      : batch(x.size(0)), tokens(x.size(1)), heads(x.size(2)), block_tokens(tokens_of_block) {}

  std::int64_t of_row() const { return common::CeilDiv(tokens, block_tokens); }
  std::int64_t count() const { return batch * of_row(); }

  /// Calls run(RowBlock) for all, with `numbers` of scratch a worker. Worth threads where so many
  /// `bytes` of rows are read and written.
  template <class RunBlock>
  void Run(Executor& executor, std::int64_t bytes, DType arithmetic, std::int64_t numbers,
           std::span<std::byte> given, const RunBlock& run) const {
    const std::int64_t items = count() * heads;
    if (items == 0) return;
    const bool threads_pay = bytes >= common::kBytesWorthThreads;
    const int workers = common::WorkersOf(common::ThreadsFor(executor, threads_pay), items);
    const common::WorkerScratch scratch("rows", given, workers, BytesOf(numbers, arithmetic));
    scratch.Run(executor, items, [&](std::int64_t item, std::byte* own) {
      const std::int64_t block = item / heads;
      const std::int64_t n = block / of_row();
      const std::int64_t begin = (block - n * of_row()) * block_tokens;
      run(RowBlock{n, begin, std::min(tokens, begin + block_tokens), item - block * heads, block,
                   own});
    });
  }
};

}  // namespace ttr::rows
