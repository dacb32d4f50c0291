/// Monomials of the channels of a vector, without the constant.
#pragma once

#include <algorithm>
#include <cstdint>

namespace ttr::local_polynomial {

/// The most monomials that systems of degree 2 or 3 are solved for: those of 21 channels in degree
/// 2, of 9 in degree 3. Degree 1 has no limit.
inline constexpr std::int64_t kMostMonomials = 256;

/// How many of degree 1 .. `degree`, or more than `kMostMonomials`: C(channels + degree, degree)
/// - 1.
constexpr std::int64_t MonomialsOf(std::int64_t channels, std::int64_t degree) {
  if (degree == 1) return channels;
  std::int64_t count = 1;
  for (std::int64_t i = 1; i <= degree && count <= kMostMonomials + 1; ++i) {
    count = count * (channels + i) / i;  // whole after every step
  }
  return count - 1;
}

/// In the order d_a; d_a d_b, a <= b; d_a d_b d_c, a <= b <= c: each beyond the channels is one
/// before it times a channel.
struct Monomials {
  std::int64_t channels = 0, count = 0;
  std::int16_t before[kMostMonomials];
  std::int16_t channel[kMostMonomials];

  Monomials(std::int64_t channel_count, std::int64_t degree)
      : channels(channel_count), count(MonomialsOf(channel_count, degree)) {
    if (degree == 1) return;
    std::int64_t begin = 0, end = channels;  // those of the degree before
    for (std::int64_t a = 0; a < channels; ++a) channel[a] = static_cast<std::int16_t>(a);
    for (std::int64_t p = 2; p <= degree; ++p) {
      std::int64_t next = end;
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t a = channel[i]; a < channels; ++a) {
          before[next] = static_cast<std::int16_t>(i);
          channel[next] = static_cast<std::int16_t>(a);
          ++next;
        }
      }
      begin = end;
      end = next;
    }
  }
};

}  // namespace ttr::local_polynomial
