// One memory through one sequence. Compiled once for every target.

#if defined(TTR_NETWORK_FORWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_FORWARD_INL_H_
#undef TTR_NETWORK_FORWARD_INL_H_
#else
#define TTR_NETWORK_FORWARD_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "src/engines/network/block-inl.h"
#include "src/engines/network/checkpoints.h"
#include "src/engines/network/exchange-inl.h"
#include "src/engines/network/read-inl.h"
#include "src/engines/network/task.h"
#include "src/engines/network/token-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
class ForwardKernel {
 public:
  ForwardKernel(const Task& task, const Scratch<T>& scratch)
      : task_(task),
        options_(task.options),
        shape_(task.shape),
        memory_(task.memory),
        s_(scratch),
        in_place_(task.saved == nullptr &&
                  (memory_.tokens == 1 || (options_.mini_batch == 1 && memory_.k))),
        exchange_(shape_, memory_),
        blocks_(options_, shape_, memory_, task.team, scratch),
        reader_(options_, shape_, memory_, scratch, blocks_),
        tokens_(options_, shape_, scratch, blocks_, PlacesOf()) {}

  void Run() {
    blocks_.Begin(in_place_ ? 1 : kBlock);
    if (!in_place_) exchange_.Load(call(), s_.state);
    place_ = memory_.position != nullptr ? *memory_.position : 0;
    if (!memory_.k) return ReadAsItStands(0, memory_.tokens);
    const bool waits = memory_.q && options_.read == Read::kBatchEnd;
    std::int64_t chunks = 0, unread = 0;
    for (std::int64_t t = 0; t < memory_.tokens; ++chunks) {
      if (saved_ != nullptr && chunks > 0 && chunks % task_.spacing == 0) {
        const Checkpoint<T> checkpoint(options_, shape_);
        checkpoint.Save(s_.state, saved_ + (chunks / task_.spacing - 1) * checkpoint.Numbers());
      }
      const std::int64_t count =
          std::min({options_.mini_batch - place_, kBlock, memory_.tokens - t});
      for (std::int64_t i = 0; i < count;) i += RunSome(ChunkOf(t + i, count - i));
      t += count;
      if (!waits || (place_ > 0 && t < memory_.tokens)) continue;
      ReadAsItStands(unread, t);
      unread = t;
    }
    if (memory_.position != nullptr) *memory_.position = place_;
    if (!in_place_) Store();
  }

 private:
  static constexpr Range kOne{0, 1};

  const Call& call() const { return *memory_.call; }
  bool has_status() const { return static_cast<bool>(memory_.status); }

  Place<T> PlaceOf(const Parameters& parameters, const Weights<T>& blocks) const {
    if (parameters.w.empty()) return {};
    if (in_place_) return {&shape_, &memory_, &parameters, {}};
    return {&shape_, nullptr, nullptr, blocks};
  }

  Places<T> PlacesOf() const {
    return {PlaceOf(call().weights, s_.state.weights), PlaceOf(call().anchors, s_.state.anchors),
            PlaceOf(call().second, s_.state.second), PlaceOf(call().squares, s_.state.squares)};
  }

  void Store() const {
    StateBlocks<T> blocks = s_.state;
    if (options_.has_anchors() && !has_anchor_) blocks.anchors = blocks.weights;
    exchange_.Store(blocks, call());
  }

  Chunk ChunkOf(std::int64_t t, std::int64_t count) const {
    return {.first = t,
            .count = count,
            .place = place_,
            .ends = place_ + count == options_.mini_batch,
            .has_anchor = has_anchor_,
            .has_second = has_second_};
  }

  /// What a call finds at its beginning may be anything; afterwards a mini-batch begins with W_bar
  /// = A and, plainly, B = 0.
  void Advance(const Chunk& chunk) {
    place_ = chunk.ends ? 0 : chunk.place + chunk.count;
    has_anchor_ = options_.has_anchors() && (!chunk.ends || in_place_);
    if (options_.plain()) has_second_ = options_.has_second() && (!chunk.ends || in_place_);
    if (in_place_ && chunk.ends && options_.has_anchors()) KeepAnchor();
  }

  /// W_bar <- A
  void KeepAnchor() const {
    if (!in_place_) {
      std::copy(s_.state.weights.data(), s_.state.weights.data() + s_.state.weights.numbers(),
                s_.state.anchors.data());
      return;
    }
    const Place<T> a = PlaceOf(call().weights, s_.state.weights),
                   anchor = PlaceOf(call().anchors, s_.state.anchors);
    for (std::int64_t l = 0; l < shape_.depth; ++l) {
      tokens_.ForRows(l, a[l], anchor[l], [](std::int64_t count, T* from, T* to) {
        std::copy(from, from + count, to);
      });
    }
  }

