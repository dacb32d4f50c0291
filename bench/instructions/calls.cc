// Calls a layer some times on random inputs, for whoever counts the instructions of a call:
//   ttr_calls RECIPE D TOKENS HEADS CALLS forward | backward | products
// `products`: forward with products of bfloat16. One line: the target, the useful floating-point
// operations of a token and memory, and whether there are such products.
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <vector>

#include "experiments/data/random_inputs.h"
#include "ttr/executor.h"
#include "ttr/layer.h"
#include "ttr/target.h"
#include "ttr/zoo.h"

namespace {

using namespace ttr;

void Forward(const Layer& layer, const Inputs& inputs, const Outputs& outputs, int calls) {
  for (int call = 0; call < calls; ++call) {
    State state;
    layer.Forward(inputs, state, outputs,
                  {.executor = &SequentialExecutor(),
                   .bfloat16_products = inputs.k.dtype() == DType::kBFloat16});
  }
}

// Forward, which saves, and backward.
void Backward(const Layer& layer, const experiments::RandomInputs& random, const Dims& dims,
              const Tensor& y, int calls) {
  std::vector<Tensor> gradients;
  Inputs dinputs;
  for (const InputField& field : InputFields()) {
    const TensorView& view = random.inputs.*field.view;
    if (!view.defined() || !IsFloating(view.dtype())) continue;
    gradients.emplace_back(view.dtype(), view.shape());
    dinputs.*field.view = gradients.back();
  }
  std::vector<std::byte> memory(layer.SavedBytes(dims) + 64);
  const auto first = reinterpret_cast<std::uintptr_t>(memory.data());
  const CallOptions options{
      .executor = &SequentialExecutor(),
      .saved = std::span(memory).subspan(64 - first % 64, memory.size() - 64)};
  const Tensor dy = Tensor::Copy(y);
  for (int call = 0; call < calls; ++call) {
    State state, dinitial;
    layer.Forward(random.inputs, state, {.y = y}, options);
    layer.Backward(random.inputs, {}, dy, {}, dinputs, dinitial, options);
  }
}

}  // namespace

int main(int count, char** words) {
  if (count != 7) {
    std::cerr << "usage: ttr_calls RECIPE D TOKENS HEADS CALLS forward | backward | products\n";
    return 2;
  }
  const Layer layer(ParseRecipe(words[1]));
  Dims dims;
  dims.key_dim = dims.value_dim = dims.features = std::atoll(words[2]);
  dims.tokens = std::atoll(words[3]);
  dims.heads = dims.query_heads = dims.key_heads = dims.value_heads = std::atoll(words[4]);
  dims.hidden = layer.recipe().function.expansion * dims.key_dim;
  const int calls = std::atoi(words[5]);
  const bool backward = std::string_view(words[6]) == "backward";
  const DType dtype = std::string_view(words[6]) == "products" ? DType::kBFloat16 : DType::kFloat32;
  const auto random = experiments::MakeRandomInputs(layer.recipe(), dims, dtype, 1);
  const Tensor y(dtype, {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim});
  if (backward) {
    Backward(layer, random, dims, y, calls);
  } else {
    Forward(layer, random.inputs, {.y = y}, calls);
  }
  const double flops = EstimateCost(layer.recipe(), layer.plan(), dims).flops_per_token;
  std::cout << ChosenTarget() << " " << (backward ? 3 * flops : flops) << " "
            << layer.HasBFloat16Products() << "\n";
}
