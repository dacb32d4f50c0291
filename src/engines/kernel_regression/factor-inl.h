// The factor of one memory, a block of rows after the other. Compiled once for every target.

#if defined(TTR_KERNEL_REGRESSION_FACTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_FACTOR_INL_H_
#undef TTR_KERNEL_REGRESSION_FACTOR_INL_H_
#else
#define TTR_KERNEL_REGRESSION_FACTOR_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/kernel_regression/load-inl.h"
#include "src/linalg/cholesky-inl.h"
#include "src/linalg/rounding.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

/// Columns X that become U^-T X, a block of rows after the other; rows from `rows` on are left.
template <class T>
struct Columns {
  Block<T> x;
  std::int64_t columns, rows;
};

/// Which pivots are more than rounding. Rounding grows as the pivots before leave less of their
/// diagonals, but a ridge is in every pivot as it is.
template <class T>
class PivotTest {
 public:
  PivotTest(const Factor<T>& factor, double ridge, std::int64_t pairs)
      : f_(factor), ridge_(ridge), rounding_(RoundingOf(pairs)), least_(factor.progress->least) {}

  double least() const { return least_; }

  bool operator()(std::int64_t row, T left) {
    const double share = static_cast<double>(left) / static_cast<double>(f_.diagonal[row]);
    if (!(share > rounding_)) return false;
    const double sure = ridge_ * static_cast<double>(f_.inverse[row]);
    if (!(sure > rounding_) && !(share * least_ > rounding_)) return false;
    least_ = std::min(least_, share);
    return true;
  }

 private:
  /// The rounding of sums of so many products. In double it is the definition's margin and some
  /// more.
  static double RoundingOf(std::int64_t pairs) {
    if constexpr (sizeof(T) == 4) return 8 * std::sqrt(static_cast<double>(pairs)) * 0x1p-23;
    return 16 * linalg::Rounding<double>(pairs);
  }

  const Factor<T>& f_;
  double ridge_, rounding_, least_;
};

template <class T>
class FactorSteps {
 public:
  explicit FactorSteps(const Factor<T>& factor) : f_(factor) {}

  static constexpr std::int64_t kWide = kPanel<T>;

  /// Rows of block `block` of some columns: X <- U_bb^-T (X_b - sum_{a < b} U_ab^T X_a).
  void Solve(std::int64_t block, const Columns<T>* list, std::int64_t count) const {
    for (std::int64_t a = 0; a < block; ++a) {
      ForGroups(block, [&](std::int64_t row) HWY_ATTR {
        for (std::int64_t c = 0; c < count; ++c) {
          if (row < list[c].rows) Subtract(row, a * f_.extent.block, f_.extent.block, list[c]);
        }
      });
    }
    const std::int64_t first = block * f_.extent.block;
    ForGroups(block, [&](std::int64_t row) HWY_ATTR {
      for (std::int64_t c = 0; c < count; ++c) {
        if (row >= list[c].rows) continue;
        Subtract(row, first, row - first, list[c]);
        SolveGroup(row, list[c]);
      }
    });
  }

  /// The block on the diagonal, panels from pair `from` on, up to pair `end`. Returns the first row
  /// of the panel whose pivot fails, or `end`.
  std::int64_t FactorBlock(std::int64_t block, std::int64_t from, std::int64_t end,
                           PivotTest<T>& test) const {
    const std::int64_t first = block * f_.extent.block;
    const std::int64_t last = std::min(first + f_.extent.block, linalg::RoundUp(end, kWide));
    for (std::int64_t a = 0; a <= block; ++a) {
      const std::int64_t before = a * f_.extent.block;
      for (std::int64_t row = first; row < last; row += kWide) {
        if (a == block && row >= from) {
          Subtract(row, before, row - before, PanelOf(row, last));
          if (!FactorGroup(row, test)) return row;
        }
        for (std::int64_t column = std::max(row, from); column < last; column += kWide) {
          if (a < block) {
            Subtract(row, before, f_.extent.block, PanelOf(column, last));
          } else if (column > row) {
            Subtract(row, before, row - before, PanelOf(column, last));
            SolveGroup(row, PanelOf(column, last));
          }
        }
      }
    }
    return end;
  }

