/// From a recipe to the options of the least-squares engine.
#pragma once

#include "src/engines/least_squares/least_squares.h"
#include "ttr/dtype.h"
#include "ttr/inputs.h"
#include "ttr/recipe.h"

namespace ttr {

least_squares::Options LeastSquaresOptions(const Recipe& recipe, const Dims& dims);

least_squares::Sizes LeastSquaresSizes(const Recipe& recipe, const Dims& dims, DType state);

}  // namespace ttr
