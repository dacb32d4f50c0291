// The backward pass: pairs of blocks, of queries and of pairs. Compiled once for every target.

#if defined(TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
#undef TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/kernel_smoother/gradient.h"
#include "src/engines/kernel_smoother/gradient_rows-inl.h"
#include "src/engines/kernel_smoother/gradient_shares-inl.h"
#include "src/engines/kernel_smoother/load-inl.h"
#include "src/engines/kernel_smoother/reach-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
class GradientPass {
 public:
  GradientPass(const GradientTask& task, const GradientScratch<T>& scratch)
      : task_(task),
        options_(task.options),
        m_(task.memory),
        g_(task.gradient),
        s_(scratch),
        rows_(task, scratch),
        shares_(task, scratch),
        offsets_(m_, scratch.offsets),
        reach_(options_.kernel, m_, scratch.boxes) {}

  void Run() {
    const std::int64_t all = m_.visible.held + m_.visible.tokens;
    if (task_.products == Products::kQueryBlock) {
      ClearQueries(0, task_.first, s_.dq);
      for (std::int64_t pair = 0; pair < all; pair += s_.pairs) {
        if (!Meets(task_.first, pair)) continue;
        LoadPairBlock(pair);
        BlockPair(task_.first, pair, s_.dq);
      }
      rows_.StoreQueries(task_.first, s_.dq);
      return;
    }
    const bool whole = task_.products == Products::kWhole;
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

  std::int64_t QueriesOf(std::int64_t first) const { return std::min(kQueries, m_.rows - first); }
  std::int64_t PairsFrom(std::int64_t first) const {
    return std::min(s_.pairs, m_.visible.held + m_.visible.tokens - first);
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
    linalg::ZeroRows(s_.sums.dk, 0, count, KeyWidth());
    linalg::ZeroRows(s_.sums.dv, 0, count, ValueWidth());
    std::fill(s_.sums.e, s_.sums.e + s_.pairs, T(0));
    std::fill(s_.sums.ds, s_.sums.ds + s_.pairs, T(0));
    bool loaded = false;
    for (std::int64_t query = 0; query < m_.rows; query += kQueries) {
      if (!Meets(query, pair)) continue;
      if (!loaded) LoadPairBlock(pair);
      loaded = true;
      BlockPair(query, pair, whole ? QueriesAt(query) : Block<T>());
    }
    for (std::int64_t i = 0; i < PairsFrom(pair); ++i) rows_.StorePair(pair + i, i);
  }

  void LoadPairBlock(std::int64_t pair) {
    const std::int64_t count = PairsFrom(pair), whole = linalg::RoundUp(count, kUnit);
    LoadPairs(KeysOf(m_), pair, count, m_.key_dim, s_.k);
    LoadPairs(ValuesOf(m_), pair, count, m_.value_dim, s_.v);
    ln::Transpose(s_.k, whole, KeyWidth(), s_.kt);
    ln::Transpose(s_.v, whole, ValueWidth(), s_.vt);
    if (m_.weighted) LoadOffsets(pair, count);
    reach_.TakeKeys(s_.k, count);
    SetNonfiniteAside(s_.k, count, KeyWidth(), nullptr);
  }

  /// A query whose dy is zero takes no part, even where its numbers are NaN.
  void LoadOutputGradients(std::int64_t query, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = query + i, t = at / m_.queries;
      T* const row = s_.dy.Row(i);
      sn::LoadRow(g_.dy.Of(at - t * m_.queries), t, 0, m_.value_dim, row);
      if (!options_.normalised) sn::Multiply(row, m_.value_dim, static_cast<T>(options_.eta));
      std::fill(row + m_.value_dim, row + ValueWidth(), T(0));
      const bool idle = std::all_of(row, row + m_.value_dim, [](T x) { return x == 0; });
      s_.idle[i] = idle ? T(1) : T(0);
      if (idle) linalg::ZeroRows(s_.q, i, i + 1, KeyWidth());
    }
    linalg::ZeroRows(s_.dy, count, linalg::RoundUp(count, kStrip), ValueWidth());
  }

