/// The sizes of one call and how it is cut into tasks.
#pragma once

#include <cstdint>
#include <span>

#include "src/core/saved_header.h"
#include "src/engines/scan/layout.h"

namespace ttr::scan {

/// Row of head `head` from token `first` of batch `batch`, and from element `column` on.
Rows RowsOf(const TensorView& view, std::int64_t batch, std::int64_t first, std::int64_t head,
            std::int64_t column = 0);

struct Sequence {
  std::int64_t batch, first, tokens;
};

/// States that are kept of so many tokens. A sequence that begins with token `first` of all has its
/// own from KeptStates(first) on: one fewer than Checkpoints(), which is what lies before those of
/// the next.
constexpr std::int64_t SavedStates(std::int64_t tokens) { return tokens / kCheckpoint; }

struct Work {
  const Options& options;
  const Call& call;
  Sizes sizes;
  bool matrix;
  std::int64_t sequences, heads, length, tokens;  // tokens: of all sequences
  std::int64_t columns;                           // of one memory: value_dim, or that of all heads
  std::int64_t parts = 1, part_columns;           // column ranges of one memory

  /// `others`: further per-channel tensors that tasks read or write.
  Work(const Options& options, const Call& call, std::span<const TensorView> others = {});

  /// Vectors whose heads lie next to each other are one long vector.
  void Merge(std::span<const TensorView> others);

  /// Columns are independent: cuts them into ranges of at least 256 bytes where memories alone do
  /// not employ all threads. An output norm needs whole rows.
  void Cut(int threads);

  /// Has a vector one gate, or one importance, for all its channels?
  bool shares_gates() const;

  std::int64_t tasks() const { return sequences * heads * parts; }
  Sequence SequenceOf(std::int64_t n) const;
  /// The head of an input that memory h reads.
  std::int64_t HeadOf(std::int64_t h, const TensorView& input) const {
    return h * input.size(2) / heads;
  }

  Vector VectorOf(std::int64_t task) const;
  Matrix MatrixOf(std::int64_t task) const;

  /// What tells call.kept from any other memory. States of all heads lie side by side,
  /// [state][head][key row][column]; the imaginary parts behind the real ones.
  SavedHeader Note() const;

 private:
  /// The part of call.kept that begins with the first state of a sequence, at this number of it.
  std::byte* SavedAt(const Sequence& sequence, std::int64_t number, bool imaginary) const;
  std::int64_t NumbersOfState() const;
};

}  // namespace ttr::scan
