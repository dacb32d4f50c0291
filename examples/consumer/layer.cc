// A layer from its text: a prompt, its gradients, then tokens one by one.
#include <cmath>
#include <iostream>
#include <vector>

#include "ttr/ttr.h"

using ttr::DType;
using ttr::Tensor;

// Numbers of some pattern in [-1, 1].
Tensor Wave(const ttr::Shape& shape, double speed) {
  Tensor tensor(DType::kFloat32, shape);
  double angle = 0;
  for (float& x : tensor.as<float>()) x = static_cast<float>(std::sin(angle += speed));
  return tensor;
}

int main() {
  // A name of the zoo, with changes in braces. Planning happens once; a layer is shared by threads.
  const ttr::Layer layer("gated_deltanet{normalise_qk: true}");
  std::cout << ttr::ToString(layer.recipe()) << "\nruns on " << layer.plan().engine << "\n";

  // Tensors are [batch, tokens, heads, dim]; gates [batch, tokens, heads]. Any memory can be seen
  // as one: ttr::TensorView::Of(pointer, shape), with strides where it has some.
  constexpr std::int64_t kBatch = 1, kTokens = 128, kHeads = 4, kDim = 32;
  const ttr::Shape rows{kBatch, kTokens, kHeads, kDim}, gates{kBatch, kTokens, kHeads};
  const Tensor q = Wave(rows, .3), k = Wave(rows, .7), v = Wave(rows, 1.1);
  Tensor log_decay(DType::kFloat32, gates), step(DType::kFloat32, gates);
  for (float& g : log_decay.as<float>()) g = -.01f;
  for (float& b : step.as<float>()) b = .5f;
  const ttr::Inputs inputs{.q = q, .k = k, .v = v, .log_decay = log_decay, .step = step};

  // Forward: an empty state is the recipe's start; it is left as after the last token. What
  // Backward would compute anew is saved where there is room for it.
  const ttr::Dims dims = ttr::InferDims("main", layer.requirements(), inputs);
  const Tensor y(DType::kFloat32, ttr::OutputShape(dims));
  const Tensor saved(DType::kInt8, {static_cast<std::int64_t>(layer.SavedBytes(dims))});
  const ttr::CallOptions options{
      .saved = {static_cast<std::byte*>(saved.data()), static_cast<std::size_t>(saved.bytes())}};
  ttr::State state;
  layer.Forward(inputs, state, {.y = y}, options);

  // Backward of the loss |y|^2 / 2: views that are defined receive gradients.
  const Tensor dq(DType::kFloat32, rows), dstep(DType::kFloat32, gates);
  ttr::State dinitial;
  layer.Backward(inputs, {}, y, {}, {.q = dq, .step = dstep}, dinitial, options);
  double length = 0;
  for (const float x : dstep.as<float>()) length += x * x;
  std::cout << "gradient of step: length " << std::sqrt(length) << "\n";

  // Token by token, from the state of the prompt; the last two tokens were a guess, and go.
  ttr::Dims one = dims;
  one.tokens = 1;
  ttr::Decoder decoder(layer, one, {.draft = 2});
  decoder.Start(state);
  const Tensor answers(DType::kFloat32, {kBatch, 3, kHeads, kDim});
  const auto first = [](const Tensor& tensor) { return tensor.view().Slice(1, 0, 3); };
  decoder.Step({.q = first(q),
                .k = first(k),
                .v = first(v),
                .log_decay = first(log_decay),
                .step = first(step)},
               {.y = answers});
  decoder.RollBack(2);
  std::cout << "first answer " << answers.as<float>()[0] << "\n";

  // Whatever is wrong is an Error, before anything is written.
  try {
    layer.Forward({.q = q, .k = k, .v = v, .step = step}, state, {.y = y});
  } catch (const ttr::Error& error) {
    std::cout << error.what() << "\n";
  }
}