  bool IsBounded() {
    if (bound_ < std::numeric_limits<T>::max() / 1000) return true;
    bound_ = Largest(s_.state.weights);
    if (options_.has_second()) bound_ = std::max(bound_, Largest(s_.state.second));
    return bound_ < std::numeric_limits<T>::max() / 1000;
  }

  static T Largest(const Weights<T>& weights) {
    const T mass = Mass(weights.numbers(), static_cast<const T*>(weights.data()));
    return std::isnan(mass) ? std::numeric_limits<T>::infinity() : mass;
  }

  /// Runs the first tokens of a chunk, or all of them. Returns how many.
  std::int64_t RunSome(const Chunk& chunk) {
    if (chunk.count > 1 && IsBounded()) {
      const std::int64_t together = RunTogether(chunk);
      if (together == 0) RunToken(ChunkOf(chunk.first, 1));
      return std::max<std::int64_t>(together, 1);
    }
    for (std::int64_t i = 0; i < chunk.count; ++i) RunToken(ChunkOf(chunk.first + i, 1));
    return chunk.count;
  }

  /// Runs the tokens before one in which a number is not finite, or after which one might soon not
  /// be: only the tokens that depend on it may see it. Returns how many; nothing is written where
  /// there are none.
  std::int64_t RunTogether(const Chunk& whole) {
    blocks_.LoadRates(whole);
    FindCoefficients(options_, whole, s_.rates, s_.coefficients);
    blocks_.FindGradients(whole, whole.has_anchor ? s_.state.anchors : s_.state.weights);
    Chunk chunk = whole;
    while (chunk.count > 0 && !blocks_.IsSafe(chunk.count, bound_)) {
      --chunk.count;
      chunk.ends = false;
      chunk.cut = true;
      FindCoefficients(options_, chunk, s_.rates, s_.coefficients);
    }
    if (chunk.count == 0) return 0;
    const bool reads = memory_.q && options_.read != Read::kBatchEnd;
    for (std::int64_t query = 0; reads && query < memory_.queries; ++query) {
      blocks_.ForTokens(chunk.count, [&](Range rows) HWY_ATTR { ReadRows(chunk, query, rows); });
    }
    if (options_.has_anchors() && !chunk.has_anchor && !chunk.ends) KeepAnchor();
    blocks_.Update(chunk);
    Advance(chunk);
    return chunk.count;
  }

  /// Answers queries of some of a chunk's tokens.
  void ReadRows(const Chunk& chunk, std::int64_t query, Range rows) {
    // A row by itself would be read another way: before a cut there is one behind it.
    const Range read{rows.begin, chunk.cut ? std::max<std::int64_t>(rows.end, 2) : rows.end};
    reader_.Load(chunk, query, read);
    if (has_status()) NoteQueries(rows);
    if (options_.read == Read::kBatchStart) {
      reader_.ReadAt(chunk.has_anchor ? s_.state.anchors : s_.state.weights, 0, read);
    } else {
      reader_.ReadTokens(chunk, read);
    }
    reader_.Store(chunk, query, rows);
    for (std::int64_t i = rows.begin; has_status() && i < rows.end; ++i) {
      WriteStatus(query, chunk.first + i, finite_[i], s_.zq[shape_.depth - 1].Row(i), true);
    }
  }

  void NoteQueries(Range rows) {
    for (std::int64_t i = rows.begin; i < rows.end; ++i) {
      finite_[i] = AllFinite(shape_.key_dim, static_cast<const T*>(s_.u[0].Row(i)));
    }
  }

  void RunToken(const Chunk& chunk) {
    blocks_.LoadPairs(chunk);
    const Rates<T>& rates = s_.rates;
    const bool finite = has_status() && PairIsFinite(0);
    const bool between = chunk.place > 0 && options_.plain() && options_.read == Read::kBefore;
    if (options_.read == Read::kBefore || options_.read == Read::kBatchStart) {
      ReadQueries(chunk, between ? rates.row[0] : T(0), finite);
    }
    tokens_.FindGradient(chunk.has_anchor);
    if (options_.has_anchors() && !chunk.has_anchor && !chunk.ends) KeepAnchor();
    bound_ = std::numeric_limits<T>::infinity();
    const bool reads = options_.read == Read::kAfter;
    if (tokens_.ReadsAsItWrites() && reads && memory_.q && memory_.queries == 1) {
      reader_.Load(chunk, 0, kOne);
      const bool inputs_finite = finite && AllFinite(shape_.key_dim, s_.u[0].Row(0));
      tokens_.WriteAndRead();
      Answer(chunk, 0, inputs_finite, !inputs_finite || tokens_.Finite(false, 0));
      return Advance(chunk);
    }
    tokens_.Write(chunk);
    const T after = options_.plain() && !chunk.ends ? rates.row[1] : T(0);
    if (reads) ReadQueries(chunk, after, finite);
    Advance(chunk);
  }

