// One token: queries over the pairs of the state, in place, so that each is read once. A
// chunk of pairs of all heads is a task, whatever the number of threads. Compiled once for every
// target.

#if defined(TTR_KERNEL_SMOOTHER_DECODE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_KERNEL_SMOOTHER_DECODE_INL_H_
#undef TTR_KERNEL_SMOOTHER_DECODE_INL_H_
#else
#define TTR_KERNEL_SMOOTHER_DECODE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "hwy/highway.h"
#include "src/engines/common/closeness-inl.h"
#include "src/engines/kernel_smoother/decode.h"
#include "src/engines/kernel_smoother/load-inl.h"
#include "src/engines/kernel_smoother/store-inl.h"
#include "src/simd/lane_sums-inl.h"
#include "src/simd/prefetcher.h"
#include "src/simd/vector_map-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::kernel_smoother {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// The first `count` numbers at `from` and zeros, at most a vector.
template <class D, class From>
HWY_INLINE hn::Vec<D> LoadWideSome(D d, const From* from, std::int64_t count) {
  using T = hn::TFromD<D>;
  if constexpr (std::is_same_v<T, From>) {
    return sn::LoadSome(d, from, count);
  } else {
    HWY_ALIGN T lanes[hn::MaxLanes(d)] = {};
    for (std::int64_t i = 0; i < count; ++i) lanes[i] = static_cast<T>(sn::Widen(from[i]));
    return hn::Load(d, lanes);
  }
}

/// Lanes whose sum is k . q, or |k - q|^2.
template <bool BY_DISTANCE, class D, class From, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> Compare(D d, const From* k, const T* q, std::int64_t channels) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum = hn::Zero(d);
  const auto add = [&](hn::Vec<D> x, hn::Vec<D> y) HWY_ATTR {
    if constexpr (BY_DISTANCE) {
      const auto difference = hn::Sub(x, y);
      sum = hn::MulAdd(difference, difference, sum);
    } else {
      sum = hn::MulAdd(x, y, sum);
    }
  };
  std::int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) add(sn::LoadWide(d, k + c), hn::Load(d, q + c));
  if (c < channels) add(LoadWideSome(d, k + c, channels - c), hn::Load(d, q + c));
  return sum;
}

/// scores[j] for rows j < count of keys `stride` apart; whole vectors are written. each(): once a
/// row.
template <bool BY_DISTANCE, class From, class T, class Each>
HWY_INLINE void CompareRows(const From* k, std::int64_t stride, std::int64_t count, const T* q,
                            std::int64_t channels, T* scores, const Each& each) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  HWY_ALIGN T sums[kLanes * kLanes];
  for (std::int64_t j = 0; j < count; j += kLanes) {
    const std::int64_t rows = std::min(kLanes, count - j);
    for (std::int64_t i = 0; i < rows; ++i) {
      each();
      hn::Store(Compare<BY_DISTANCE>(d, k + (j + i) * stride, q, channels), d, sums + i * kLanes);
    }
    std::fill(sums + rows * kLanes, sums + kLanes * kLanes, T(0));
    hn::Store(sn::SumVectors<kLanes>(d, sums), d, scores + j);
  }
}

/// y += sum_j p[j] v_j over rows `stride` apart; rows without weight are not looked at.
template <class From, class T>
void AddRows(const From* v, std::int64_t stride, std::int64_t count, const T* p,
             std::int64_t channels, T* y) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t c = 0;
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {
    auto a0 = hn::Load(d, y + c), a1 = hn::Load(d, y + c + lanes);
    auto a2 = hn::Load(d, y + c + 2 * lanes), a3 = hn::Load(d, y + c + 3 * lanes);
    for (std::int64_t j = 0; j < count; ++j) {
      if (p[j] == 0) continue;
      const From* const row = v + j * stride + c;
      const auto by = hn::Set(d, p[j]);
      a0 = hn::MulAdd(by, sn::LoadWide(d, row), a0);
      a1 = hn::MulAdd(by, sn::LoadWide(d, row + lanes), a1);
      a2 = hn::MulAdd(by, sn::LoadWide(d, row + 2 * lanes), a2);
      a3 = hn::MulAdd(by, sn::LoadWide(d, row + 3 * lanes), a3);
    }
    hn::Store(a0, d, y + c);
    hn::Store(a1, d, y + c + lanes);
    hn::Store(a2, d, y + c + 2 * lanes);
    hn::Store(a3, d, y + c + 3 * lanes);
  }
  for (; c < channels; c += lanes) {
    const std::int64_t some = std::min(lanes, channels - c);
    auto sum = hn::Load(d, y + c);
    for (std::int64_t j = 0; j < count; ++j) {
      if (p[j] == 0) continue;
      const From* const row = v + j * stride + c;
      const auto x = some == lanes ? sn::LoadWide(d, row) : LoadWideSome(d, row, some);
      sum = hn::MulAdd(hn::Set(d, p[j]), x, sum);
    }
    hn::Store(sum, d, y + c);
  }
}

