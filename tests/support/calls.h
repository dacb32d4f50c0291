// Calls of layers for tests: random inputs of any recipe, run whole, in pieces, packed.
#pragma once

#include <cstdint>
#include <vector>

#include "experiments/data/random_inputs.h"
#include "ttr/decoder.h"
#include "ttr/layer.h"

namespace ttr::test {

// Two sequences of 11 tokens, 4 memories; 2 key heads and 8 query heads where the recipe has keys;
// Dk = 3, Dv = 4 (5 and 5 where they must be equal).
Dims SmallDims(const Recipe& recipe);

// One sequence for two memories, with heads of keys, values and queries of their own.
Dims TwoMemories(std::int64_t tokens, std::int64_t key_dim, std::int64_t value_dim);

// Inputs of a call, with the memory they lie in.
struct Call {
  Call(const Recipe& recipe, const Dims& dims, DType dtype, std::uint64_t seed,
       bool optional_ones = false);
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Recipe recipe;
  Dims dims;
  experiments::RandomInputs random;
  Inputs inputs;
};

// The inputs of tokens begin .. begin + count of all batch rows; shares memory.
Inputs TokensOf(const Call& call, std::int64_t begin, std::int64_t count);

// Pairs without the room behind them, and zeros behind memories that hold fewer than others.
void TrimPairs(const Recipe& recipe, State& state);

// Every element of a view.
void Fill(const TensorView& view, double x);

// What a call leaves; of kept pairs those that are held, without the room behind them.
struct Result {
  Tensor y;
  Tensor status;
  State state;
};

// Outputs are filled with NaN before the call, so that what is not written shows.
Result RunWhole(const Layer& layer, const Call& call, const CallOptions& options = {});

// `piece` tokens at a time, the state carried; one token goes through Layer::Step.
Result RunInPieces(const Layer& layer, const Call& call, std::int64_t piece,
                   const CallOptions& options = {});
// Token by token through a Decoder; the state is that which it tells at last.
Result RunDecoder(const Layer& layer, const Call& call, const CallOptions& options = {});

// Tokens of batch row 0 only: begin .. begin + count as a sequence of their own, or all of them
// packed into sequences with these bounds.
Result RunTokens(const Layer& layer, const Call& call, std::int64_t begin, std::int64_t count);
Result RunPacked(const Layer& layer, const Call& call, const std::vector<std::int64_t>& bounds);

// The greatest |a - b| over all elements; equal NaNs and infinities count as equal. Shapes must be
// equal (else infinity).
double LargestDifference(const TensorView& a, const TensorView& b);

}  // namespace ttr::test
