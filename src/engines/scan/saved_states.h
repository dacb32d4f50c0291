/// States between the tokens of a sequence, every kCheckpoint of them, from which the backward pass
/// finds the others anew; and where Forward saves them for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/common/sequences.h"
#include "src/engines/scan/scan.h"

namespace ttr::scan {

/// Tokens between states that are saved, and of a block that the backward pass takes together.
inline constexpr std::int64_t kCheckpoint = 32;

/// Blocks of so many tokens.
constexpr std::int64_t BlocksOf(std::int64_t tokens) {
  return (tokens + kCheckpoint - 1) / kCheckpoint;
}

/// The layout of Call::saved: [state][head][key row][column], of all heads side by side; where a
/// memory is complex all real parts, then all imaginary ones. The state before token t of a
/// sequence (t = kCheckpoint, 2 kCheckpoint, ...) has a place by the token's number among those of
/// all sequences, so that a sequence has at least as many places as states.
struct SavedStates {
  std::span<std::byte> memory;
  std::int64_t width = 0;   ///< numbers of one state, all heads
  std::int64_t tokens = 0;  ///< of all sequences
  DType dtype = DType::kFloat32;
  bool complex = false;

  static constexpr std::int64_t Count(std::int64_t tokens) { return tokens / kCheckpoint; }

  std::size_t Bytes() const {
    return static_cast<std::size_t>((complex ? 2 : 1) * Count(tokens) * width) * SizeOf(dtype);
  }

  /// Number `at` of the first saved state of a sequence that begins with token `first` of all; null
  /// where nothing is saved.
  std::byte* At(std::int64_t first, std::int64_t at, bool imaginary) const {
    if (memory.empty()) return nullptr;
    const std::int64_t states = Count(first) + (imaginary ? Count(tokens) : 0);
    return memory.data() + (states * width + at) * static_cast<std::int64_t>(SizeOf(dtype));
  }
};

}  // namespace ttr::scan
