// Regressions for tests of least squares: keys of all kinds, and how well each prefix is
// conditioned.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tests/support/calls.h"

namespace ttr::test {

enum class Keys {
  kRandom,
  kCorrelated,  // AR(1), .9
  kSlow,        // AR(1), .999
  kLowRank,     // in a subspace of a third of the dimensions
  kCollinear,   // all along one direction, of changing length
  kRepeated,    // five keys over and over
  kVocabulary,  // words of a vocabulary, the frequent ones again and again
  kSine,        // lags of a sine
};
inline constexpr Keys kAllKeys[] = {Keys::kRandom,     Keys::kCorrelated, Keys::kSlow,
                                    Keys::kLowRank,    Keys::kCollinear,  Keys::kRepeated,
                                    Keys::kVocabulary, Keys::kSine};
std::string_view Name(Keys keys);

// Writes keys of this kind over those of a call.
void FillKeys(Keys keys, std::uint64_t seed, const Call& call);

// One prefix of one memory. What rounding does to an answer M q, M = B (A + R)^-1, is in proportion
// to the condition of A + R and to |M| |q|.
struct Condition {
  double number = 1;  // without what is zero to rounding
  std::int64_t rank = 0;
  double memory = 0;  // |M|_F
};

// The condition of every token and memory, [T][B][H], from the states of the definition. The call
// is float64.
std::vector<Condition> Conditions(const Call& call);

// For every answer, [B][T][heads of y], |phi(q)|, with the 1 of an affine memory.
std::vector<double> QueryLengths(const Call& call);

}  // namespace ttr::test
