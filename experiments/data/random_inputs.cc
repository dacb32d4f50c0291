#include "experiments/data/random_inputs.h"

#include <cmath>
#include <functional>
#include <numbers>
#include <string_view>

#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

/// How an input's numbers are drawn, by its name.
std::function<double(CounterRandom&)> LawOf(std::string_view name, const Dims& dims) {
  const double spread = 1 / std::sqrt(static_cast<double>(dims.key_dim));
  if (name == "log_decay") {
    return [](CounterRandom& r) { return -std::numbers::ln2 * r.Uniform(); };
  }
  if (name == "a") return [](CounterRandom& r) { return -r.Uniform(); };
  if (name == "weight_decay" || name == "momentum") {
    return [](CounterRandom& r) { return 0.5 * r.Uniform(); };
  }
  if (name == "step" || name == "importance" || name == "dt" || name == "erase_gate" ||
      name == "ridge") {
    return [](CounterRandom& r) { return r.Uniform(); };
  }
  if (name == "bandwidth") return [](CounterRandom& r) { return 1 + r.Uniform(); };
  if (name == "v" || name == "v_im" || name == "log_importance" || name == "phase" ||
      name == "ln_weight" || name == "ln_bias") {
    return [](CounterRandom& r) { return r.Normal(); };
  }
  if (name == "row_bias") return [](CounterRandom& r) { return 0.1 * r.Normal(); };
  return [spread](CounterRandom& r) { return spread * r.Normal(); };  // keys, queries, directions
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
    const auto law = LawOf(spec.name, dims);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      StoreElement(tensor.data(), dtype, i, law(numbers));
    }
    random.inputs.*spec.view = tensor.view();
    random.tensors.emplace(spec.name, std::move(tensor));
  }
  return random;
}

}  // namespace ttr::experiments
