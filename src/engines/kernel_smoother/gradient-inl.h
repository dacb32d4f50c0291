// The backward pass: pairs of blocks, of queries and of pairs. Compiled once for every target.

#if defined(TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
#undef TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/common/slope-inl.h"
#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/gradient_rows-inl.h"
#include "src/engines/kernel_smoother/load-inl.h"
#include "src/simd/elementary-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T, class KERNEL>
class GradientPass {
 public:
  GradientPass(const GradientTask& task, const GradientScratch<T>& scratch)
      : task_(task),
        options_(task.options),
        m_(task.memory),
        g_(task.gradient),
        s_(scratch),
        rows_(task, scratch) {}

  void Run() {
    const std::int64_t all = m_.sight.held + m_.sight.tokens;
    if (task_.part == Part::kQueryBlock) {
      ClearQueries(0, task_.first, s_.dq);
      for (std::int64_t pair = 0; pair < all; pair += s_.pairs) {
        if (!Meets(task_.first, pair)) continue;
        LoadPairBlock(pair);
        BlockPair(task_.first, pair, s_.dq);
      }
      rows_.StoreQueries(task_.first, s_.dq);
      return;
    }
    const bool whole = task_.part == Part::kWhole;
    for (std::int64_t query = 0; whole && query < m_.rows; query += kQueries) {
      ClearQueries(query, query, QueriesAt(0));
    }
    const std::int64_t first = whole ? 0 : task_.first;
    const std::int64_t end = whole ? all : std::min(all, first + s_.pairs);
    for (std::int64_t pair = first; pair < end; pair += s_.pairs) PairBlock(pair, whole);
    for (std::int64_t query = 0; whole && query < m_.rows; query += kQueries) {
      rows_.StoreQueries(query, QueriesAt(query));
    }
  }

 private:
  static constexpr int kRows = ln::kTileRows;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;

  std::int64_t QueriesOf(std::int64_t first) const { return std::min(kQueries, m_.rows - first); }
  std::int64_t PairsFrom(std::int64_t first) const {
    return std::min(s_.pairs, m_.sight.held + m_.sight.tokens - first);
  }
  std::int64_t KeyWidth() const { return linalg::RoundUp(m_.key_dim, kUnit); }
  std::int64_t ValueWidth() const { return linalg::RoundUp(m_.value_dim, kUnit); }

  /// Sums for dq of queries from `query` on, where one task does all.
  Block<T> QueriesAt(std::int64_t query) const {
    return {static_cast<T*>(g_.queries) + query * s_.dq.stride, s_.dq.stride};
  }

  bool Meets(std::int64_t query, std::int64_t pair) const {
    const QueryBlock block(m_, query);
    const Range seen = block.SeenBy(0, QueriesOf(query));
    return seen.first < pair + s_.pairs && seen.end > pair;
  }

  void ClearQueries(std::int64_t row, std::int64_t query, const Block<T>& dq) const {
    const std::int64_t count = QueriesOf(query);
    linalg::ZeroRows(dq, row, row + count, KeyWidth() + kUnit);
    for (std::int64_t i = 0; i < count; ++i)
      g_.query_sums[query + i] = g_.width_sums[query + i] = 0;
  }

  /// A block of pairs with all queries that see it.
  void PairBlock(std::int64_t pair, bool whole) {
    const std::int64_t count = linalg::RoundUp(PairsFrom(pair), kUnit);
    linalg::ZeroRows(s_.dk, 0, count, KeyWidth());
    linalg::ZeroRows(s_.dv, 0, count, ValueWidth());
    std::fill(s_.e_sums, s_.e_sums + s_.pairs, T(0));
    std::fill(s_.ds_sums, s_.ds_sums + s_.pairs, T(0));
    bool loaded = false;
    for (std::int64_t query = 0; query < m_.rows; query += kQueries) {
      if (!Meets(query, pair)) continue;
      if (!loaded) LoadPairBlock(pair);
      loaded = true;
      BlockPair(query, pair, whole ? QueriesAt(query) : Block<T>());
    }
    for (std::int64_t i = 0; i < PairsFrom(pair); ++i) rows_.StorePair(pair + i, i);
  }

  void LoadPairBlock(std::int64_t pair) const {
    const std::int64_t count = PairsFrom(pair), whole = linalg::RoundUp(count, kUnit);
    LoadPairs(KeysOf(m_), pair, count, m_.key_dim, s_.k);
    LoadPairs(ValuesOf(m_), pair, count, m_.value_dim, s_.v);
    ln::Transpose(s_.k, whole, KeyWidth(), s_.kt);
    ln::Transpose(s_.v, whole, ValueWidth(), s_.vt);
    SetOddAside(s_.k, count, KeyWidth(), nullptr);
  }

