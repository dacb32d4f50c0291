// A layer beside the definition, however a sequence is cut and whatever vectors there are.
#pragma once

#include <cstdint>

#include "tests/support/calls.h"
#include "ttr/layer.h"

namespace ttr::test {

struct Agreement {
  double outputs;           // the greatest difference
  double state;             // of every entry
  std::int64_t piece = 37;  // tokens of a call, where a sequence is cut
};

// Expects the definition's outputs, statuses and last state of a call: whole and token by token
// under every target, in pieces, by a decoder. The target is the default one afterwards.
void ExpectAgreement(const Layer& layer, const Call& call, const Agreement& within);

}  // namespace ttr::test
