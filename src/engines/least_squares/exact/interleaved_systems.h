/// The memory of systems that are solved side by side, one of every token.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/engines/least_squares/scratch.h"
#include "src/linalg/interleaved.h"

namespace ttr::least_squares {

/// Tokens of one lane, of which each is a round: the more, the less it costs to find the matrices
/// that lanes begin with.
inline constexpr std::int64_t kMostRounds = 16;

template <class T>
struct InterleavedScratch {
  std::int64_t keys_unit, slots, rights;
  // Rows: the keys of a block of tokens, times sqrt(w), and its right-hand sides.
  Block<T> keys, right;
  // Numbers of every token: its decay, how much of it is left as its lane ends, and (found by
  // InterleavedSystems) whether its system is singular.
  T *decay, *left;
  bool* regularised;
  // A few rows of the matrices that lanes begin with, and those of their keys.
  Block<T> strips;
  T* strip_keys;
  // Interleaved: H, L, the reciprocals of its diagonal, a token's key and right-hand sides.
  T *h, *l, *inverses, *key, *sides;
  // Vectors: the lanes' decay, |H|_F, and which of them are regular.
  T *lane_decay, *norm, *regular;

  /// `most_rights`: right-hand sides of a token.
  InterleavedScratch(const Sizes& sizes, std::int64_t most_rights, ScratchLayout& layout) {
    constexpr std::int64_t kSystems = linalg::kMostSystems<T>;
    keys_unit = RoundUp(sizes.key_dim, kUnit);
    rights = most_rights;
    slots = RoundUp(std::min(sizes.tokens + kSystems, kSystems * kMostRounds), kUnit);
    keys = TakeBlock<T>(layout, slots, keys_unit);
    right = TakeBlock<T>(layout, slots * rights + kUnit,
                         keys_unit);  // readers take whole units of rows
    layout.Take<T>(slots, {&decay, &left});
    regularised = layout.Take<bool>(slots);
    strips = TakeBlock<T>(layout, kSystems * kUnit, keys_unit);
    strip_keys = layout.Take<T>(slots * kUnit);
    const std::int64_t matrix = linalg::VectorsBefore(linalg::PanelsOf(sizes.key_dim));
    layout.Take<T>(matrix * kSystems, {&h, &l});
    layout.Take<T>(keys_unit * kSystems, {&inverses, &key});
    sides = layout.Take<T>(rights * keys_unit * kSystems);
    layout.Take<T>(kSystems, {&lane_decay, &norm, &regular});
  }
};

/// Does a worker need it?
inline bool HasOwnSystems(const Options& options, const Sizes& sizes) {
  return options.own_systems() && options.causal && sizes.tokens > 1;
}

}  // namespace ttr::least_squares
