/// Gradients of matrix memories: where those of one memory go, and the sums over the tasks that
/// share an input.
#pragma once

#include <cstdint>

#include "src/engines/common/partial_sums.h"
#include "src/engines/scan/backward.h"
#include "src/engines/scan/work.h"

namespace ttr::scan {

/// Keys, queries, importance and rates are summed over groups of columns, keys and values also over
/// the heads that share them, rates over sequences: every task has sums of its own, and the totals
/// are taken when all are done.
class MatrixSums {
 public:
  /// `dy`: in the place of the outputs. The arrays are taken from `layout`.
  MatrixSums(const Work& work, const TensorView& dy, const Gradients& gradients,
             common::ScratchLayout& layout);

  /// Bytes that any call of these sizes takes.
  static std::size_t Bytes(const GradientSizes& sizes);

  MatrixGradient Of(std::int64_t item, const TensorView& dstate) const;

  /// Stores the totals, when all tasks are done.
  void Store(Executor& executor) const;

 private:
  void StoreTokens(std::int64_t begin, std::int64_t end) const;
  void StoreRates() const;

  const Work& work_;
  const TensorView& dy_;
  const Gradients& gradients_;
  std::int64_t tokens_;  // of all sequences
  bool shares_values_;
  common::PartialSums dk_, dq_, dv_, dimportance_, da_;
};

}  // namespace ttr::scan
