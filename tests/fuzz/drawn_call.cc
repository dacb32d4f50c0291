#include "tests/fuzz/drawn_call.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/recipe/options.h"
#include "src/recipe/validate.h"
#include "tests/support/random_recipe.h"
#include "ttr/executor.h"
#include "ttr/zoo.h"

namespace ttr::fuzz {
namespace {

constexpr DType kDTypes[] = {DType::kFloat64, DType::kFloat32, DType::kBFloat16};

Dims DrawDims(const Recipe& recipe, Source& source) {
  const bool slow = MakePlan(recipe).engine == kDefinition;
  const bool cubic = recipe.function.kind == FunctionClass::kPolynomial;
  Dims dims = test::SmallDims(recipe);
  const bool square = dims.key_dim == dims.value_dim;
  const bool shares = dims.key_heads != dims.query_heads;
  dims.batch = source.Any({1, 2, 0});
  dims.tokens = source.Any({3, 0, 1, 2, 4, 5, 8, 9, 17, 33, 70});
  dims.value_dim = source.Any({3, 1, 2, 4, 5, 8, 9, 16, 17, 33});
  dims.key_dim = square ? dims.value_dim : source.Any({3, 1, 2, 4, 5, 8, 9, 16, 17, 33});
  if (cubic || slow) {
    dims.tokens = std::min<std::int64_t>(dims.tokens, 9);
    dims.value_dim = std::min<std::int64_t>(dims.value_dim, 4);
    dims.key_dim = std::min<std::int64_t>(dims.key_dim, 4);
  }
  dims.features = 1 + source.Below(4);
  dims.heads = source.Any({1, 2, 3});
  dims.key_heads = shares && source.Flag() ? 1 : dims.heads;
  dims.value_heads = shares && source.Flag() ? 1 : dims.heads;
  dims.query_heads = shares && source.Flag() ? 2 * dims.heads : dims.heads;
  dims.hidden = recipe.function.expansion * dims.key_dim;
  return dims;
}

bool IsPerToken(const InputSpec& spec) {
  const auto passes = [](Axis axis) { return axis == Axis::kTokens || axis == Axis::kRows; };
  return std::ranges::any_of(spec.shapes.front(), passes);
}

}  // namespace

Recipe DrawRecipe(Source& source) {
  const auto zoo = Zoo();
  const auto place = source.Below(static_cast<std::int64_t>(zoo.size()));
  Recipe recipe = ParseRecipe(zoo[static_cast<std::size_t>(place)].recipe);
  const auto options = Options();
  for (std::int64_t changes = source.Below(4); changes > 0; --changes) {
    const auto which = source.Below(static_cast<std::int64_t>(options.size()));
    const Option& option = options[static_cast<std::size_t>(which)];
    RandomRecipes values(static_cast<std::uint64_t>(source.Below(256)), true);
    SetOption(recipe, option, values.Value(option), "");
  }
  return NearestValid(recipe);
}

DrawnCall::DrawnCall(const Recipe& recipe, Source& source)
    : layer(recipe),
      call{recipe, DrawDims(recipe, source), source.Any(kDTypes),  // in this order
           static_cast<std::uint64_t>(source.Below(256)), source.Flag()},
      memory(0),
      dtype_(call.inputs.v.defined() ? call.inputs.v.dtype() : DType::kFloat64) {
  options.executor = &SequentialExecutor();
  options.bfloat16_products = source.Flag();
  saves = source.Flag();
  carries = source.Flag();
  MoveInputs(source);
  if (recipe.reading.causal) Pack(source);
  if (recipe.reading.causal) DrawState(source);
  Spoil(source);
  for (std::size_t n = 0; n < bounds.size(); ++n) {
    bounds[n] = call.inputs.cu_seqlens.as<std::int64_t>()[n];
  }
}

std::string DrawnCall::Text() const {
  const Dims& dims = call.dims;
  std::string text =
      ToString(recipe()) + ", " + std::string(Name(dtype_)) +
      ", B = " + std::to_string(dims.batch) + ", T = " + std::to_string(dims.tokens) +
      ", Dk = " + std::to_string(dims.key_dim) + ", Dv = " + std::to_string(dims.value_dim) +
      ", H = " + std::to_string(dims.heads);
  for (const std::int64_t bound : bounds) text += " " + std::to_string(bound);
  for (const State::Entry& entry : state.entries()) {
    text += ", " + entry.name + " " + std::string(Name(entry.view.dtype()));
  }
  return text;
}

// Into memory of exactly their extents; gates in dtypes of their own.
void DrawnCall::MoveInputs(Source& source) {
  const bool mixed = source.Flag();
  for (const InputField& field : InputFields()) {
    TensorView& view = call.inputs.*field.view;
    if (!view.defined()) continue;
    const bool gate = field.name != "q" && field.name != "k" && field.name != "v";
    const DType dtype = gate && mixed ? source.Any(kDTypes) : view.dtype();
    wild_ = wild_ || dtype == DType::kBFloat16;
    view = memory.Copy(Tensor::Copy(view, dtype));
  }
}

// Sequences of drawn lengths, the empty ones too.
void DrawnCall::Pack(Source& source) {
  const std::int64_t cuts = source.Below(5);
  if (cuts == 0 || call.dims.batch != 1) return;
  bounds = {0, call.dims.tokens};
  for (std::int64_t i = 1; i < cuts; ++i) bounds.push_back(source.Below(call.dims.tokens + 1));
  std::ranges::sort(bounds);
  const auto count = static_cast<std::int64_t>(bounds.size());
  call.inputs.cu_seqlens = memory.Copy(TensorView::Of(bounds.data(), {count}));
}

// What a few tokens leave, each entry in a dtype of its own.
void DrawnCall::DrawState(Source& source) {
  const std::int64_t tokens = source.Below(6);
  if (tokens == 0) return;
  Dims dims = call.dims;
  dims.tokens = tokens;
  if (!bounds.empty()) dims.batch = static_cast<std::int64_t>(bounds.size()) - 1;
  test::Call before(recipe(), dims, DType::kFloat64, 300);
  // A layer's constants are those of the whole sequence.
  for (const InputSpec& spec : layer.requirements().inputs) {
    if (!IsPerToken(spec) && spec.name != "cu_seqlens") {
      before.inputs.*spec.view = call.inputs.*spec.view;
    }
  }
  State left = test::RunWhole(layer, before, {.executor = options.executor}).state;
  const bool mixed = source.Flag();
  for (const State::Entry& entry : left.entries()) {
    const auto& specs = layer.requirements().state;
    const StateSpec& spec = *std::ranges::find(specs, entry.name, &StateSpec::name);
    DType dtype = spec.counts() ? DType::kInt64 : dtype_;
    if (mixed && !spec.counts()) dtype = source.Any(kDTypes);
    if (dtype == DType::kBFloat16 && spec.role != EntryRole::kPairs) dtype = DType::kFloat32;
    wild_ = wild_ || dtype == DType::kBFloat16 ||
            (dtype_ == DType::kFloat64 && dtype != dtype_ && !spec.counts());
    state.Set(entry.name, Tensor::Copy(entry.view, dtype));
  }
}

// Single numbers of inputs and of the state.
void DrawnCall::Spoil(Source& source) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kMost = std::numeric_limits<double>::max();
  constexpr double kLeast = std::numeric_limits<double>::denorm_min();
  std::vector<TensorView> views;
  for (const InputSpec& spec : layer.requirements().inputs) {
    const TensorView& view = call.inputs.*spec.view;
    if (view.defined() && IsPerToken(spec)) views.push_back(view);
  }
  const std::size_t tokens = views.size();
  for (const InputField& field : InputFields()) {
    if ((call.inputs.*field.view).defined()) views.push_back(call.inputs.*field.view);
  }
  for (const State::Entry& entry : state.entries()) views.push_back(entry.view);
  for (std::int64_t i = source.Below(8); i > 0; --i) {
    const auto which =
        static_cast<std::size_t>(source.Below(static_cast<std::int64_t>(views.size())));
    const TensorView& view = views[which];
    const std::int64_t elements = view.shape().elements();
    std::int64_t place = source.Below(256);
    place += 256 * source.Below(256);
    const bool counts = !IsFloating(view.dtype());
    const double value = counts ? source.Any({0., -1., 1., 2., 7., 65., 0x1p53, 0x1p62})
                                : source.Any({0., -1., 1., kNan, kInf, -kInf, 1e30, -1e30, 1e-30,
                                              1e300, -1e300, kMost, kLeast, -kLeast, 1e18});
    if (elements == 0) continue;
    wild_ = wild_ || which >= tokens || std::abs(value) > 1 || std::isnan(value) ||
            (value != 0 && std::abs(value) < 1);
    StoreElement(view.data(), view.dtype(), place % elements, value);
  }
}

bool DrawnCall::Splits() const {
  return recipe().reading.causal && recipe().reading.read != Read::kBatchEnd;
}

double DrawnCall::Rounding() const {
  if (wild_ || dtype_ == DType::kBFloat16) return 0;
  return dtype_ == DType::kFloat64 ? 1e-13 : 1e-5;
}

void DrawnCall::Disturb() {
  const double rounding = Rounding();
  std::int64_t n = 0;
  for (const InputField& field : InputFields()) {
    const TensorView& view = call.inputs.*field.view;
    if (!view.defined() || !IsFloating(view.dtype())) continue;
    for (std::int64_t i = 0; i < view.shape().elements(); ++i) {
      const double part = static_cast<double>(++n * 7919 % 1009) / 1009 - 0.5;
      const double x = LoadElement(view.data(), view.dtype(), i);
      StoreElement(view.data(), view.dtype(), i, x * (1 + rounding * part));
    }
  }
}

}  // namespace ttr::fuzz
