// The backward pass (backward.h), block by block. Compiled once for every target.

#if defined(TTR_KERNEL_REGRESSION_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_REGRESSION_GRADIENT_INL_H_
#undef TTR_KERNEL_REGRESSION_GRADIENT_INL_H_
#else
#define TTR_KERNEL_REGRESSION_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/pair_gradients-inl.h"
#include "src/engines/kernel_regression/gradient.h"
#include "src/engines/kernel_regression/gradient_blocks-inl.h"
#include "src/engines/kernel_regression/retrieve-inl.h"
#include "src/engines/kernel_regression/slopes_at_zero-inl.h"
#include "src/engines/kernel_regression/weights_gradient-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_regression {
namespace HWY_NAMESPACE {

template <class T>
class GradientPass {
 public:
  static constexpr std::int64_t kWide = kPanel<T>;

  GradientPass(const GradientTask& task, const Factor<T>& factor, const GradientScratch<T>& scratch,
               const Solutions<T>& solutions)
      : task_(task.task),
        options_(task.task.options),
        m_(task.task.memory),
        g_(task.gradient),
        f_(factor),
        s_(scratch),
        solutions_(solutions) {}

  /// a and b of a block of queries, and dq.
  void SolveQueries(std::int64_t block) const {
    const QueryColumns<T> queries(task_, f_, s_.queries, block * kBlock);
    queries.LoadQueries();
    LoadSlopes(block);
    const std::int64_t rows = Rows(block);
    const SolutionBlock<T> at = SolutionsOf(block);
    std::fill(at.a, at.a + rows * kBlock, T(0));
    std::fill(at.b, at.b + rows * kBlock, T(0));
    const std::int64_t blocks = common::CeilDiv(queries.Rows(), f_.extent.block);
    for (std::int64_t b = 0; b < blocks; ++b) {
      queries.Kernels(b, at.a, rows);
      queries.Solve(b, at.a, rows);
      for (std::int64_t p = 0; p < queries.panels(); ++p) {
        const std::int64_t first = b * f_.extent.block;
        const std::int64_t end = std::min(first + f_.extent.block, queries.RowsOfPanel(p));
        if (end <= first) continue;
        ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(f_.e.Rows(first)),
                                     s_.dyt.Columns(p * kWide), linalg::RoundUp(end - first, kWide),
                                     ln::Whole{kWide, m_.value_dim}, At(at.b, rows, p, first));
      }
      queries.Clear(b, at.b, rows);
    }
    Columns<T> list[2 * kBlock / kWide];
    std::int64_t count = 0;
    for (std::int64_t p = 0; p < queries.panels(); ++p) {
      for (T* x : {at.a, at.b}) list[count++] = {At(x, rows, p, 0), kWide, queries.RowsOfPanel(p)};
    }
    SolveUp(f_, blocks, list, count);
    SumQueries(queries, block, blocks);
  }

  /// dA + dA^T of a block of columns, times slopes.
  void FillSlopes(std::int64_t block) const {
    const std::int64_t height = f_.extent.block, first = block * height;
    for (std::int64_t h = first / kWide; h < (first + height) / kWide; ++h) {
      const Block<T> panel = f_.Panel(h, 0);
      std::fill(panel.data, panel.data + (first + height) * kWide, T(0));
    }
    std::fill(solutions_.products + first, solutions_.products + first + height, 0.0);
    for (std::int64_t q = 0; q < QueryBlocks(); ++q) {
      if (Rows(q) > first) AddProducts(block, q);
    }
    LoadColumns(options_, f_.keys.Rows(first), height, m_.key_dim, s_.queries.kt);
    double width = 0;
    for (std::int64_t b = 0; b <= block; ++b) {
      for (std::int64_t column = first; column < first + height; column += kWide) {
        const Block<T> by = f_.Panel(column / kWide, b * height);
        const double sum =
            SlopeBlock<T>(options_.kernel,
                          {f_.keys.Rows(b * height), f_.gains + b * height, height, m_.key_dim,
                           s_.queries.kt.Columns(column - first), f_.gains + column},
                          width_, by, s_.x, by);
        // The square on the diagonal has both halves of its symmetric pairs, so that half of it
        // counts.
        width += b < block ? sum : sum / 2;
      }
    }
    solutions_.widths[block] = width;
  }

  /// dk and dv of a block of pairs.
  void SumPairs(std::int64_t block) const {
    const std::int64_t height = f_.extent.block, first = block * height;
    const std::int64_t dk = linalg::RoundUp(m_.key_dim, kUnit);
    linalg::ZeroRows(s_.dk, 0, height, dk);
    linalg::ZeroRows(s_.dv, 0, height, linalg::RoundUp(m_.value_dim, kUnit));
    std::fill(s_.sums, s_.sums + height, T(0));
    AddPairs(block, dk);
    for (std::int64_t q = 0; q < QueryBlocks(); ++q) {
      if (Rows(q) > first) AddQueries(block, q, dk);
    }
    for (std::int64_t i = first; i < std::min(first + height, m_.all()); ++i)
      StorePair(i, i - first);
  }

