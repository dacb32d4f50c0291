// Recipes that engines run and shapes of calls, drawn at random.
#pragma once

#include <algorithm>
#include <cstdint>

#include "src/recipe/validate.h"
#include "tests/support/calls.h"
#include "tests/support/random_recipe.h"
#include "ttr/layer.h"
#include "ttr/util/random.h"

namespace ttr::test {

class Drawn {
 public:
  explicit Drawn(std::uint64_t seed) : recipes_(seed, true), random_(seed, 1) {}

  // The next recipe that an engine runs.
  Recipe Next() {
    for (;;) {
      Recipe recipe = recipes_.Next();
      recipe = NearestValid(recipe);
      // A threshold makes a jump of a last digit.
      if (recipe.optimizer.tolerance > 0) continue;
      // What fades is as ill-conditioned as can be, and so are features that nearly depend on each
      // other; least squares have tests that know how much.
      const bool fades =
          recipe.weights.decay != Decay::kNone && recipe.optimizer.ridge_kind == RidgeKind::kFading;
      const bool depends =
          recipe.function.features != FeatureMap::kNone && recipe.optimizer.ridge == 0;
      if (Layer(recipe).plan().engine == "least_squares" && (fades || depends)) continue;
      if (Layer(recipe).plan().engine != kDefinition) return recipe;
    }
  }

  Dims Shape(const Recipe& recipe, std::int64_t most_tokens, std::int64_t most_channels) {
    Dims dims = SmallDims(recipe);
    const bool square = dims.key_dim == dims.value_dim;
    dims.batch = Draw(2);
    dims.tokens = Draw(most_tokens + 1) - 1;
    dims.value_dim = Draw(most_channels);
    dims.key_dim = square ? dims.value_dim : Draw(most_channels);
    // The definition factors a matrix as large as the monomials are many, for every query.
    if (recipe.function.kind == FunctionClass::kPolynomial && recipe.function.degree > 1) {
      dims.key_dim = std::min<std::int64_t>(dims.key_dim, recipe.function.degree == 2 ? 6 : 4);
    }
    dims.features = Draw(4);
    dims.heads = Draw(3);
    const bool shares = dims.key_heads != dims.query_heads;  // a recipe with queries
    dims.key_heads = shares && Draw(2) == 1 ? 1 : dims.heads;
    dims.value_heads = shares && Draw(2) == 1 ? 1 : dims.heads;
    dims.query_heads = shares ? dims.heads * Draw(2) : dims.heads;
    dims.hidden = recipe.function.expansion * dims.key_dim;
    return dims;
  }

  // 1 to `most`.
  std::int64_t Draw(std::int64_t most) {
    return 1 + static_cast<std::int64_t>(random_.Below(static_cast<std::uint64_t>(most)));
  }

  // Changes the last digits of the inputs.
  void Disturb(const Call& call) {
    for (const InputField& field : InputFields()) {
      const TensorView& view = call.inputs.*field.view;
      if (!view.defined() || view.dtype() != DType::kFloat64) continue;
      for (std::int64_t i = 0; i < view.shape().elements(); ++i) {
        view.as<double>()[i] *= 1 + 1e-13 * (random_.Uniform() - 0.5);
      }
    }
  }

 private:
  RandomRecipes recipes_;
  CounterRandom random_;
};

}  // namespace ttr::test
