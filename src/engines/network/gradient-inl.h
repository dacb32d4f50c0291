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
#include "src/engines/network/exchange-inl.h"
#include "src/engines/network/part_gradient-inl.h"
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
        parts_(task.options, FirstPlace(), task.memory.tokens),
        blocks_(task.options, task.shape, task.memory, task.team, scratch.forward),
        tokens_(task.options, task.shape, scratch.forward, blocks_,
                {PlaceOf(s_.a), PlaceOf(s_.anchor), PlaceOf(s_.b), PlaceOf(s_.squares)}),
        gradient_(task, scratch, blocks_, tokens_) {}

  void Run() {
    blocks_.Begin(kBlock);
    SetSumsZero();
    LoadFinal();
    if (parts_.count() > 0) {
      Load();
      Back(0, parts_.count(), 0, g_.checkpoints);
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
    const StateParameters& from = *task_.gradients.final;
    const std::int64_t tokens = task_.memory.tokens;
    const bool ended = tokens > 0 && (FirstPlace() + tokens) % options_.mini_batch == 0;
    exchange_.Load(from.weights, g_.a);
    if (options_.adapts()) exchange_.Load(from.squares, g_.squares);
    if (options_.has_second()) {
      exchange_.Load(options_.plain() && ended ? Parameters() : from.second, g_.b);
    }
    if (!options_.has_anchors()) return;
    exchange_.Load(from.anchors, g_.anchor);
    if (!ended) return;
    T* const anchor = g_.anchor.data();
    AddRow(g_.anchor.numbers(), static_cast<const T*>(anchor), g_.a.data());
    std::fill(anchor, anchor + g_.anchor.numbers(), T(0));
  }

  void StoreInitial() const {
    const StateParameters& to = *task_.gradients.initial;
    exchange_.Store(g_.a, to.weights);
    if (options_.adapts()) exchange_.Store(g_.squares, to.squares);
    if (options_.has_second()) exchange_.Store(g_.b, to.second);
    if (options_.has_anchors()) exchange_.Store(g_.anchor, to.anchors);
    const auto store = [](const Rows& rows, const T* from, std::int64_t count) {
      if (rows) sn::StoreRow(from, 0, 0, count, rows);
    };
    store(task_.gradients.ln_weight, g_.ln_weight, task_.shape.value_dim);
    store(task_.gradients.ln_bias, g_.ln_bias, task_.shape.value_dim);
    store(task_.gradients.row_bias, g_.row_bias, options_.mini_batch);
  }

  void Load() const {
    const Call& call = *task_.memory.call;
    exchange_.Load(call.weights, s_.a);
    if (options_.adapts()) exchange_.Load(call.squares, s_.squares);
    if (options_.has_second()) exchange_.Load(call.second, s_.b);
    if (options_.has_anchors()) exchange_.Load(call.anchors, s_.anchor);
  }

  /// Parts first .. end, before which the parameters stand; `at`: checkpoints of this level and
  /// those below.
  void Back(std::int64_t first, std::int64_t end, int level, T* at) {
    if (level == task_.levels.count) return gradient_.Run(parts_[first]);
    const std::int64_t piece = task_.levels.pieces[level];
    const std::int64_t pieces = common::CeilDiv(end - first, piece);
    const bool saved = level == 0 && task_.saved != nullptr;
    const std::int64_t kept = task_.levels.Kept(level, MostParts(options_, task_.longest));
    T* const below = saved ? at : at + kept * checkpoint_.Numbers();
    for (std::int64_t i = 0; !saved && i + 1 < pieces; ++i) {
      const std::int64_t begin = first + i * piece;
      if (begin > 0) checkpoint_.Save(s_, at + i * checkpoint_.Numbers());
      for (std::int64_t p = begin; p < begin + piece; ++p) GoOn(parts_[p]);
    }
    for (std::int64_t i = pieces; i-- > 0;) {
      const std::int64_t begin = first + i * piece;
      if (begin == 0) {
        Load();
      } else if (saved) {
        checkpoint_.Restore(Saved(i), s_);
      } else if (i + 1 < pieces) {
        checkpoint_.Restore(at + i * checkpoint_.Numbers(), s_);
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

  /// Runs a part forwards, which leaves the parameters behind it.
  void GoOn(const Part& part) const {
    const bool single = part.count == 1;
    if (single) {
      blocks_.LoadPairs(part);
      tokens_.FindGradient(part.has_anchor);
    } else {
      blocks_.LoadRates(part);
      FindCoefficients(options_, part, s_.rates, s_.coefficients);
      blocks_.FindGradients(part, part.has_anchor ? s_.anchor : s_.a);
    }
    if (options_.has_anchors() && !part.has_anchor && !part.ends) {
      std::copy(s_.a.data(), s_.a.data() + s_.a.numbers(), s_.anchor.data());
    }
    single ? tokens_.Write(part) : blocks_.Update(part);
  }

  const GradientTask& task_;
  const Options& options_;
  const Scratch<T>& s_;
  const GradientScratch<T>& g_;
  Exchange<T> exchange_;
  Checkpoint<T> checkpoint_;
  Parts parts_;
  BlockKernel<T> blocks_;
  TokenKernel<T> tokens_;
  PartGradient<T> gradient_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::network
HWY_AFTER_NAMESPACE();

#endif  // TTR_NETWORK_GRADIENT_INL_H_