/// Pairs that come next, fetched a row at a time while others are worked on: those of all heads in
/// the order of memory, where rows of one head are far apart.
template <class From>
class RowsAhead {
 public:
  RowsAhead(const ChunkTask& task, std::int64_t first) : t_(task), pair_(first) {}

  HWY_INLINE void Fetch() {
    if (pair_ >= t_.end) return;
    const Memory& m = t_.memories[head_];
    FetchRow(m.state_k, m.key_dim);
    FetchRow(m.state_v, m.value_dim);
    if (++head_ < t_.heads) return;
    head_ = 0;
    ++pair_;
  }

 private:
  HWY_INLINE void FetchRow(const Rows& rows, std::int64_t channels) const {
    simd::FetchRow(static_cast<const From*>(rows.data) + pair_ * rows.stride, channels);
  }

  const ChunkTask& t_;
  std::int64_t pair_, head_ = 0;
};

/// A chunk of the pairs of all heads of a sequence.
template <class T, class From>
class Chunk {
 public:
  explicit Chunk(const ChunkTask& task) : t_(task), piece_(PieceOf(task)) {}

  void Run() const {
    for (std::int64_t h = 0; h < t_.heads; ++h) Clear(h);
    // All heads have one window.
    RowsAhead<From> ahead(t_, std::max(t_.first, t_.memories[0].visible.First(0)) + piece_);
    for (std::int64_t first = t_.first; first < t_.end; first += piece_) {
      const std::int64_t end = std::min(first + piece_, t_.end);
      for (std::int64_t h = 0; h < t_.heads; ++h) {
        const Memory& m = t_.memories[h];
        const Range seen{std::max(first, m.visible.First(0)), std::min(end, m.visible.held)};
        if (seen.first >= seen.end) continue;
        Piece(h, 0, seen, [&] { ahead.Fetch(); });
        for (std::int64_t r = 1; r < m.queries; ++r) Piece(h, r, seen, [] {});
      }
    }
  }

 private:
  static constexpr std::int64_t kMostPiece = 64;

  /// Pairs that are worked on at a time: those of all heads, and as many ahead, leave room in a
  /// second-level cache.
  static std::int64_t PieceOf(const ChunkTask& task) {
    constexpr std::int64_t kBytes = 1 << 16;
    const Memory& m = task.memories[0];
    const auto size = static_cast<std::int64_t>(sizeof(From));
    const std::int64_t pairs = kBytes / (task.heads * (m.key_dim + m.value_dim) * size);
    return std::clamp(pairs / kUnit * kUnit, kUnit, kMostPiece);
  }

  Partial<T> At(std::int64_t h, std::int64_t r) const {
    return t_.room.At<T>(t_.chunk, h * t_.memories[0].queries + r);
  }

  void Clear(std::int64_t h) const {
    for (std::int64_t r = 0; r < t_.memories[h].queries; ++r) {
      Clear(At(h, r));
    }
  }

  void Clear(const Partial<T>& partial) const {
    *partial.top = cn::kNever<T>;
    *partial.sum = *partial.hit = 0;
    std::fill(partial.y, partial.y + linalg::RoundUp(t_.room.value_dim, kUnit), T(0));
  }

