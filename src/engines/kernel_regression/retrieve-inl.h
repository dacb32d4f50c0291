// The answers to a block of queries from the factor of all prefixes. Compiled once for every
// target.

#if defined(TTR_KERNEL_REGRESSION_RETRIEVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_RETRIEVE_INL_H_
#undef TTR_KERNEL_REGRESSION_RETRIEVE_INL_H_
#else
#define TTR_KERNEL_REGRESSION_RETRIEVE_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/kernel_regression/factor-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

/// Queries in columns, first .. first + count of a memory, and what they see.
template <class T>
class QueryColumns {
 public:
  static constexpr std::int64_t kWide = kPanel<T>;

  QueryColumns(const Task& task, const Factor<T>& factor, const Scratch<T>& scratch,
               std::int64_t first)
      : options_(task.options),
        m_(task.memory),
        f_(factor),
        s_(scratch),
        first_(first),
        count_(std::min(kBlock, m_.rows - first)) {}

  std::int64_t count() const { return count_; }
  std::int64_t panels() const { return common::CeilDiv(count_, kWide); }

  /// Pairs that query i sees, and of those the ones that have a factor.
  std::int64_t EndOf(std::int64_t i) const { return m_.visible.End((first_ + i) / m_.queries); }
  std::int64_t RowsOf(std::int64_t i) const { return std::min(EndOf(i), f_.progress->good); }
  /// Pairs with a factor that the last query of a panel sees.
  std::int64_t RowsOfPanel(std::int64_t panel) const {
    return RowsOf(std::min((panel + 1) * kWide, count_) - 1);
  }
  std::int64_t Rows() const { return count_ > 0 ? RowsOf(count_ - 1) : 0; }

  void LoadQueries() const {
    const std::int64_t whole = linalg::RoundUp(count_, kUnit);
    cn::LoadQueries(m_, first_, count_, 1, whole, s_.q);
    LoadColumns(options_, s_.q, whole, m_.key_dim, s_.kt);
  }

  /// Rows from `row` on of a panel of columns at `z`, each of `height` rows.
  static Block<T> Panel(T* z, std::int64_t height, std::int64_t panel, std::int64_t row) {
    return {z + (panel * height + row) * kWide, kWide};
  }

  /// D R k(K, q) in rows of a block.
  void Kernels(std::int64_t block, T* z, std::int64_t height) const {
    const std::int64_t first = block * f_.extent.block;
    for (std::int64_t p = 0; p < panels(); ++p) {
      const std::int64_t end = std::min(first + f_.extent.block, RowsOfPanel(p));
      for (std::int64_t row = first; row < end; row += kWide) {
        KernelBlock<T>(
            options_.kernel,
            {f_.keys.Rows(row), f_.gains + row, kWide, m_.key_dim, s_.kt.Columns(p * kWide)},
            width_, Panel(z, height, p, row));
      }
    }
  }

  /// Z in rows of a block, once those before it are there; zeros in what a query does not see.
  void Solve(std::int64_t block, T* z, std::int64_t height) const {
    Columns<T> list[kBlock / kWide];
    for (std::int64_t p = 0; p < panels(); ++p) {
      list[p] = {Panel(z, height, p, 0), kWide, RowsOfPanel(p)};
    }
    FactorSteps<T>(f_).Solve(block, list, panels());
    Clear(block, z, height);
  }

  /// Zeros in what a query does not see of the rows of a block.
  void Clear(std::int64_t block, T* z, std::int64_t height) const {
    const std::int64_t first = block * f_.extent.block;
    for (std::int64_t i = 0; i < count_; ++i) {
      const std::int64_t p = i / kWide;
      const std::int64_t end =
          std::min(first + f_.extent.block, linalg::RoundUp(RowsOfPanel(p), kWide));
      for (std::int64_t row = std::max(RowsOf(i), first); row < end; ++row) {
        Panel(z, height, p, row).data[i % kWide] = 0;
      }
    }
  }

 private:
  const Options& options_;
  const Memory& m_;
  const Factor<T>& f_;
  const Scratch<T>& s_;
  std::int64_t first_, count_;
  const T width_ = cn::WidthOf<T>(options_.kernel, m_.bandwidth);
};

template <class T>
class Retrieval {
 public:
  Retrieval(const Task& task, const Factor<T>& factor, const Scratch<T>& scratch,
            std::int64_t first)
      : m_(task.memory),
        f_(factor),
        s_(scratch),
        first_(first),
        queries_(task, factor, scratch, first) {}

  void Run() const {
    queries_.LoadQueries();
    const std::int64_t dv = linalg::RoundUp(m_.value_dim, kUnit);
    linalg::ZeroRows(s_.y, 0, kBlock, dv);
    for (std::int64_t b = 0; b * f_.extent.block < queries_.Rows(); ++b) {
      queries_.Kernels(b, s_.z, f_.extent.rows());
      queries_.Solve(b, s_.z, f_.extent.rows());
      AddRows(b, dv);
    }
    for (std::int64_t i = 0; i < queries_.count(); ++i) Store(i);
  }

 private:
  static constexpr std::int64_t kWide = kPanel<T>;

  /// y += Z^T E over rows of a block.
  void AddRows(std::int64_t block, std::int64_t dv) const {
    const std::int64_t first = block * f_.extent.block;
    for (std::int64_t p = 0; p < queries_.panels(); ++p) {
      const std::int64_t count = std::min(f_.extent.block, queries_.RowsOfPanel(p) - first);
      if (count <= 0) continue;
      ln::Multiply<ln::Into::kAdd>(
          linalg::Left<T>::Transposed(queries_.Panel(s_.z, f_.extent.rows(), p, first)),
          f_.e.Rows(first), kWide, ln::Whole{dv, count}, s_.y.Rows(p * kWide));
    }
  }

  void Store(std::int64_t i) const {
    const std::int64_t at = first_ + i, t = at / m_.queries, end = queries_.EndOf(i);
    const bool nonfinite = end > f_.progress->nonfinite;
    if (!nonfinite && end > f_.progress->good) return;  // of least norm, by others
    T* const y = s_.y.Row(i);
    for (std::int64_t c = 0; c < m_.value_dim; ++c) {
      if (nonfinite || end > f_.nonfinite_from[c]) y[c] = std::numeric_limits<T>::quiet_NaN();
    }
    sn::StoreRow(y, t, 0, m_.value_dim, m_.y.Of(at - t * m_.queries));
  }

  const Memory& m_;
  const Factor<T>& f_;
  const Scratch<T>& s_;
  std::int64_t first_;
  const QueryColumns<T> queries_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_RETRIEVE_INL_H_
