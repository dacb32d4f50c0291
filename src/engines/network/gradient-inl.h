// One memory through one sequence and back, from checkpoint to checkpoint. Compiled once for every
// target.

#if defined(TTR_NETWORK_GRADIENT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_NETWORK_GRADIENT_INL_H_
#undef TTR_NETWORK_GRADIENT_INL_H_
#else
#define TTR_NETWORK_GRADIENT_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/network/chunk_gradient-inl.h"
#include "src/engines/network/exchange-inl.h"
#include "src/engines/network/token-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::network {
namespace HWY_NAMESPACE {

template <class T>
class BackwardKernel {
 public:
  BackwardKernel(const GradientTask& task, const GradientScratch<T>& scratch)
      : task_(task),
        options_(task.options),
        s_(scratch.forward),
        g_(scratch),
        exchange_(task.shape, task.memory),
        checkpoint_(task.options, task.shape),
        chunks_(task.options, FirstPlace(), task.memory.tokens),
        blocks_(task.options, task.shape, task.memory, task.team, scratch.forward),
        tokens_(task.options, task.shape, scratch.forward, blocks_,
                {PlaceOf(s_.state.weights), PlaceOf(s_.state.anchors), PlaceOf(s_.state.second),
                 PlaceOf(s_.state.squares)}),
        gradient_(task, scratch, blocks_, tokens_) {}

  void Run() {
    blocks_.Begin(kBlock);
    SetSumsZero();
    LoadFinal();
    if (chunks_.count() > 0) {
      Load();
      Back(0, chunks_.count(), 0, g_.checkpoints);
    }
    StoreInitial();
  }

 private:
  std::int64_t FirstPlace() const {
    return task_.memory.position == nullptr ? 0 : *task_.memory.position;
  }

  void SetSumsZero() const {
    const std::int64_t channels = task_.shape.value_dim;
    std::fill(g_.ln_weight, g_.ln_weight + channels, T(0));
    std::fill(g_.ln_bias, g_.ln_bias + channels, T(0));
    if (options_.inverse_rows) {
      std::fill(g_.row_bias, g_.row_bias + options_.mini_batch, T(0));
    }
  }

  /// Gradients of the final state. Where a mini-batch has ended W_bar is A and, plainly, B is 0.
  void LoadFinal() const {
    StateParameters from = *task_.gradients.final;
    const std::int64_t tokens = task_.memory.tokens;
    const bool ended = tokens > 0 && (FirstPlace() + tokens) % options_.mini_batch == 0;
    if (options_.plain() && ended) from.second = {};
    exchange_.Load(from, g_.state);
    if (options_.has_anchors() && ended) gradient_.FoldAnchors();
  }

  void StoreInitial() const {
    exchange_.Store(g_.state, *task_.gradients.initial);
    const auto store = [](const Rows& rows, const T* from, std::int64_t count) {
      if (rows) sn::StoreRow(from, 0, 0, count, rows);
    };
    store(task_.gradients.ln_weight, g_.ln_weight, task_.shape.value_dim);
    store(task_.gradients.ln_bias, g_.ln_bias, task_.shape.value_dim);
    store(task_.gradients.row_bias, g_.row_bias, options_.mini_batch);
  }

  void Load() const { exchange_.Load(*task_.memory.call, s_.state); }

  /// Chunks first .. end, before which the parameters stand; `at`: checkpoints of this level and
  /// those below.
  void Back(std::int64_t first, std::int64_t end, int level, T* at) {
    if (level == task_.levels.count) return gradient_.Run(chunks_[first]);
    const std::int64_t piece = task_.levels.pieces[level];
    const std::int64_t pieces = common::CeilDiv(end - first, piece);
    const bool saved = level == 0 && task_.saved != nullptr;
    const std::int64_t kept = task_.levels.Kept(level, MostChunks(options_, task_.longest));
    T* const below = saved ? at : at + kept * checkpoint_.Numbers();
    for (std::int64_t i = 0; !saved && i + 1 < pieces; ++i) {
      const std::int64_t begin = first + i * piece;
      if (begin > 0) checkpoint_.Save(s_.state, at + i * checkpoint_.Numbers());
      for (std::int64_t p = begin; p < begin + piece; ++p) GoOn(chunks_[p]);
    }
    for (std::int64_t i = pieces; i-- > 0;) {
      const std::int64_t begin = first + i * piece;
      if (begin == 0) {
        Load();
      } else if (saved) {
        checkpoint_.Restore(Saved(i), s_.state);
      } else if (i + 1 < pieces) {
        checkpoint_.Restore(at + i * checkpoint_.Numbers(), s_.state);
      }
      Back(begin, std::min(begin + piece, end), level + 1, below);
    }
  }

  Place<T> PlaceOf(const Weights<T>& blocks) const {
    return {&task_.shape, nullptr, nullptr, blocks};
  }

  T* Saved(std::int64_t piece) const {
    T* const first = reinterpret_cast<T*>(const_cast<std::byte*>(task_.saved));
    return first + (piece - 1) * checkpoint_.Numbers();
  }

  /// Runs a chunk forwards, which leaves the parameters behind it.
  void GoOn(const Chunk& chunk) const {
    const bool single = chunk.count == 1;
    if (single) {
      blocks_.LoadPairs(chunk);
      tokens_.FindGradient(chunk.has_anchor);
    } else {
      blocks_.LoadRates(chunk);
      FindCoefficients(options_, chunk, s_.rates, s_.coefficients);
      blocks_.FindGradients(chunk, chunk.has_anchor ? s_.state.anchors : s_.state.weights);
    }
    if (options_.has_anchors() && !chunk.has_anchor && !chunk.ends) {
      std::copy(s_.state.weights.data(), s_.state.weights.data() + s_.state.weights.numbers(),
                s_.state.anchors.data());
    }
    single ? tokens_.Write(chunk) : blocks_.Update(chunk);
  }

  const GradientTask& task_;
  const Options& options_;
  const Scratch<T>& s_;
  const GradientScratch<T>& g_;
  Exchange<T> exchange_;
  Checkpoint<T> checkpoint_;
  Chunks chunks_;
  BlockKernel<T> blocks_;
  TokenKernel<T> tokens_;
  ChunkGradient<T> gradient_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_GRADIENT_INL_H_
