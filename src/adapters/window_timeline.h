/// The pairs of a sequence in one row after the other, of which windows are views.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/adapters/engine.h"
#include "src/core/call_scratch.h"
#include "src/engines/common/queries.h"

namespace ttr {

/// The tokens of one sequence in tensors [B, T, ...] of a call.
struct SequenceRows {
  std::int64_t sequence = 0, row = 0, first = 0, tokens = 0;

  SequenceRows(const EngineCall& call, std::int64_t sequence);
  TensorView Of(const TensorView& view) const;
};

/// [1, T, ...] as [T, 1, ...].
TensorView Turned(const TensorView& view);

/// The pairs of one sequence as windows see them: `before` rows, the latest that the state has,
/// each memory's behind rows without weight, then those of the call, which have to be written.
class WindowTimeline {
 public:
  WindowTimeline(const EngineCall& call, const State& state, const SequenceRows& of,
                 std::int64_t before, std::int64_t tokens, CallScratch& scratch);

  /// Rows before those of the call that its first window begins with.
  static std::int64_t RowsBefore(const EngineCall& call);
  /// Pairs that the state holds for memory h of a sequence.
  static std::int64_t Held(const State& state, std::int64_t sequence, std::int64_t h);

  /// The row that the window of a token begins with.
  std::int64_t RowOf(std::int64_t token) const { return first_ + token; }
  std::int64_t before() const { return before_; }
  std::int64_t rows() const { return before_ + tokens_; }

  /// A state of all rows, of which `before` are held.
  void BindTo(common::QueriedTensors& call) const;

  /// A state of sequences that are a window each: those of tokens first .. first + count of the
  /// call.
  void BindWindows(std::int64_t first, std::int64_t count, const TensorView& lengths,
                   common::QueriedTensors& call) const;

  static std::size_t Bytes(const Recipe& recipe, const Dims& dims);

 private:
  /// The latest pairs that memory h has, behind rows without weight.
  void TakeHeld(const State& state, std::int64_t sequence, std::int64_t h) const;

  std::int64_t window_, heads_;
  std::int64_t before_, tokens_;
  std::int64_t first_;  // row of the first window
  TensorView k_, v_, log_weight_, length_;
};

}  // namespace ttr
