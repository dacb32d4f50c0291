/// The scratch of tokens that each have a system of their own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/engines/least_squares/layout.h"
#include "src/linalg/interleaved.h"

namespace ttr::least_squares {

/// Tokens of one lane, of which each is a round: the more, the less it costs to find the matrices
/// that lanes begin with.
inline constexpr std::int64_t kMostRounds = 16;

template <class T>
struct SystemsScratch {
  std::int64_t keys_unit, stride, slots, rights;
  // Rows: the keys of a block of tokens, times sqrt(w), and its right-hand sides.
  T *keys, *right;
  // Of every token: its decay, and how much of it is left as its lane ends.
  T *decay, *left;
  bool* regularised;
  // A few rows of the matrices that lanes begin with, and those of their keys.
  T *strips, *strip_keys;
  std::int64_t strip_stride;
  // Interleaved: H, L, the reciprocals of its diagonal, a token's key and right-hand sides.
  T *h, *l, *inverses, *key, *sides;
  // Vectors: the lanes' decay, |H|_F, and which of them are regular.
  T *lane_decay, *norm, *regular;
  std::size_t bytes;

  /// `most_rights`: right-hand sides of a token.
  SystemsScratch(const Sizes& sizes, std::int64_t most_rights, std::byte* memory) {
    constexpr std::int64_t kSystems = linalg::kMostSystems<T>;
    keys_unit = RoundUp(sizes.key_dim, kUnit);
    stride = StrideOf<T>(keys_unit);
    strip_stride = stride;
    rights = most_rights;
    slots = RoundUp(std::min(sizes.tokens + kSystems, kSystems * kMostRounds), kUnit);
    std::int64_t used = 0;
    const auto take = [&](std::int64_t count) {
      T* const at = memory == nullptr ? nullptr : reinterpret_cast<T*>(memory) + used;
      used += RoundUp(count, static_cast<std::int64_t>(kAlignment / sizeof(T)));
      return at;
    };
    keys = take(slots * stride);
    right = take((slots * rights + kUnit) * stride);  // readers take whole units of rows
    decay = take(slots);
    left = take(slots);
    regularised = reinterpret_cast<bool*>(take(slots));
    strips = take(kSystems * kUnit * strip_stride);
    strip_keys = take(slots * kUnit);
    const std::int64_t matrix = linalg::VectorsBefore(linalg::PanelsOf(sizes.key_dim));
    h = take(matrix * kSystems);
    l = take(matrix * kSystems);
    inverses = take(keys_unit * kSystems);
    key = take(keys_unit * kSystems);
    sides = take(rights * keys_unit * kSystems);
    lane_decay = take(kSystems);
    norm = take(kSystems);
    regular = take(kSystems);
    bytes = static_cast<std::size_t>(used) * sizeof(T);
  }
};

/// Bytes of it that a worker needs.
template <class T>
std::size_t SystemsBytes(const Options& options, const Sizes& sizes) {
  if (!options.own_systems() || !options.causal || sizes.tokens < 2) return 0;
  return SystemsScratch<T>(sizes, sizes.queries, nullptr).bytes;
}

}  // namespace ttr::least_squares
