/// How the tokens and heads of a call make memories: one for every sequence and head.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ttr/tensor.h"

namespace ttr::common {

/// Tokens first .. first + tokens of batch row `batch`.
struct Sequence {
  std::int64_t batch, first, tokens;
};

/// The sequences of tensors [B, T, ...]: the rows of the batch, or where `cu_seqlens` is given what
/// is packed into the only one, as PyTorch packs it.
class Sequences {
 public:
  /// `slots`: the rows of the states where each sequence has its own; empty: its number's.
  Sequences(std::span<const std::int64_t> cu_seqlens, std::int64_t batch, std::int64_t length,
            std::span<const std::int64_t> slots = {})
      : cu_seqlens_(cu_seqlens), slots_(slots), batch_(batch), length_(length) {}

  bool packed() const { return !cu_seqlens_.empty(); }
  std::int64_t count() const {
    return packed() ? static_cast<std::int64_t>(cu_seqlens_.size()) - 1 : batch_;
  }
  /// Tokens of a batch row.
  std::int64_t length() const { return length_; }
  /// Tokens of all sequences.
  std::int64_t tokens() const { return packed() ? length_ : batch_ * length_; }
  /// Tokens of the longest sequence.
  std::int64_t longest() const {
    if (!packed()) return batch_ == 0 ? 0 : length_;
    std::int64_t most = 0;
    for (std::int64_t n = 0; n < count(); ++n) most = std::max(most, (*this)[n].tokens);
    return most;
  }

  Sequence operator[](std::int64_t n) const {
    if (!packed()) return {n, 0, length_};
    const auto i = static_cast<std::size_t>(n);
    return {0, cu_seqlens_[i], cu_seqlens_[i + 1] - cu_seqlens_[i]};
  }

  /// The row of the states that sequence n reads and writes.
  std::int64_t StateRow(std::int64_t n) const {
    return slots_.empty() ? n : slots_[static_cast<std::size_t>(n)];
  }

  /// The place of a sequence's first token among the tokens of all.
  std::int64_t Place(const Sequence& sequence) const {
    return sequence.batch * length_ + sequence.first;
  }

 private:
  std::span<const std::int64_t> cu_seqlens_, slots_;
  std::int64_t batch_, length_;
};

/// The heads of a call. Keys and values have as many as there are memories, or fewer, which several
/// memories share; queries have as many, or fewer, or several for every memory.
struct Heads {
  std::int64_t memories = 1;
  std::int64_t queries = 1;  ///< that read one memory

  Heads() = default;
  Heads(std::int64_t memory_heads, const TensorView& q) : memories(memory_heads) {
    if (q.defined()) queries = std::max<std::int64_t>(1, q.size(2) / memories);
  }

  /// The head of an input [B, T, heads, ...] that memory h reads. (A decode of small states would
  /// feel the division.)
  std::int64_t Of(std::int64_t h, const TensorView& input) const {
    return input.size(2) == memories ? h : h * input.size(2) / memories;
  }
  /// The first query that reads memory h, and the first head of its outputs.
  std::int64_t QueryOf(std::int64_t h, const TensorView& q) const {
    return queries > 1 ? h * queries : Of(h, q);
  }
  std::int64_t OutputOf(std::int64_t h) const { return h * queries; }
};

}  // namespace ttr::common