  /// The panel that begins with column `column`.
  Columns<T> PanelOf(std::int64_t column, std::int64_t rows) const {
    return {f_.Panel(column / kWide, 0), kWide, rows};
  }

 private:
  template <class Use>
  HWY_INLINE void ForGroups(std::int64_t block, const Use& use) const {
    const std::int64_t first = block * f_.extent.block;
    for (std::int64_t row = first; row < first + f_.extent.block; row += kWide) use(row);
  }

  /// Rows row .. row + kWide: less U^T X over `count` rows from `from` on.
  HWY_INLINE void Subtract(std::int64_t row, std::int64_t from, std::int64_t count,
                           const Columns<T>& of) const {
    if (count == 0) return;
    ln::Multiply<ln::Into::kSubtract>(linalg::Left<T>::Transposed(f_.Panel(row / kWide, from)),
                                      of.x.Rows(from), kWide, ln::Whole{of.columns, count},
                                      of.x.Rows(row));
  }

  linalg::UpperFactor<T> GroupAt(std::int64_t row) const {
    return {f_.Panel(row / kWide, row), f_.corners + row * linalg::kCornerNumbers};
  }

  void SolveGroup(std::int64_t row, const Columns<T>& of) const {
    ln::SubstituteDown(GroupAt(row), kWide, of.x.Rows(row), of.columns);
  }

  bool FactorGroup(std::int64_t row, PivotTest<T>& test) const {
    const auto pivot = ln::Factor(GroupAt(row), kWide, [&](std::int64_t i, T, T left) HWY_ATTR {
      return test(row + i, left);
    });
    return pivot.index == kWide;
  }

  const Factor<T>& f_;
};

/// Pairs that have a part in the factor.
template <class T>
std::int64_t FinitePairs(const Memory& m, const Factor<T>& f) {
  return std::min(m.all(), f.progress->nonfinite);
}

/// A in a block of columns, the panels that are not factored yet.
template <class T>
void FillColumns(const Task& task, const Factor<T>& f, const Scratch<T>& s, std::int64_t block) {
  const Memory& m = task.memory;
  const std::int64_t first = block * f.extent.block, wide = kPanel<T>;
  const std::int64_t end =
      std::min(first + f.extent.block, linalg::RoundUp(FinitePairs(m, f), wide));
  const std::int64_t from = std::max(first, f.progress->done);
  if (from >= end) return;
  LoadColumns(task.options, f.keys.Rows(first), f.extent.block, m.key_dim, s.kt);
  const T width = cn::WidthOf<T>(task.options.kernel, m.bandwidth);
  for (std::int64_t column = from; column < end; column += wide) {
    for (std::int64_t row = 0; row < column + wide; row += wide) {
      KernelBlock<T>(task.options.kernel,
                     {f.keys.Rows(row), f.gains + row, wide, m.key_dim,
                      s.kt.Columns(column - first), f.gains + column},
                     width, f.Panel(column / wide, row));
    }
    const Block<T> square = f.Panel(column / wide, column);
    for (std::int64_t i = 0; i < wide; ++i) square.Row(i)[i] = f.diagonal[column + i];
  }
}

template <class T>
bool FactorDiagonalAs(const Task& task, const Factor<T>& f, std::int64_t block) {
  const std::int64_t first = block * f.extent.block;
  const std::int64_t pairs = FinitePairs(task.memory, f);
  const std::int64_t end = std::min(first + f.extent.block, pairs);
  Progress& progress = *f.progress;
  PivotTest<T> test(f, task.memory.ridge, pairs);
  const std::int64_t whole = end / kPanel<T> * kPanel<T>;
  // Finished panels stay as they are; one that is not full is factored again once it is.
  FactorSteps<T> steps(f);
  const std::int64_t from = std::max(progress.done, first);
  if (whole > from) {
    progress.good = steps.FactorBlock(block, from, whole, test);
    progress.done = progress.good;
    progress.least = test.least();
    if (progress.good < whole) return false;
  }
  if (end > whole) {
    progress.good = steps.FactorBlock(block, std::max(whole, from), end, test);
    if (progress.good < end) return false;
  }
  progress.good = std::max(progress.good, end);
  return true;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_FACTOR_INL_H_
