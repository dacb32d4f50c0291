#include "src/engines/scan/matrix/sums.h"

#include <algorithm>
#include <vector>

#include "src/engines/common/row_views.h"
#include "src/engines/scan/matrix/kernel.h"

namespace ttr::scan {
namespace {

using common::PartialSums;
using common::Sequence;
using common::Task;

/// Rows of tokens that one task sums.
constexpr std::int64_t kRowsATask = 64;

/// Sums of one row over tasks, and what it takes to store them.
class Totals {
 public:
  explicit Totals(std::int64_t width) : numbers_(static_cast<std::size_t>(3 * width)) {}

  /// The sum over the parts first, first + step, ... of a row, by way of the unit length of `input`
  /// where that is given, into `gradient`.
  void Store(const PartialSums& sums, std::int64_t first, std::int64_t count, std::int64_t step,
             std::int64_t row, const Rows& input, const Rows& gradient) {
    sums.Total(first, count, step, row, numbers_.data());
    StoreGradient(input, gradient, sums.width(), numbers_.data(), numbers_.data() + sums.width());
  }

 private:
  std::vector<double> numbers_;
};

}  // namespace

MatrixSums::MatrixSums(const Work& work, const TensorView& dy, const Gradients& gradients,
                       common::ScratchLayout& layout)
    : work_(work),
      dy_(dy),
      gradients_(gradients),
      tokens_(work.sequences.tokens()),
      shares_values_(work.call.v.size(2) < work.heads.memories) {
  const Sizes& sizes = work.sizes;
  const std::int64_t parts = work.heads.memories * work.columns.count;
  const auto take = [&](const TensorView& wanted, std::int64_t count, std::int64_t rows,
                        std::int64_t width) {
    return PartialSums(layout, wanted.defined(), sizes.state, count, rows, width);
  };
  dk_ = take(gradients.k, parts, tokens_, sizes.key_dim);
  dq_ = take(gradients.q, parts * sizes.queries, tokens_, sizes.key_dim);
  dv_ = take(shares_values_ ? gradients.v : TensorView(), work.heads.memories, tokens_,
             work.columns.columns);
  dimportance_ = take(gradients.importance, parts, tokens_, 1);
  da_ = take(gradients.a, work.memories(), work.columns.columns, sizes.key_dim);
}

std::size_t MatrixSums::Bytes(const GradientSizes& of) {
  const Sizes& sizes = of.sizes;
  const std::int64_t parts = of.heads * common::CeilDiv(sizes.value_dim, kGroup);
  common::ScratchLayout counter(nullptr);
  const auto take = [&](std::int64_t count, std::int64_t rows, std::int64_t width) {
    PartialSums(counter, true, sizes.state, count, rows, width);
  };
  take(parts, of.tokens, sizes.key_dim);
  take(parts * sizes.queries, of.tokens, sizes.key_dim);
  if (of.value_heads < of.heads) take(of.heads, of.tokens, sizes.value_dim);
  take(parts, of.tokens, 1);
  take(of.sequences * of.heads, sizes.value_dim, sizes.key_dim);
  return counter.bytes();
}

MatrixGradient MatrixSums::Of(std::int64_t item, const TensorView& dstate) const {
  MatrixGradient g;
  WithTask(work_, item, [&](const Task& task, const Sequence& sequence, std::int64_t column) {
    const std::int64_t h = task.head, token = work_.sequences.Place(sequence);
    const std::int64_t part = h * work_.columns.count + task.part;
    g.dy = common::HeadRowsOf(dy_, sequence, work_.heads.OutputOf(h), column);
    g.dv = shares_values_ ? dv_.RowsAt(h, token, column)
                          : common::RowsOf(gradients_.v, sequence, h, column);
    g.ddt = common::RowsOf(gradients_.dt, sequence, h, column);
    g.dimportance = dimportance_.RowsAt(part, token);
    g.dk = dk_.At(part, token);
    g.dq = dq_.At(part * work_.sizes.queries, token);
    g.dq_stride = tokens_ * work_.sizes.key_dim;
    g.da = da_.At(task.sequence * work_.heads.memories + h, column);
    const Rows state = common::StateOf(dstate, task.sequence, h, column);
    g.dstate = {state.data, state.stride};
  });
  return g;
}

void MatrixSums::Store(Executor& executor) const {
  const std::int64_t items = common::CeilDiv(tokens_, kRowsATask);
  RunOnWorkers(executor, common::WorkersOf(executor.threads(), items), items,
               [&](std::int64_t item, int) {
                 StoreTokens(item * kRowsATask, std::min((item + 1) * kRowsATask, tokens_));
               });
  StoreRates();
}

void MatrixSums::StoreTokens(std::int64_t begin, std::int64_t end) const {
  const std::int64_t length = work_.sequences.length(), queries = work_.sizes.queries;
  const std::int64_t parts = work_.columns.count;
  Totals totals(std::max({work_.sizes.key_dim, work_.columns.columns, std::int64_t{1}}));
  // Head j of a gradient, from the parts of the memories, or queries, that share it: for each,
  // `each` of them, one of `step`.
  const auto store = [&](const PartialSums& sums, const TensorView& gradient,
                         const TensorView& normalised, std::int64_t row, std::int64_t each,
                         std::int64_t step) {
    if (!sums) return;
    const std::int64_t b = row / length, t = row - b * length;
    const std::int64_t owners = gradient.size(2);
    for (std::int64_t j = 0; j < owners; ++j) {
      const std::int64_t first =
          step > 1 ? j / step * each * step + j % step : j * (work_.heads.memories / owners) * each;
      const std::int64_t count = step > 1 ? each : work_.heads.memories / owners * each;
      totals.Store(sums, first, count, step, row, common::RowsOf(normalised, b, t, j),
                   common::RowsOf(gradient, b, t, j));
    }
  };
  const bool unit = work_.options.normalise_qk;
  for (std::int64_t row = begin; row < end; ++row) {
    store(dk_, gradients_.k, unit ? work_.call.k : TensorView(), row, parts, 1);
    store(dq_, gradients_.q, unit ? work_.call.q : TensorView(), row, parts, queries);
    store(dv_, gradients_.v, {}, row, 1, 1);
    store(dimportance_, gradients_.importance, {}, row, parts, 1);
  }
}

void MatrixSums::StoreRates() const {
  if (!da_) return;
  Totals totals(work_.sizes.key_dim);
  for (std::int64_t h = 0; h < work_.heads.memories; ++h) {
    for (std::int64_t c = 0; c < work_.columns.columns; ++c) {
      totals.Store(da_, h, work_.sequences.count(), work_.heads.memories, c, {},
                   common::ConstantOf(gradients_.a, h, c));
    }
  }
}

}  // namespace ttr::scan