  /// Are the key and value in row i, and its rates, finite?
  bool PairIsFinite(std::int64_t i) const {
    const Rates<T>& rates = s_.rates;
    return AllFinite(shape_.key_dim, static_cast<const T*>(s_.x[0].Row(i))) &&
           AllFinite(shape_.value_dim, static_cast<const T*>(s_.v.Row(i))) &&
           std::isfinite(rates.step[i]) && std::isfinite(rates.momentum[i]) &&
           std::isfinite(rates.decay[i]);
  }

  /// Do queries read W_bar, and is it not A?
  bool ReadsAnchor() const { return options_.read == Read::kBatchStart && has_anchor_; }

  void ReadQueries(const Chunk& chunk, T row, bool finite) {
    if (!memory_.q) return;
    const bool weights_finite = !has_status() || !finite || tokens_.Finite(ReadsAnchor(), row);
    for (std::int64_t query = 0; query < memory_.queries; ++query) {
      reader_.Load(chunk, query, kOne);
      const bool inputs_finite = finite && AllFinite(shape_.key_dim, s_.u[0].Row(0));
      tokens_.Read(ReadsAnchor(), row);
      Answer(chunk, query, inputs_finite, weights_finite);
    }
  }

  void Answer(const Chunk& chunk, std::int64_t query, bool inputs_finite,
              bool weights_finite) const {
    reader_.Store(chunk, query, kOne);
    if (!has_status()) return;
    WriteStatus(query, chunk.first, inputs_finite, s_.zq[shape_.depth - 1].Row(0), weights_finite);
  }

  void WriteStatus(std::int64_t query, std::int64_t t, bool inputs_finite, const T* y,
                   bool weights_finite) const {
    if (!inputs_finite || (weights_finite && AllFinite(shape_.value_dim, y))) return;
    const Rows rows = memory_.status.Of(query);
    static_cast<std::int8_t*>(rows.data)[t * rows.stride] = 2;
  }

  /// Answers queries of tokens first .. end from the memory as it stands.
  void ReadAsItStands(std::int64_t first, std::int64_t end) {
    const bool between = place_ > 0 && options_.plain() && options_.read != Read::kBatchStart;
    const T row = between ? blocks_.RowFactor(place_ - 1) : T(0);
    const bool weights_finite = !has_status() || tokens_.Finite(ReadsAnchor(), row);
    for (std::int64_t t = first; t < end; t += kBlock) {
      const Chunk chunk{.first = t, .count = std::min(kBlock, end - t)};
      bool pairs[kBlock];
      NotePairs(chunk, pairs);
      for (std::int64_t query = 0; query < memory_.queries; ++query) {
        blocks_.ForTokens(chunk.count, [&](Range rows) HWY_ATTR {
          reader_.Load(chunk, query, rows);
          if (has_status()) NoteQueries(rows);
          in_place_
              ? tokens_.Read(ReadsAnchor(), row)
              : reader_.ReadAt(ReadsAnchor() ? s_.state.anchors : s_.state.weights, row, rows);
          reader_.Store(chunk, query, rows);
          for (std::int64_t i = rows.begin; has_status() && i < rows.end; ++i) {
            WriteStatus(query, t + i, finite_[i] && pairs[i], s_.zq[shape_.depth - 1].Row(i),
                        weights_finite);
          }
        });
      }
    }
  }

  void NotePairs(const Chunk& chunk, bool* finite) const {
    std::fill(finite, finite + chunk.count, true);
    if (!has_status() || !memory_.k) return;
    blocks_.LoadPairs(chunk);
    for (std::int64_t i = 0; i < chunk.count; ++i) finite[i] = PairIsFinite(i);
  }

  const Task& task_;
  const Options& options_;
  const Shape& shape_;
  const Memory& memory_;
  const Scratch<T>& s_;
  T* const saved_ = reinterpret_cast<T*>(task_.saved);
  bool in_place_;
  Exchange<T> exchange_;
  BlockKernel<T> blocks_;
  Reader<T> reader_;
  TokenKernel<T> tokens_;
  std::int64_t place_ = 0;
  bool has_anchor_ = options_.has_anchors(), has_second_ = options_.has_second();
  T bound_ = std::numeric_limits<T>::infinity();  // of the weights' numbers
  bool finite_[kBlock] = {};                      // of queries
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_FORWARD_INL_H_
