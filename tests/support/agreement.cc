#include "tests/support/agreement.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/support/targets.h"

namespace ttr::test {

void ExpectAgreement(const Layer& layer, const Call& call, const Agreement& within) {
  const Result defined = RunWhole(Layer(layer.recipe(), kDefinition), call);
  const auto expect = [&](const Result& got, const std::string& what) {
    EXPECT_LE(LargestDifference(defined.y, got.y), within.outputs) << what;
    EXPECT_EQ(LargestDifference(defined.status, got.status), 0) << what;
    for (const State::Entry& entry : defined.state.entries()) {
      EXPECT_LE(LargestDifference(entry.view, got.state.Get(entry.name)), within.state)
          << what << ", " << entry.name;
    }
  };
  const bool causal = layer.recipe().reading.causal;
  for (const std::string& target : test::Targets()) {
    const test::OnTarget on(target);
    expect(RunWhole(layer, call), "whole, " + target);
    if (causal) expect(RunInPieces(layer, call, 1), "token by token, " + target);
  }
  if (!causal) return;
  expect(RunInPieces(layer, call, within.piece), "in pieces");
  expect(RunDecoder(layer, call), "by a decoder");
}

}  // namespace ttr::test
