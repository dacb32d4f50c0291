#include "experiments/data/random_inputs.h"

#include <cmath>
#include <numbers>

#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

double Drawn(Typical typical, const Dims& dims, CounterRandom& random) {
  switch (typical) {
    case Typical::kNormal: return random.Normal();
    case Typical::kKeys: return 1 / std::sqrt(static_cast<double>(dims.key_dim)) * random.Normal();
    case Typical::kSmall: return 0.1 * random.Normal();
    case Typical::kUnit: return random.Uniform();
    case Typical::kHalf: return 0.5 * random.Uniform();
    case Typical::kOneUp: return 1 + random.Uniform();
    case Typical::kMinus: return -random.Uniform();
    case Typical::kHalving: return -std::numbers::ln2 * random.Uniform();
  }
  return 0;
}

}  // namespace

RandomInputs MakeRandomInputs(const Recipe& recipe, const Dims& dims, DType dtype,
                              std::uint64_t seed, bool optional_ones) {
  RandomInputs random;
  std::uint64_t stream = 0;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    ++stream;
    if (spec.name == "cu_seqlens" || (!spec.required && !optional_ones)) continue;
    Tensor tensor(dtype, InputShape(spec, recipe, dims));
    CounterRandom numbers(seed, stream);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      StoreElement(tensor.data(), dtype, i, Drawn(spec.typical, dims, numbers));
    }
    random.inputs.*spec.view = tensor.view();
    random.tensors.emplace(spec.name, std::move(tensor));
  }
  return random;
}

}  // namespace ttr::experiments
