/// Parameters before some chunks of a sequence, from which the backward pass finds the others anew;
/// and where Forward saves them for it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/network/chunks.h"
#include "src/engines/network/task.h"

namespace ttr::network {

/// The sets of a checkpoint, one behind the other. Before a chunk where a mini-batch begins there
/// is no anchor and, plainly, no sum of gradients; the first chunk begins with the state of the
/// call.
template <class T>
struct Checkpoint {
  std::int64_t numbers = 0;  ///< of one set
  bool second = false, anchor = false, squares = false;

  Checkpoint(const Options& options, const Shape& shape) {
    ScratchLayout nothing(nullptr);
    numbers = common::RoundUp(Weights<T>(shape, false, nothing).numbers(), common::kLine<T>);
    const bool several = options.mini_batch > kBlock;  // chunks of a mini-batch
    second = options.has_second() && (options.momentum || several);
    anchor = options.has_anchors() && several;
    squares = options.adapts();
  }
  std::int64_t Numbers() const {
    return numbers * (1 + (second ? 1 : 0) + (anchor ? 1 : 0) + (squares ? 1 : 0));
  }

  void Save(const StateBlocks<T>& from, T* to) const { Move(from, to, true); }
  void Restore(T* from, const StateBlocks<T>& to) const { Move(to, from, false); }

 private:
  void Move(const StateBlocks<T>& state, T* at, bool save) const {
    const auto copy = [&](const Weights<T>& weights) {
      T* const data = weights.data();
      save ? std::copy(data, data + weights.numbers(), at)
           : std::copy(at, at + weights.numbers(), data);
      at += numbers;
    };
    copy(state.weights);
    if (second) copy(state.second);
    if (anchor) copy(state.anchors);
    if (squares) copy(state.squares);
  }
};

/// How a sequence is cut, again and again, until a chunk is left: every level keeps a checkpoint a
/// piece. With n chunks two levels keep 2 sqrt(n) of them and find weights once more, three
/// 3 n^(1/3), and twice.
struct Levels {
  static constexpr int kMost = 4;
  int count = 1;
  std::int64_t pieces[kMost] = {1, 1, 1, 1};  ///< chunks of a piece at every level; the last has 1

  /// As few levels as keep no more than four times what the numbers of q, k and v are; one, which
  /// keeps all, where that is below two and a half times.
  static Levels Of(std::int64_t chunks, std::int64_t checkpoint, std::int64_t inputs) {
    Levels levels;
    const auto n = static_cast<double>(std::max<std::int64_t>(chunks, 1));
    for (int count = 1; count <= kMost; ++count) {
      const double fan = std::pow(n, 1.0 / count);
      levels.count = count;
      double room = 0;
      double piece = n;
      for (int i = 0; i < count; ++i) {
        room += std::ceil(fan);
        piece = i + 1 == count ? 1 : std::ceil(piece / fan);
        levels.pieces[i] = static_cast<std::int64_t>(piece);
      }
      const double most = (count == 1 ? 2.5 : 4) * static_cast<double>(inputs);
      if (room * static_cast<double>(checkpoint) <= most) break;
    }
    return levels;
  }

  /// Checkpoints at a level, of a piece of the level above or of `chunks`.
  std::int64_t Kept(int level, std::int64_t chunks) const {
    const std::int64_t of = level == 0 ? chunks : pieces[level - 1];
    return common::CeilDiv(of, pieces[level]);
  }
};

/// Chunks of a sequence of so many tokens, at the most, wherever it begins.
inline std::int64_t MostChunks(const Options& options, std::int64_t tokens) {
  const std::int64_t unit = std::min(options.mini_batch, kBlock);
  return tokens / unit + (options.mini_batch > kBlock ? tokens / options.mini_batch : 0) + 3;
}

template <class T>
Levels LevelsOf(const Options& options, const Shape& shape, std::int64_t tokens) {
  return Levels::Of(MostChunks(options, tokens), Checkpoint<T>(options, shape).Numbers(),
                    tokens * (2 * shape.key_dim + shape.value_dim));
}

/// The layout of Call::saved: [sequence][memory][checkpoint], those of the first level but for the
/// first, which is the state. A sequence has a place by its first token among those of all.
struct SavedWeights {
  std::span<std::byte> memory;
  std::int64_t bytes = 0;    ///< of a checkpoint
  std::int64_t spacing = 1;  ///< chunks between two of them
  std::int64_t heads = 1;
  const Options& options;

  /// Checkpoints before sequence `n`, which begins with token `first` of all.
  std::int64_t Before(std::int64_t first, std::int64_t n) const {
    return (MostChunks(options, first) - 3) / spacing + 4 * n;
  }
  std::size_t Bytes(std::int64_t tokens, std::int64_t sequences) const {
    return static_cast<std::size_t>(Before(tokens, sequences) * heads * bytes);
  }
  /// Null where nothing is saved. `room`: of a memory of this sequence.
  std::byte* Of(std::int64_t first, std::int64_t n, std::int64_t tokens, std::int64_t head) const {
    if (memory.empty()) return nullptr;
    const std::int64_t room = Before(first + tokens, n + 1) - Before(first, n);
    return memory.data() + (Before(first, n) * heads + head * room) * bytes;
  }
};

}  // namespace ttr::network
