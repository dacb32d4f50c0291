#include "tests/support/calls.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ttr::test {
namespace {

std::int64_t RowsPerToken(const Recipe& recipe) {
  return recipe.optimizer.solver == Solver::kSgd ? recipe.optimizer.steps : 1;
}

Result MakeResult(const Dims& dims, std::int64_t batch, std::int64_t tokens, DType dtype) {
  Result result;
  result.y = Tensor(dtype, {batch, tokens, dims.output_heads(), dims.value_dim});
  result.status = Tensor(DType::kInt8, {batch, tokens, dims.output_heads()});
  for (std::int64_t i = 0; i < result.y.elements(); ++i) {
    StoreElement(result.y.data(), dtype, i, std::numeric_limits<double>::quiet_NaN());
  }
  return result;
}

bool IsPerToken(const InputSpec& spec) {
  const std::vector<Axis>& shape = spec.shapes.front();
  return shape.size() > 1 && (shape[1] == Axis::kTokens || shape[1] == Axis::kRows);
}

// Tokens begin .. begin + count, of all batch rows or of the first alone.
Inputs Part(const Call& call, std::int64_t begin, std::int64_t count, bool first_row_only) {
  const std::int64_t n = RowsPerToken(call.recipe);
  Inputs part = call.inputs;
  for (const InputSpec& spec : InputSpecs(call.recipe)) {
    TensorView& view = part.*spec.view;
    if (!view.defined() || !IsPerToken(spec)) continue;
    const std::int64_t rows = spec.shapes.front()[1] == Axis::kRows ? n : 1;
    view = view.Slice(1, begin * rows, count * rows);
    if (first_row_only) view = view.Slice(0, 0, 1);
  }
  return part;
}

}  // namespace

void TrimPairs(const Recipe& recipe, State& state) {
  const TensorView lengths = state.Get("state.length");
  if (!lengths.defined()) return;
  std::int64_t rows = 0;
  for (std::int64_t n = 0; n < lengths.size(0); ++n) {
    for (std::int64_t h = 0; h < lengths.size(1); ++h) {
      rows = std::max(rows, static_cast<std::int64_t>(lengths.At({n, h})));
    }
  }
  for (const StateSpec& spec : StateSpecs(recipe)) {
    const TensorView view = state.Get(spec.name);
    if (spec.counts() || !view.defined()) continue;
    Tensor trimmed = Tensor::Copy(view.Slice(1, 0, rows));
    const std::int64_t width = view.rank() == 4 ? view.size(3) : 1;
    for (std::int64_t i = 0; i < trimmed.elements(); ++i) {
      const std::int64_t h = i / width % view.size(2), row = i / width / view.size(2) % rows;
      const std::int64_t n = i / width / view.size(2) / rows;
      if (static_cast<double>(row) < lengths.At({n, h})) continue;
      StoreElement(trimmed.data(), trimmed.dtype(), i, 0);
    }
    state.Set(spec.name, std::move(trimmed));
  }
}

Dims SmallDims(const Recipe& recipe) {
  Dims dims;
  dims.batch = 2;
  dims.tokens = 11;
  dims.heads = 4;
  dims.key_dim = 3;
  dims.value_dim = 4;
  dims.features = 3;
  const bool takes_queries = [&] {
    for (const InputSpec& spec : InputSpecs(recipe)) {
      if (spec.name == "q") return true;
    }
    return false;
  }();
  dims.query_heads = takes_queries ? 8 : 4;
  dims.key_heads = takes_queries ? 2 : 4;
  dims.value_heads = 4;
  if (recipe.function.residual || !takes_queries) dims.key_dim = dims.value_dim;
  dims.hidden = recipe.function.expansion * dims.key_dim;
  return dims;
}

Dims TwoMemories(std::int64_t tokens, std::int64_t key_dim, std::int64_t value_dim) {
  Dims dims;
  dims.tokens = tokens;
  dims.key_dim = key_dim;
  dims.value_dim = value_dim;
  dims.heads = dims.key_heads = dims.value_heads = dims.query_heads = 2;
  return dims;
}

Call::Call(const Recipe& recipe_in, const Dims& dims_in, DType dtype, std::uint64_t seed,
           bool optional_ones)
    : recipe(recipe_in),
      dims(dims_in),
      random(experiments::MakeRandomInputs(recipe, dims, dtype, seed, optional_ones)),
      inputs(random.inputs) {}

