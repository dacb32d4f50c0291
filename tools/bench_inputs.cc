#include "tools/bench_inputs.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "experiments/data/random_inputs.h"
#include "tools/bench_least_squares.h"

namespace ttr::tools {
namespace {

// So many tokens are drawn; longer sequences repeat them.
constexpr std::int64_t kDrawn = 64;

// A Gram matrix that forgets faster than keys fill it is singular, which no model wants: decays of
// layers that carry one are drawn this much milder, log g from [-0.0054, 0].
constexpr double kMildDecay = 1. / 128;

bool HasTokens(const InputSpec& spec) {
  const std::vector<Axis>& axes = spec.shapes.front();
  return axes.size() > 1 && (axes[1] == Axis::kTokens || axes[1] == Axis::kRows);
}

DType DTypeOf(std::string_view name, DType dtype) {
  return name == "q" || name == "k" || name == "v" ? dtype : DType::kFloat32;
}

// `drawn`, one after another along the axis of the tokens until there are `rows`.
Tensor Repeated(const Tensor& drawn, DType dtype, std::int64_t rows) {
  std::vector<std::int64_t> sizes;
  for (int axis = 0; axis < drawn.shape().rank(); ++axis) sizes.push_back(drawn.shape()[axis]);
  sizes[1] = rows;
  Tensor tensor(dtype, Shape(std::span<const std::int64_t>(sizes)));
  for (std::int64_t row = 0; row < rows; row += drawn.shape()[1]) {
    const std::int64_t count = std::min(drawn.shape()[1], rows - row);
    CopyInto(drawn.view().Slice(1, 0, count), tensor.view().Slice(1, row, count));
  }
  return tensor;
}

std::string KeyOf(std::string_view name, DType dtype, const Shape& shape) {
  return std::string(name) + " " + std::string(Name(dtype)) + shape.ToString();
}

}  // namespace

TensorView BenchMemory::Take(std::string_view name, DType dtype, const Shape& shape) {
  Tensor& tensor = tensors_[KeyOf(name, dtype, shape)];
  if (!tensor.defined()) tensor = Tensor(dtype, shape);
  return tensor.view();
}

Inputs BenchMemory::MakeInputs(const Recipe& recipe, const Dims& dims, DType dtype) {
  Dims drawn = dims;
  const bool gram = CarriesGram(recipe);
  drawn.tokens = std::min(dims.tokens, gram ? TokensOfFullRank(recipe, dims) : kDrawn);
  experiments::RandomInputs random =
      experiments::MakeRandomInputs(recipe, drawn, DType::kFloat32, /*seed=*/1);
  Inputs inputs;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    const auto found = random.tensors.find(std::string(spec.name));
    if (found == random.tensors.end()) continue;
    Tensor& tensor = found->second;
    const DType wanted = DTypeOf(spec.name, dtype);
    const std::int64_t rows =
        HasTokens(spec) ? tensor.shape()[1] / drawn.tokens * dims.tokens : tensor.shape()[0];
    std::string key = KeyOf(spec.name, wanted, tensor.shape()) + std::to_string(rows);
    if (gram && spec.name == "log_decay") {
      key += " mild";
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const double log_decay = LoadElement(tensor.data(), tensor.dtype(), i);
        StoreElement(tensor.data(), tensor.dtype(), i, kMildDecay * log_decay);
      }
    }
    if (!tensors_.contains(key)) {
      tensors_[key] = HasTokens(spec) ? Repeated(tensor, wanted, rows) : std::move(tensor);
    }
    inputs.*spec.view = tensors_[key].view();
  }
  return inputs;
}

Inputs BenchMemory::Drifting(Inputs inputs, double step) {
  for (const auto& [name, view] : {std::pair{"q", &inputs.q}, std::pair{"k", &inputs.k}}) {
    Tensor& tensor = tensors_[KeyOf(name, view->dtype(), view->shape()) + " drifting"];
    if (!tensor.defined()) tensor = Tensor::Copy(*view);
    for (std::int64_t b = 0; b < tensor.shape()[0]; ++b) {
      for (std::int64_t t = 0; t < tensor.shape()[1]; ++t) {
        for (std::int64_t h = 0; h < tensor.shape()[2]; ++h) {
          tensor.view().Set({b, t, h, 0}, step * static_cast<double>(t));
        }
      }
    }
    *view = tensor.view();
  }
  return inputs;
}

double BytesOf(const Inputs& inputs) {
  double bytes = 0;
  for (const InputField& field : InputFields()) {
    const TensorView& view = inputs.*field.view;
    if (!view.defined()) continue;
    bytes +=
        static_cast<double>(view.shape().elements()) * static_cast<double>(SizeOf(view.dtype()));
  }
  return bytes;
}

Inputs BenchMemory::Gradients(const Inputs& inputs) {
  Inputs gradients;
  for (const InputField& field : InputFields()) {
    const TensorView& view = inputs.*field.view;
    if (!view.defined() || !IsFloating(view.dtype())) continue;
    gradients.*field.view = Take("d" + std::string(field.name), view.dtype(), view.shape());
  }
  return gradients;
}

State BenchMemory::Memory(const Layer& layer, const Inputs& inputs) {
  State state;
  const State start = layer.InitialState(inputs);
  for (const State::Entry& entry : start.entries()) {
    const TensorView view = Take(entry.name, entry.view.dtype(), entry.view.shape());
    CopyInto(entry.view, view);
    state.Bind(entry.name, view);
  }
  return state;
}

std::span<std::byte> BenchMemory::Bytes(std::string_view name, std::size_t bytes) {
  if (bytes == 0) return {};
  const TensorView view = Take(name, DType::kInt8, {static_cast<std::int64_t>(bytes)});
  return {view.as<std::byte>(), bytes};
}

}  // namespace ttr::tools
