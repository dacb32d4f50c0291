/// Random inputs of meaningful sizes for any recipe: for self-tests, benchmarks and tests.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr::experiments {

struct RandomInputs {
  Inputs inputs;                          // views into `tensors`
  std::map<std::string, Tensor> tensors;  // by name, without cu_seqlens
};

/// Every input that `recipe` takes, the optional ones too if `optional_ones`. Keys have entries of
/// variance 1 / Dk, decays lie between .5 and 1, step sizes and gates between 0 and 1. Equal
/// (seed, recipe, dims) give equal numbers, rounded to `dtype`.
RandomInputs MakeRandomInputs(const Recipe& recipe, const Dims& dims, DType dtype,
                              std::uint64_t seed, bool optional_ones = false);

}  // namespace ttr::experiments
