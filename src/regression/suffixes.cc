#include "src/regression/suffixes.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace ttr::regression {

double* RowStore::Append() {
  numbers_.resize(numbers_.size() + static_cast<std::size_t>(stride()));
  return numbers_.data() + numbers_.size() - stride();
}

Suffixes::Suffixes(const RowSizes& sizes, RowStore rows, std::int64_t first)
    : sizes_(sizes), store_(std::move(rows)), first_(first) {
  const std::int64_t n = store_.count();
  if (n == 0) return;
  stride_ = std::max<std::int64_t>(1, std::llround(std::sqrt(static_cast<double>(n))));
  weights_.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    weights_[i] = store_.weight(i) * std::exp(store_.log_decay(n - 1) - store_.log_decay(i));
  }
  RotatedRows sums(sizes_);
  const std::int64_t marks = (n + stride_ - 1) / stride_;
  marks_.assign(static_cast<std::size_t>(marks), sums);
  bool placed = !sizes_.intercept;
  for (std::int64_t i = marks - 1; i >= 0; --i) {
    const std::int64_t begin = i * stride_, end = std::min(n, begin + stride_);
    if (!placed) {
      placed = sums.BeginNear({store_.Row(begin), store_.stride(), end - begin, &weights_[begin]});
    }
    AddRows(begin, end, sums);
    sums.Centre();  // a suffix is not kept far from its rows by those that have left
    marks_[i] = sums;
  }
}

void Suffixes::AddRows(std::int64_t begin, std::int64_t end, RotatedRows& to) const {
  to.Rotate({store_.Row(begin), store_.stride(), end - begin, &weights_[begin]});
  for (std::int64_t i = begin; i < end; ++i) {
    if (store_.weight(i) == 0) continue;
    const double g = std::exp(store_.log_decay(store_.count() - 1) - store_.log_decay(i));
    to.sum += g;
    to.sum_of_squares += g * g;
  }
}

const RotatedRows& Suffixes::Sums() {
  const std::int64_t mark = (first_ + stride_ - 1) / stride_;
  if (mark * stride_ == first_) return marks_[mark];
  const std::int64_t end = std::min(store_.count(), mark * stride_);
  if (within_ != mark) {
    within_ = mark;
    between_.clear();
    const bool last = mark == static_cast<std::int64_t>(marks_.size());
    RotatedRows sums = last ? RotatedRows(sizes_) : marks_[mark];
    if (last) sums.Begin(marks_.back().origin());
    for (std::int64_t i = end - 1; i >= first_; --i) {
      AddRows(i, i + 1, sums);
      between_.push_back(sums);
    }
  }
  return between_[end - 1 - first_];
}

}  // namespace ttr::regression
