/// From tensors to what one memory sees.
#pragma once

#include "src/definition/memory.h"

namespace ttr::definition {

/// Everything about one memory that all its tokens share.
Constants GatherConstants(const Recipe& recipe, const Dims& dims, const Inputs& inputs,
                          std::int64_t head);

/// The token at row t of batch b, before phi: q, k normalised where the recipe says so.
Token GatherToken(const Constants& constants, const Inputs& inputs, std::int64_t b, std::int64_t t);

/// The sizes of the steps of gradient descent at row t of batch b; nothing where they are no input.
Vector GatherSteps(const Constants& constants, const Inputs& inputs, std::int64_t b,
                   std::int64_t t);

/// The momentum at row t of batch b; 0 where there is none.
double GatherMomentum(const Constants& constants, const Inputs& inputs, std::int64_t b,
                      std::int64_t t);

/// What query head j at row t of batch b adds to the logarithms of weights: the input.
Vector GatherPairBias(const Inputs& inputs, std::int64_t b, std::int64_t t, std::int64_t j);
/// What the query at this place adds to those of pairs 0 .. count: the recipe's function.
Vector PairBiasAt(const Weights& weights, std::int64_t place, std::int64_t count);

/// Query head j at row t of batch b, before phi: normalised, not yet scaled.
Vector GatherQuery(const Constants& constants, const Inputs& inputs, std::int64_t b, std::int64_t t,
                   std::int64_t j);

}  // namespace ttr::definition
