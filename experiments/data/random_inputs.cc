#include "experiments/data/random_inputs.h"

#include <cmath>
#include <functional>
#include <numbers>
#include <string_view>

#include "ttr/util/random.h"

namespace ttr::experiments {
namespace {

std::int64_t SizeOf(Axis axis, const Recipe& recipe, const Dims& dims) {
  switch (axis) {
    case Axis::kBatch: return dims.batch;
    case Axis::kTokens: return dims.tokens;
    case Axis::kRows: {
      const bool several = recipe.optimizer.solver == Solver::kSgd;
      return dims.tokens * (several ? recipe.optimizer.steps : 1);
    }
    case Axis::kQueryHeads: return dims.query_heads;
    case Axis::kKeyHeads: return dims.key_heads;
    case Axis::kValueHeads: return dims.value_heads;
    case Axis::kHeads: return dims.heads;
    case Axis::kKeyDim: return dims.key_dim;
    case Axis::kValueDim: return dims.value_dim;
    case Axis::kPhiDim: return PhiDim(recipe, dims);
    case Axis::kFeatures: return dims.features;
    case Axis::kOne: return 1;
    case Axis::kMiniBatch: return recipe.optimizer.mini_batch;
    case Axis::kHidden: return dims.hidden;
    case Axis::kStates: return dims.states();
    case Axis::kSequencesPlus1: return dims.sequences + 1;
    case Axis::kPairs: return 0;
  }
  return 0;
}

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
    std::vector<std::int64_t> sizes;
    for (const Axis axis : spec.shapes.front()) sizes.push_back(SizeOf(axis, recipe, dims));
    Tensor tensor(dtype, Shape(std::span<const std::int64_t>(sizes)));
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
