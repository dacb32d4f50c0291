#include "experiments/real/recall_reader.h"

#include <algorithm>

#include "ttr/error.h"

namespace ttr::experiments {
namespace {

bool KeepsPairs(const Recipe& recipe) {
  if (recipe.weights.window > 0) return false;
  for (const StateSpec& spec : StateSpecs(recipe)) {
    if (std::find(spec.shape.begin(), spec.shape.end(), Axis::kPairs) != spec.shape.end()) {
      return true;
    }
  }
  return false;
}

std::int64_t Size(Axis axis, std::int64_t tokens, std::int64_t dim) {
  switch (axis) {
    case Axis::kTokens:
    case Axis::kRows: return tokens;
    case Axis::kKeyDim:
    case Axis::kValueDim: return dim;
    default: return 1;
  }
}

// A gate as a tensor full of its constant.
Tensor Filled(const forecasting::ConstantGate& gate, std::int64_t tokens, std::int64_t dim) {
  std::vector<std::int64_t> shape;
  for (const Axis axis : gate.shape) shape.push_back(Size(axis, tokens, dim));
  Tensor tensor(DType::kFloat64, Shape(shape));
  std::ranges::fill(tensor.as<double>(), gate.value);
  return tensor;
}

}  // namespace

RecallReader::RecallReader(const Recipe& recipe, std::int64_t dim, const GateConstants& constants)
    : layer_(recipe),
      dim_(dim),
      gates_(forecasting::ConstantInputs(recipe, constants)),
      before_(recipe.reading.read == Read::kBefore),
      grows_(KeepsPairs(recipe)) {
  // What the recipe asks of these sizes shows now rather than in the text.
  RecallReader probe = *this;
  const std::vector<float> token(static_cast<std::size_t>(3 * dim), 1.f);
  std::vector<float> answer(static_cast<std::size_t>(dim));
  probe.Read(token, answer);
}

void RecallReader::Read(std::span<const float> embeddings, std::span<float> answers) {
  if (layer_.plan().engine != kDefinition) {
    Run<float>(embeddings, answers);
    return;
  }
  const std::vector<double> wide(embeddings.begin(), embeddings.end());
  std::vector<double> read(answers.size());
  Run<double>(wide, read);
  std::ranges::transform(read, answers.begin(), [](double x) { return static_cast<float>(x); });
}

template <class T>
void RecallReader::Run(std::span<const T> embeddings, std::span<T> answers) {
  const std::int64_t tokens = static_cast<std::int64_t>(answers.size()) / dim_;
  // Rows of x from x_{t - late}.
  const auto rows = [&](std::int64_t late) {
    return TensorView::Of(embeddings.data() + (2 - late) * dim_, {1, tokens, 1, dim_});
  };
  if (before_ && !started_) {
    // The pair (x_0 -> x_1), which no question of the first block reads for itself.
    started_ = true;
    std::vector<T> first(embeddings.begin(), embeddings.begin() + dim_);
    first.insert(first.end(), embeddings.begin(), embeddings.begin() + 2 * dim_);
    std::vector<T> ignored(static_cast<std::size_t>(dim_));
    Run<T>(first, ignored);
  }
  started_ = true;
  Inputs inputs{.q = rows(1), .k = rows(before_ ? 1 : 2), .v = rows(before_ ? 0 : 1)};
  std::vector<Tensor> constants;
  for (const forecasting::ConstantGate& gate : gates_) {
    if (gate.is_key) {
      inputs.*gate.view = inputs.k;
    } else {
      inputs.*gate.view = constants.emplace_back(Filled(gate, tokens, dim_)).view();
    }
  }
  bool takes_keys = false;
  for (const InputSpec& spec : InputSpecs(layer_.recipe())) {
    takes_keys = takes_keys || spec.name == "k";
  }
  if (!takes_keys) inputs.k = {};
  layer_.Forward(inputs, state_,
                 {.y = TensorView::Of(answers.data(), {1, tokens, 1, dim_}), .status = {}});
}

}  // namespace ttr::experiments