  /// A pair of importance 0 has a slope, though it takes no part: it is weighed as if its
  /// importance were 1, and marked.
  void LoadOffsets(std::int64_t pair, std::int64_t count) {
    offsets_.Start(pair, count);
    for (std::int64_t j = 0; j < count; ++j) {
      const std::int64_t t = pair + j - m_.visible.held;
      const bool marked = t >= 0 && m_.importance && sn::LoadOne<double>(m_.importance, t) == 0;
      if (marked) offsets_.SetWhole(j);
      s_.marks[j] = marked ? T(1) : T(0);
    }
    std::fill(s_.marks + count, s_.marks + linalg::RoundUp(count, kUnit), T(0));
  }

  /// The least logarithm, over the queries that have weights, of a query's sum of weights over the
  /// greatest weight of a block of pairs; NaN where shares are no parts of a sum, or not all see
  /// the block.
  T LeastLog(std::int64_t query, std::int64_t count) {
    constexpr T kUnknown = std::numeric_limits<T>::quiet_NaN();
    const QueryBlock block(m_, query);
    if (!options_.normalised) return kUnknown;
    if (!offsets_.FindGreatest(block.TokenOf(0), block.TokenOf(count - 1))) return kUnknown;
    T least = std::numeric_limits<T>::infinity();
    for (std::int64_t i = 0; i < count; ++i) {
      const T log = static_cast<const T*>(g_.sums.logs)[query + i];
      if (std::isnan(log)) return log;
      if (log == cn::kNever<T>) continue;
      least = std::min(least, log - offsets_.GreatestFor(block.TokenOf(i)));
    }
    return least;
  }

  /// A block of queries on a block of pairs.
  void BlockPair(std::int64_t query, std::int64_t pair, const Block<T>& dq) {
    const std::int64_t queries = QueriesOf(query), pairs = PairsFrom(pair);
    if (m_.weighted && offsets_.Hides(query, queries)) return;
    LoadQueries(m_, query, queries, ScaleOf(options_), linalg::RoundUp(queries, kStrip), s_.q);
    reach_.TakeQueries(s_.q, queries);
    if (reach_.IsEmpty(m_.weighted ? LeastLog(query, queries) : T(0))) return;
    LoadOutputGradients(query, queries);
    const std::int64_t rows = linalg::RoundUp(queries, kStrip);
    for (std::int64_t i = 0; i < rows; i += kRows) Strip(query, i, pair, dq);
    const std::int64_t columns = linalg::RoundUp(pairs, kUnit);
    if (dq.data != nullptr) {
      ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Of(s_.e), s_.k, queries,
                                   ln::Whole{KeyWidth(), pairs}, dq);
    }
    if (task_.products == Products::kQueryBlock) return;
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.p), s_.dy, columns,
                                 ln::Whole{ValueWidth(), rows}, s_.sums.dv);
    ln::Multiply<ln::Into::kAdd>(linalg::Left<T>::Transposed(s_.e), s_.q, columns,
                                 ln::Whole{KeyWidth(), rows}, s_.sums.dk);
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
    if (common::IsByDistance(options_.kernel)) {
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
      const Range inside{one.first - pair - begin, one.end - pair - begin};
      cn::ColumnOffsets<T> offsets{};
      if (m_.weighted) offsets = offsets_.For(block.PlaceOf(i + r), begin);
      shares_.Take(query + i + r, {i + r, r, begin}, columns, inside, offsets);
      if (g_.dbias && task_.products != Products::kQueryBlock) {
        const Place place = block.PlaceOf(i + r);
        sn::StoreRow(s_.ds + begin, place.token, pair + begin, end - begin,
                     g_.dbias.Of(place.query));
      }
      if (dq.data != nullptr) shares_.AddTo(query + i + r, dq.Row(i + r) + KeyWidth());
    }
  }

  const GradientTask& task_;
  const Options& options_;
  const Memory& m_;
  const MemoryGradient& g_;
  const GradientScratch<T>& s_;
  const GradientRows<T> rows_;
  GradientShares<T> shares_;
  cn::BlockOffsets<T> offsets_;
  Reach<T> reach_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_GRADIENT_INL_H_
