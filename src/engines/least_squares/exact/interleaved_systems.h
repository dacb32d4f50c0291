/// The memory of systems that are solved side by side, one of every token.
#pragma once

#include <algorithm>
#include <cstddef>
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
  // Of every token: its decay, how much of it is left as its lane ends, and (found by
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
  std::size_t bytes;

  /// `most_rights`: right-hand sides of a token.
  InterleavedScratch(const Sizes& sizes, std::int64_t most_rights, std::byte* memory) {
    constexpr std::int64_t kSystems = linalg::kMostSystems<T>;
    keys_unit = RoundUp(sizes.key_dim, kUnit);
    rights = most_rights;
    slots = RoundUp(std::min(sizes.tokens + kSystems, kSystems * kMostRounds), kUnit);
    Arena arena(memory);
    keys = arena.Rows<T>(slots, keys_unit);
    right = arena.Rows<T>(slots * rights + kUnit, keys_unit);  // readers take whole units of rows
    for (T** const numbers : {&decay, &left}) *numbers = arena.Take<T>(slots);
    regularised = arena.Take<bool>(slots);
    strips = arena.Rows<T>(kSystems * kUnit, keys_unit);
    strip_keys = arena.Take<T>(slots * kUnit);
    const std::int64_t matrix = linalg::VectorsBefore(linalg::PanelsOf(sizes.key_dim));
    for (T** const matrices : {&h, &l}) *matrices = arena.Take<T>(matrix * kSystems);
    for (T** const vectors : {&inverses, &key}) *vectors = arena.Take<T>(keys_unit * kSystems);
    sides = arena.Take<T>(rights * keys_unit * kSystems);
    for (T** const vector : {&lane_decay, &norm, &regular}) *vector = arena.Take<T>(kSystems);
    bytes = arena.bytes();
  }
};

/// Bytes of it that a worker needs.
template <class T>
std::size_t OwnSystemsBytes(const Options& options, const Sizes& sizes) {
  if (!options.own_systems() || !options.causal || sizes.tokens < 2) return 0;
  return InterleavedScratch<T>(sizes, sizes.queries, nullptr).bytes;
}

}  // namespace ttr::least_squares