  /// each(): once a pair.
  template <class Each>
  void Piece(std::int64_t h, std::int64_t r, const Range& seen, const Each& each) const {
    const Memory& m = t_.memories[h];
    const Partial<T> partial = At(h, r);
    const std::int64_t count = seen.end - seen.first, whole = linalg::RoundUp(count, kUnit);
    HWY_ALIGN T scores[kMostPiece];
    HWY_ALIGN T offsets[kMostPiece];
    const T* const q = t_.room.Query<T>(h * m.queries + r);
    const auto* const k = static_cast<const From*>(m.state_k.data) + seen.first * m.state_k.stride;
    const common::Kernel kernel = t_.options.kernel;
    if (common::IsByDistance(kernel)) {
      CompareRows<true>(k, m.state_k.stride, count, q, m.key_dim, scores, each);
    } else {
      CompareRows<false>(k, m.state_k.stride, count, q, m.key_dim, scores, each);
    }
    const bool weighs = m.bias || m.state_log_weight;
    for (std::int64_t j = 0; weighs && j < whole; ++j) {
      const std::int64_t pair = seen.first + j;
      offsets[j] = j >= count ? T(0)
                   : m.bias   ? static_cast<T>(cn::LogWeightOf(m, {r, 0}, pair))
                              : sn::LoadOne<T>(m.state_log_weight, pair);
    }
    const T width = cn::WidthOf<T>(kernel, m.bandwidth);
    const cn::ColumnOffsets<T> of_pairs{.main = offsets, .split = whole};
    const auto* const weights = weighs ? &of_pairs : nullptr;
    const auto* const v = static_cast<const From*>(m.state_v.data) + seen.first * m.state_v.stride;
    if (common::IsCompact(kernel) && weights == nullptr) {
      *partial.sum += cn::CompactWeights(kernel, whole, 0, count, width, scores);
      if (*partial.sum != 0) *partial.top = 0;
      return AddRows(v, m.state_v.stride, count, scores, m.value_dim, partial.y);
    }
    if (common::HasHits(kernel)) {
      if (*partial.hit == 0 && cn::HasHit(0, count, weights, scores)) {
        Clear(partial);
        *partial.hit = 1;
      }
      if (*partial.hit != 0) cn::KeepHits(whole, scores);
    }
    const T greatest = cn::LogScores(kernel, whole, 0, count, width, weights, scores);
    cn::RunningSum<T> sum{*partial.top, *partial.sum};
    const T factor = sum.Add(whole, greatest, scores);
    *partial.top = sum.top;
    *partial.sum = sum.sum;
    if (factor != 1) sn::Multiply(partial.y, m.value_dim, factor);
    AddRows(v, m.state_v.stride, count, scores, m.value_dim, partial.y);
  }

  const ChunkTask& t_;
  const std::int64_t piece_;
};

template <class T>
void PrepareQueriesAs(const ChunkTask& task) {
  for (std::int64_t h = 0; h < task.heads; ++h) {
    const Memory& m = task.memories[h];
    for (std::int64_t r = 0; r < m.queries; ++r) {
      T* const q = task.room.Query<T>(h * m.queries + r);
      LoadQuery(m, {r, 0}, ScaleOf(task.options), q);
      std::fill(q + m.key_dim, q + task.room.query_stride(), T(0));
    }
  }
}

/// One query's output from the sums of all chunks, in order.
template <class T>
void MergeQuery(const ChunkTask& task, std::int64_t chunks, const Memory& m, std::int64_t h,
                std::int64_t r) {
  const std::int64_t query = h * m.queries + r;
  const Partial<T> all = task.room.At<T>(0, query);
  for (std::int64_t c = 1; c < chunks; ++c) {
    const Partial<T> more = task.room.At<T>(c, query);
    if (*more.hit < *all.hit) continue;
    if (*more.hit > *all.hit) {  // nothing else counts
      *all.top = cn::kNever<T>;
      *all.sum = 0;
      *all.hit = 1;
      std::fill(all.y, all.y + m.value_dim, T(0));
    }
    const T top = *more.top > *all.top ? *more.top : *all.top;
    const auto factor = [top](T of) {
      return of == top ? T(1) : static_cast<T>(std::exp(of - top));
    };
    const T mine = factor(*all.top), theirs = factor(*more.top);
    for (std::int64_t i = 0; i < m.value_dim; ++i) all.y[i] = mine * all.y[i] + theirs * more.y[i];
    *all.sum = mine * *all.sum + theirs * *more.sum;
    *all.top = top;
  }
  StoreOutput<T>(task.options, m, {r, 0}, {*all.top, *all.sum, 0}, all.y);
}

template <class T>
void MergeAs(const ChunkTask& task, std::int64_t chunks) {
  for (std::int64_t h = 0; h < task.heads; ++h) {
    const Memory& m = task.memories[h];
    for (std::int64_t r = 0; r < m.queries; ++r) MergeQuery<T>(task, chunks, m, h, r);
  }
}

template <class T>
void ChunkAs(const ChunkTask& task) {
  if constexpr (std::is_same_v<T, float>) {
    const DType dtype = task.memories[0].state_k.dtype;
    if (dtype == DType::kBFloat16) return Chunk<T, BFloat16>(task).Run();
    if (dtype == DType::kFloat16) return Chunk<T, Float16>(task).Run();
  }
  Chunk<T, T>(task).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::kernel_smoother
HWY_AFTER_NAMESPACE();

#endif  // TTR_KERNEL_SMOOTHER_DECODE_INL_H_