  void LoadQueryBlock(std::int64_t query, std::int64_t count) const {
    const Task rows{.options = options_, .memory = m_, .first = query, .count = count};
    LoadQueries(rows, s_.q);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = query + i, t = at / m_.queries;
      T* const row = s_.dy.Row(i);
      sn::LoadRow(g_.dy.Of(at - t * m_.queries), t, 0, m_.value_dim, row);
      if (!options_.normalised) sn::Multiply(row, m_.value_dim, static_cast<T>(options_.eta));
      std::fill(row + m_.value_dim, row + ValueWidth(), T(0));
    }
    linalg::ZeroRows(s_.dy, count, linalg::RoundUp(count, kStrip), ValueWidth());
  }

  /// A pair of importance 0 has a slope, though it takes no part: it is weighed as if its
  /// importance were 1, and marked.
  void LoadOffsets(double reference, std::int64_t pair, std::int64_t count) {
    for (std::int64_t j = 0; j < count; ++j) {
      double offset = OffsetOf(m_, pair + j);
      const std::int64_t t = pair + j - m_.sight.held;
      const bool marked = t >= 0 && m_.importance && sn::LoadOne<double>(m_.importance, t) == 0;
      if (marked) offset = -m_.weights.totals[t];
      s_.marks[j] = marked ? T(1) : T(0);
      s_.offsets[j] = static_cast<T>(offset - reference);
    }
    const std::int64_t whole = linalg::RoundUp(count, kUnit);
    std::fill(s_.offsets + count, s_.offsets + whole, T(0));
    std::fill(s_.marks + count, s_.marks + whole, T(0));
  }

  /// A block of queries on a block of pairs.
  void BlockPair(std::int64_t query, std::int64_t pair, const Block<T>& dq) {
    const std::int64_t queries = QueriesOf(query), pairs = PairsFrom(pair);
    LoadQueryBlock(query, queries);
    if (m_.weighted) LoadOffsets(g_.sums.references[query / kQueries], pair, pairs);
    const std::int64_t rows = linalg::RoundUp(queries, kStrip);
    for (std::int64_t i = 0; i < rows; i += kRows) Strip(query, i, pair, dq);
    const std::int64_t columns = linalg::RoundUp(pairs, kUnit);
    if (dq.data != nullptr) {
      ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(s_.e), s_.k, queries,
                                   ln::Whole{KeyWidth(), pairs}, dq);
    }
    if (task_.part == Part::kQueryBlock) return;
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.p), s_.dy, columns,
                                 ln::Whole{ValueWidth(), rows}, s_.dv);
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.e), s_.q, columns,
                                 ln::Whole{KeyWidth(), rows}, s_.dk);
  }

  /// Queries i .. i + kRows: shares, and gradients by what products hold.
  void Strip(std::int64_t query, std::int64_t i, std::int64_t pair, const Block<T>& dq) {
    const std::int64_t pairs = PairsFrom(pair), whole = linalg::RoundUp(pairs, kUnit);
    const std::int64_t rows = std::min<std::int64_t>(kRows, QueriesOf(query) - i);
    const QueryBlock block(m_, query);
    const Range seen = rows > 0 ? block.SeenBy(i, i + rows) : Range{0, 0};
    const std::int64_t begin = std::max<std::int64_t>(seen.first - pair, 0) / kUnit * kUnit;
    const std::int64_t end = std::min(seen.end - pair, pairs);
    if (rows <= 0 || begin >= end) {
      linalg::ZeroRows(s_.p, i, i + kRows, whole);
      linalg::ZeroRows(s_.e, i, i + kRows, whole);
      return;
    }
    const std::int64_t columns = linalg::RoundUp(end, kUnit) - begin;
    const Block<T> q = s_.q.Rows(i), dy = s_.dy.Rows(i);
    if constexpr (KERNEL::kByDistance) {
      cn::SquaredDistances(q, s_.kt.Columns(begin), columns, m_.key_dim, s_.scores);
    } else {
      ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(q), s_.kt.Columns(begin), kRows,
                                   ln::Whole{columns, m_.key_dim}, s_.scores);
    }
    ln::Multiply<ln::Into::kSet>(linalg::Left<T>::Of(dy), s_.vt.Columns(begin), kRows,
                                 ln::Whole{columns, m_.value_dim}, s_.slopes);
    for (std::int64_t r = 0; r < kRows; ++r) {
      std::fill(s_.p.Row(i + r), s_.p.Row(i + r) + (r < rows ? begin : whole), T(0));
      std::fill(s_.e.Row(i + r), s_.e.Row(i + r) + (r < rows ? begin : whole), T(0));
      if (r >= rows) continue;
      std::fill(s_.p.Row(i + r) + begin + columns, s_.p.Row(i + r) + whole, T(0));
      std::fill(s_.e.Row(i + r) + begin + columns, s_.e.Row(i + r) + whole, T(0));
      const Range one = block.SeenByOne(i + r);
      Row(query + i + r, {i + r, r, begin}, columns,
          {one.first - pair - begin, one.end - pair - begin}, dq);
    }
  }

  struct At {
    std::int64_t row, strip, column;
  };

  /// One query: p and e from its scores and dy . v.
  void Row(std::int64_t query, const At& at, std::int64_t columns, const Range& seen,
           const Block<T>& dq) {
    const D d;
    const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
    const V never = hn::Set(d, cn::kNever<T>), width = hn::Set(d, width_);
    const V log_sum = hn::Set(d, static_cast<const T*>(g_.sums.logs)[query]);
    const V dot =
        hn::Set(d, options_.normalised ? static_cast<const T*>(g_.sums.dots)[query] : T(0));
    // Without a neighbour there is no slope.
    const bool alone = static_cast<const T*>(g_.sums.logs)[query] == cn::kNever<T>;
    const bool hit = KERNEL::kHasHits && static_cast<const T*>(g_.sums.hits)[query] != 0;
    V e_sum = hn::Zero(d), ds_sum = hn::Zero(d), width_sum = hn::Zero(d);
    for (std::int64_t j = 0; j < columns; j += lanes) {
      const std::int64_t c = at.column + j;
      const V x = hn::Load(d, s_.scores.Row(at.strip) + j);
      V log = KERNEL::Of(d, x, width);
      if constexpr (KERNEL::kHasHits) {
        const V far = hn::IfThenElse(hn::Gt(x, hn::Zero(d)), never, x);
        if (hit) log = far;
      }
      if (m_.weighted) {
        const V offset = hn::Load(d, s_.offsets + c);
        log = hn::IfThenElse(hn::Eq(offset, never), never, hn::Add(log, offset));
      }
      if (j < seen.first || j + lanes > seen.end) {
        const V place = hn::Iota(d, static_cast<T>(j));
        const auto inside = hn::And(hn::Ge(place, hn::Set(d, static_cast<T>(seen.first))),
                                    hn::Lt(place, hn::Set(d, static_cast<T>(seen.end))));
        log = hn::IfThenElse(inside, log, never);
      }
      const V share = options_.normalised ? sn::ExpFlushed(d, hn::Sub(log, log_sum))
                                          : sn::Exp(d, hn::Sub(log, log_sum));
      V p = hn::IfThenZeroElse(hn::Eq(log, never), share);
      if (alone) p = hn::Zero(d);
      const V dp = hn::Load(d, s_.slopes.Row(at.strip) + j);
      V ds = hn::IfThenZeroElse(hn::Eq(p, hn::Zero(d)), hn::Mul(p, hn::Sub(dp, dot)));
      if (m_.weighted) {
        hn::Store(hn::Add(hn::Load(d, s_.ds_sums + c), ds), d, s_.ds_sums + c);
        const auto marked = hn::Ne(hn::Load(d, s_.marks + c), hn::Zero(d));
        p = hn::IfThenZeroElse(marked, p);
        ds = hn::IfThenZeroElse(marked, ds);
        ds_sum = hn::Add(ds_sum, ds);
      }
      const auto nothing = hn::Eq(p, hn::Zero(d));
      hn::Store(p, d, s_.p.Row(at.row) + c);
      V e = ds;
      if constexpr (KERNEL::kByDistance) {
        using S = cn::Slope<KERNEL>;
        e = hn::IfThenZeroElse(nothing, hn::Mul(ds, S::Along(d, x, width)));
        e_sum = hn::Add(e_sum, e);
        hn::Store(hn::Add(hn::Load(d, s_.e_sums + c), e), d, s_.e_sums + c);
        const V by_width = hn::Mul(ds, S::ByWidth(d, x, width));
        width_sum = hn::Add(width_sum, hn::IfThenZeroElse(nothing, by_width));
      }
      hn::Store(e, d, s_.e.Row(at.row) + c);
    }
    if (dq.data == nullptr) return;
    if (KERNEL::kByDistance) {
      dq.Row(at.row)[KeyWidth()] += hn::GetLane(hn::SumOfLanes(d, e_sum));
      g_.width_sums[query] += hn::GetLane(hn::SumOfLanes(d, width_sum));
    }
    if (m_.weighted && !options_.normalised) {
      g_.query_sums[query] += hn::GetLane(hn::SumOfLanes(d, ds_sum));
    }
  }

  const GradientTask& task_;
  const Options& options_;
  const Memory& m_;
  const MemoryGradient& g_;
  const GradientScratch<T>& s_;
  const GradientRows<T, KERNEL> rows_;
  const T width_ = cn::WidthOf<T>(options_.kernel, m_.bandwidth);
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
