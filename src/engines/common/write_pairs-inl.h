// Weights of pairs, and pairs into the state. Compiled once for every target.

#if defined(TTR_COMMON_WRITE_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_COMMON_WRITE_PAIRS_INL_H_
#undef TTR_COMMON_WRITE_PAIRS_INL_H_
#else
#define TTR_COMMON_WRITE_PAIRS_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "src/core/forgets_all.h"
#include "src/engines/common/pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::common {
namespace HWY_NAMESPACE {

/// log w of a pair of the call, as it is written.
inline double LogImportance(const KeptPairs& m, std::int64_t t) {
  double log = m.log_importance ? sn::LoadOne<double>(m.log_importance, t) : 0;
  if (m.importance) log += std::log(sn::LoadOne<double>(m.importance, t));
  return log;
}

/// Decays add up from the last token that forgot all: pairs before it are no longer visible, and a
/// sum with its infinite logarithm would not be finite.
inline void WeighPairsAs(const KeptPairs& m) {
  const PairWeights& w = m.weights;
  const std::int64_t held = m.visible.held;
  double total = 0;
  std::int64_t forgotten = 0;
  for (std::int64_t t = 0; t < m.visible.tokens; ++t) {
    const double log_decay = m.log_decay ? sn::LoadOne<double>(m.log_decay, t) : m.log_factor;
    if (ForgetsAll(log_decay)) {
      forgotten = held + t;
      total = 0;
    } else {
      total += log_decay;
    }
    w.offsets[t] = LogImportance(m, t) - total;
    w.totals[t] = total;
    w.forgotten[t] = forgotten;
  }
}

/// Moves `count` rows from row `from` on to the front: those that stay.
inline void MoveRows(const Rows& rows, std::int64_t from, std::int64_t count,
                     std::int64_t channels) {
  if (!rows || from == 0) return;
  const auto size = static_cast<std::int64_t>(SizeOf(rows.dtype));
  auto* const data = static_cast<std::byte*>(rows.data);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memmove(data + i * rows.stride * size, data + (from + i) * rows.stride * size,
                 static_cast<std::size_t>(channels * size));
  }
}

/// Writes rows of pairs behind those that stay.
template <class T>
void WriteRows(const PairSource& source, const Rows& to, std::int64_t first, std::int64_t dropped,
               std::int64_t end, std::int64_t channels) {
  if (source.call.dtype == to.dtype && !source.normalises) {
    const auto size = static_cast<std::int64_t>(SizeOf(to.dtype));
    for (std::int64_t i = first; i < end; ++i) {
      std::memcpy(static_cast<std::byte*>(to.data) + (i - dropped) * to.stride * size,
                  static_cast<const std::byte*>(source.call.data) +
                      (i - source.held) * source.call.stride * size,
                  static_cast<std::size_t>(channels * size));
    }
    return;
  }
  constexpr std::int64_t kPiece = 1024;
  T room[kPiece];
  for (std::int64_t i = first; i < end; ++i) {
    double factor = 1;
    if (source.normalises) {
      double squares = 0;
      for (std::int64_t c = 0; c < channels; c += kPiece) {
        const std::int64_t count = std::min(kPiece, channels - c);
        sn::LoadRow(source.call, i - source.held, c, count, room);
        squares += sn::SumOfSquares(room, count);
      }
      factor = sn::UnitFactorOf(squares);
    }
    for (std::int64_t c = 0; c < channels; c += kPiece) {
      const std::int64_t count = std::min(kPiece, channels - c);
      sn::LoadRow(source.call, i - source.held, c, count, room);
      if (source.normalises) sn::Multiply(room, count, static_cast<T>(factor));
      sn::StoreRow(room, i - dropped, c, count, to);
    }
  }
}

/// Writes the weights of all pairs, and their number, once the rows are there.
inline void WriteWeights(const KeptPairs& m, std::int64_t dropped, std::int64_t all) {
  if (m.state_log_weight && m.visible.tokens > 0) {
    const std::int64_t last = m.visible.tokens - 1;
    for (std::int64_t i = dropped; i < all; ++i) {
      const double log = i < m.weights.forgotten[last] ? -std::numeric_limits<double>::infinity()
                                                       : OffsetOf(m, i) + m.weights.totals[last];
      sn::StoreRow(&log, i - dropped, 0, 1, m.state_log_weight);
    }
  }
  if (m.length != nullptr) *m.length = all - dropped;
}

/// Writes the pairs of tokens `of`; ranges of tokens come in order.
template <class T>
void WritePairsAs(const KeptPairs& m, const Range& of) {
  const std::int64_t held = m.visible.held, all = held + m.visible.tokens;
  const std::int64_t dropped = all - m.place.After(held, m.visible.tokens);
  if (of.first == 0) {
    const std::int64_t kept = std::max<std::int64_t>(held - dropped, 0);
    MoveRows(m.state_k, dropped, kept, m.key_dim);
    MoveRows(m.state_v, dropped, kept, m.value_dim);
  }
  const std::int64_t first = std::max(held + of.first, dropped), end = held + of.end;
  WriteRows<T>(KeysOf(m), m.state_k, first, dropped, end, m.key_dim);
  WriteRows<T>(ValuesOf(m), m.state_v, first, dropped, end, m.value_dim);
  if (of.end == m.visible.tokens) WriteWeights(m, dropped, all);
}

/// Writes a single token's pair and, where pairs have weights, the weights of all.
template <class T>
void WriteOnePairAs(const KeptPairs& m) {
  if (m.state_log_weight) {
    const double log_decay = m.log_decay ? sn::LoadOne<double>(m.log_decay, 0) : m.log_factor;
    constexpr double kNothing = -std::numeric_limits<double>::infinity();
    const bool forgets = ForgetsAll(log_decay);
    for (std::int64_t i = 0; i < m.visible.held && log_decay != 0; ++i) {
      const double log =
          forgets ? kNothing : sn::LoadOne<double>(m.state_log_weight, i) + log_decay;
      sn::StoreRow(&log, i, 0, 1, m.state_log_weight);
    }
  }
  const std::int64_t length = m.place.After(m.visible.held, 1);
  const std::int64_t dropped = m.visible.held + 1 - length;
  MoveRows(m.state_k, dropped, length - 1, m.key_dim);
  MoveRows(m.state_v, dropped, length - 1, m.value_dim);
  MoveRows(m.state_log_weight, dropped, length - 1, 1);
  WriteRows<T>(KeysOf(m), m.state_k, m.visible.held, dropped, m.visible.held + 1, m.key_dim);
  WriteRows<T>(ValuesOf(m), m.state_v, m.visible.held, dropped, m.visible.held + 1, m.value_dim);
  if (m.state_log_weight) {
    const double log = LogImportance(m, 0);
    sn::StoreRow(&log, length - 1, 0, 1, m.state_log_weight);
  }
  if (m.length != nullptr) *m.length = length;
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::common
HWY_AFTER_NAMESPACE();

#endif  // TTR_COMMON_WRITE_PAIRS_INL_H_