void Fill(const TensorView& view, double x) {
  const Tensor numbers(view.dtype(), view.shape());
  for (std::int64_t i = 0; i < numbers.elements(); ++i) {
    StoreElement(numbers.data(), view.dtype(), i, x);
  }
  CopyInto(numbers, view);
}

Inputs TokensOf(const Call& call, std::int64_t begin, std::int64_t count) {
  return Part(call, begin, count, false);
}

Result RunWhole(const Layer& layer, const Call& call, const CallOptions& options) {
  Result result = MakeResult(call.dims, call.dims.batch, call.dims.tokens, call.inputs.v.dtype());
  layer.Forward(call.inputs, result.state, {result.y.view(), result.status.view()}, options);
  TrimPairs(call.recipe, result.state);
  return result;
}

Result RunInPieces(const Layer& layer, const Call& call, std::int64_t piece,
                   const CallOptions& options) {
  Result result = MakeResult(call.dims, call.dims.batch, call.dims.tokens, call.inputs.v.dtype());
  for (std::int64_t begin = 0; begin < call.dims.tokens; begin += piece) {
    const std::int64_t count = std::min(piece, call.dims.tokens - begin);
    const Outputs outputs{result.y.view().Slice(1, begin, count),
                          result.status.view().Slice(1, begin, count)};
    const Inputs part = TokensOf(call, begin, count);
    if (count == 1) {
      layer.Step(part, result.state, outputs, options);
    } else {
      layer.Forward(part, result.state, outputs, options);
    }
  }
  TrimPairs(call.recipe, result.state);
  return result;
}

Result RunDecoder(const Layer& layer, const Call& call, const CallOptions& options) {
  Result result = MakeResult(call.dims, call.dims.batch, call.dims.tokens, call.inputs.v.dtype());
  const bool wide = call.inputs.v.dtype() == DType::kFloat64;
  if (call.dims.tokens == 0) return result;
  const Dims dims = CheckInputs("decoder", layer.requirements(), TokensOf(call, 0, 1));
  Decoder decoder(layer, dims, wide ? DType::kFloat64 : DType::kFloat32);
  for (std::int64_t t = 0; t < call.dims.tokens; ++t) {
    decoder.Step(TokensOf(call, t, 1),
                 {result.y.view().Slice(1, t, 1), result.status.view().Slice(1, t, 1)}, options);
  }
  result.state = decoder.state();
  for (const State::Entry& entry : std::vector<State::Entry>(result.state.entries())) {
    result.state.Set(entry.name, Tensor::Copy(entry.view));
  }
  TrimPairs(call.recipe, result.state);
  return result;
}

Result RunTokens(const Layer& layer, const Call& call, std::int64_t begin, std::int64_t count) {
  Result result = MakeResult(call.dims, 1, count, call.inputs.v.dtype());
  layer.Forward(Part(call, begin, count, true), result.state,
                {result.y.view(), result.status.view()});
  TrimPairs(call.recipe, result.state);
  return result;
}

Result RunPacked(const Layer& layer, const Call& call, const std::vector<std::int64_t>& bounds) {
  Result result = MakeResult(call.dims, 1, call.dims.tokens, call.inputs.v.dtype());
  Inputs inputs = Part(call, 0, call.dims.tokens, true);
  inputs.cu_seqlens = TensorView::Of(bounds.data(), {static_cast<std::int64_t>(bounds.size())});
  layer.Forward(inputs, result.state, {result.y.view(), result.status.view()});
  TrimPairs(call.recipe, result.state);
  return result;
}

double LargestDifference(const TensorView& a, const TensorView& b) {
  if (!(a.shape() == b.shape())) return std::numeric_limits<double>::infinity();
  const Tensor x = Tensor::Copy(a, DType::kFloat64);
  const Tensor y = Tensor::Copy(b, DType::kFloat64);
  double largest = 0;
  for (std::size_t i = 0; i < x.as<double>().size(); ++i) {
    const double u = x.as<double>()[i];
    const double v = y.as<double>()[i];
    const bool same = u == v || (std::isnan(u) && std::isnan(v));
    const double difference = std::abs(u - v);
    if (!same) {
      largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                       : std::max(largest, difference);
    }
  }
  return largest;
}

}  // namespace ttr::test