  void Finish() const {
    double width = 0, ridge = 0;
    const std::int64_t pairs = m_.all();
    for (std::int64_t i = 0; i < f_.extent.blocks + QueryBlocks(); ++i) {
      // (Blocks behind the last pair have none.)
      const bool there = i >= f_.extent.blocks || i * f_.extent.block < pairs;
      if (there) width += solutions_.widths[i];
    }
    for (std::int64_t i = 0; i < pairs; ++i) {
      const double p = static_cast<double>(f_.inverse[i]) * solutions_.products[i];
      ridge -= p;
      const bool part = f_.gains[i] != NoGain<T>(options_.kernel);
      StoreWeightGradient(m_, g_, i, m_.ridge * p, part);
    }
    if (m_.ridge > 0) SlopesAtZero<T>(task_, g_, f_, s_, solutions_).Store();
    if (g_.dridge != nullptr) *g_.dridge = ridge;
    if (g_.dbandwidth != nullptr) *g_.dbandwidth = m_.bandwidth == 0 ? 0 : width / m_.bandwidth;
  }

 private:
  std::int64_t QueryBlocks() const { return common::CeilDiv(m_.rows, kBlock); }
  std::int64_t Rows(std::int64_t block) const {
    return RowsOfQueries(m_.visible, m_.queries, m_.rows, block, f_.extent);
  }
  SolutionBlock<T> SolutionsOf(std::int64_t block) const {
    return solutions_.Of(m_, f_.extent, block);
  }
  /// Rows from `row` on of panel p of columns that have `rows` rows.
  static Block<T> At(T* x, std::int64_t rows, std::int64_t p, std::int64_t row) {
    return {x + (p * rows + row) * kWide, kWide};
  }
  std::int64_t CountOf(std::int64_t block) const {
    return std::min(kBlock, m_.rows - block * kBlock);
  }

  /// dy of a block of queries, in rows and in columns.
  void LoadSlopes(std::int64_t block) const {
    const std::int64_t wide = linalg::RoundUp(m_.value_dim, kUnit), count = CountOf(block);
    const std::int64_t whole = linalg::RoundUp(count, kUnit);
    const Block<T>& dy = s_.queries.y;
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = block * kBlock + i, t = at / m_.queries;
      sn::LoadRow(g_.dy.Of(at - t * m_.queries), t, 0, m_.value_dim, dy.Row(i));
      std::fill(dy.Row(i) + m_.value_dim, dy.Row(i) + wide, T(0));
    }
    linalg::ZeroRows(dy, count, whole, wide);
    ln::Transpose(dy, whole, wide, s_.dyt);
  }

  void SumQueries(const QueryColumns<T>& queries, std::int64_t block, std::int64_t blocks) const {
    const std::int64_t dk = linalg::RoundUp(m_.key_dim, kUnit), rows = Rows(block);
    linalg::ZeroRows(s_.dk, 0, kBlock, dk);
    std::fill(s_.sums, s_.sums + kBlock, T(0));
    const T* const b = SolutionsOf(block).b;
    double width = 0;
    for (std::int64_t a = 0; a < blocks; ++a) {
      const std::int64_t first = a * f_.extent.block;
      for (std::int64_t p = 0; p < queries.panels(); ++p) {
        const std::int64_t count =
            std::min(f_.extent.block, linalg::RoundUp(queries.RowsOfPanel(p), kUnit) - first);
        if (count <= 0) continue;
        width += Slopes(first, count, p, At(const_cast<T*>(b), rows, p, first));
        ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.e), f_.keys.Rows(first), kWide,
                                     ln::Whole{dk, count}, s_.dk.Rows(p * kWide));
        if (common::IsByDistance(options_.kernel)) AddColumnSums(s_.e, count, s_.sums + p * kWide);
      }
    }
    solutions_.widths[f_.extent.blocks + block] = width;
    for (std::int64_t i = 0; i < queries.count(); ++i) StoreQuery(block * kBlock + i, i);
  }

  /// e of keys and a panel of the queries that are loaded.
  double Slopes(std::int64_t first, std::int64_t count, std::int64_t panel,
                const Block<T>& by) const {
    return SlopeBlock<T>(options_.kernel,
                         {f_.keys.Rows(first), f_.gains + first, count, m_.key_dim,
                          s_.queries.kt.Columns(panel * kWide)},
                         width_, by, s_.x, s_.e);
  }

  /// Completes the sum of e times keys to a gradient by `x`.
  void Complete(T* gradient, T sum, const T* x) const {
    if (common::IsByDistance(options_.kernel)) {
      for (std::int64_t c = 0; c < m_.key_dim; ++c) gradient[c] -= sum * x[c];
    } else if (options_.scale != 1) {
      sn::Multiply(gradient, m_.key_dim, static_cast<T>(options_.scale));
    }
  }

  void StoreQuery(std::int64_t at, std::int64_t i) const {
    const std::int64_t t = at / m_.queries, query = at - t * m_.queries;
    Complete(s_.dk.Row(i), s_.sums[i], s_.queries.q.Row(i));
    if (m_.normalises) sn::LoadRow(m_.q.Of(query), t, 0, m_.key_dim, s_.row);
    const simd::Rows to = g_.dq ? g_.dq.Of(query) : simd::Rows();
    cn::StoreGradientRow(s_.dk.Row(i), m_.normalises ? s_.row : nullptr, to, t, m_.key_dim,
                         s_.spare);
  }

  /// -(a_i b_j + b_i a_j) of a block of queries, and a_j b_j.
  void AddProducts(std::int64_t block, std::int64_t query_block) const {
    const std::int64_t height = f_.extent.block, first = block * height;
    const std::int64_t rows = Rows(query_block);
    const std::int64_t panels = common::CeilDiv(CountOf(query_block), kWide);
    const SolutionBlock<T> from = SolutionsOf(query_block);
    for (std::int64_t p = 0; p < panels; ++p) {
      const Block<T> a = At(from.a, rows, p, first), b = At(from.b, rows, p, first);
      ln::Transpose(a, height, kWide, s_.at.Rows(p * kWide));
      ln::Transpose(b, height, kWide, s_.bt.Rows(p * kWide));
      for (std::int64_t i = 0; i < height; ++i) {
        solutions_.products[first + i] += sn::WideDot(kWide, a.Row(i), b.Row(i));
      }
    }
    for (std::int64_t other = 0; other <= first; other += height) {
      for (std::int64_t p = 0; p < panels; ++p) {
        const auto a = linalg::Left<T>::Of(At(from.a, rows, p, other));
        const auto b = linalg::Left<T>::Of(At(from.b, rows, p, other));
        for (std::int64_t column = 0; column < height; column += kWide) {
          const Block<T> to = f_.Panel((first + column) / kWide, other);
          const ln::Whole whole{kWide, kWide};
          ln::Multiply<ln::Into::kSubtract>(a, s_.bt.Rows(p * kWide).Columns(column), height, whole,
                                            to);
          ln::Multiply<ln::Into::kSubtract>(b, s_.at.Rows(p * kWide).Columns(column), height, whole,
                                            to);
        }
      }
    }
  }

  /// Sums over pairs: rows of the block in later columns, its columns in earlier rows.
  void AddPairs(std::int64_t block, std::int64_t dk) const {
    const std::int64_t height = f_.extent.block, first = block * height;
    const std::int64_t end = linalg::RoundUp(m_.all(), height);
    for (std::int64_t column = first; column < end; column += kWide) {
      const Block<T> e = f_.Panel(column / kWide, first);
      ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(e), f_.keys.Rows(column), height,
                                   ln::Whole{dk, kWide}, s_.dk);
      if (common::IsByDistance(options_.kernel)) AddRowSums(e, height, s_.sums);
    }
    for (std::int64_t column = 0; column < height; column += kWide) {
      for (std::int64_t row = 0; row < first; row += height) {
        const Block<T> e = f_.Panel((first + column) / kWide, row);
        ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(e), f_.keys.Rows(row), kWide,
                                     ln::Whole{dk, height}, s_.dk.Rows(column));
        if (common::IsByDistance(options_.kernel)) AddColumnSums(e, height, s_.sums + column);
      }
    }
  }

  /// Sums over a block of queries.
  void AddQueries(std::int64_t block, std::int64_t query_block, std::int64_t dk) const {
    const std::int64_t height = f_.extent.block, first = block * height;
    const std::int64_t dv = linalg::RoundUp(m_.value_dim, kUnit), rows = Rows(query_block);
    const QueryColumns<T> queries(task_, f_, s_.queries, query_block * kBlock);
    queries.LoadQueries();
    LoadSlopes(query_block);
    const SolutionBlock<T> from = SolutionsOf(query_block);
    for (std::int64_t p = 0; p < queries.panels(); ++p) {
      if (queries.RowsOfPanel(p) <= first) continue;
      Slopes(first, height, p, At(from.b, rows, p, first));
      ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(s_.e), s_.queries.q.Rows(p * kWide), height,
                                   ln::Whole{dk, kWide}, s_.dk);
      if (common::IsByDistance(options_.kernel)) AddRowSums(s_.e, height, s_.sums);
      ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(At(from.a, rows, p, first)),
                                   s_.queries.y.Rows(p * kWide), height, ln::Whole{dv, kWide},
                                   s_.dv);
    }
  }

  void StorePair(std::int64_t pair, std::int64_t i) const {
    Complete(s_.dk.Row(i), s_.sums[i], f_.keys.Row(pair));
    const double gain = static_cast<double>(f_.gains[pair]);
    sn::Multiply(s_.dv.Row(i), m_.value_dim,
                 static_cast<T>(common::HasLogarithm(options_.kernel) ? std::exp(gain) : gain));
    cn::StorePairGradient(m_, g_, pair, s_.dk.Row(i), s_.dv.Row(i), s_.row, s_.spare);
  }

  const Task& task_;
  const Options& options_;
  const Memory& m_;
  const MemoryGradient& g_;
  const Factor<T>& f_;
  const GradientScratch<T>& s_;
  const Solutions<T>& solutions_;
  const T width_ = cn::WidthOf<T>(options_.kernel, m_.bandwidth);
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_regression
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_REGRESSION_GRADIENT_INL_H_
