#include "experiments/studies/layers.h"

#include <algorithm>
#include <cmath>

#include "ttr/error.h"

namespace ttr::experiments {
namespace {

constexpr double kNormEps = 1e-6;  // as reading(normalise_qk) has it

void CopyRows(std::span<const double> from, Tensor& to) {
  std::copy(from.begin(), from.end(), to.as<double>().begin());
}

void NormaliseRows(std::span<double> rows, std::int64_t dim) {
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(dim)) {
    const auto row = rows.subspan(begin, static_cast<std::size_t>(dim));
    double squares = kNormEps;
    for (const double x : row) squares += x * x;
    for (double& x : row) x /= std::sqrt(squares);
  }
}

double ValueOf(const InputSpec& spec, const ConstantGates& gates) {
  if (spec.name == "log_decay" || spec.name == "a") return std::log(gates.decay);
  if (spec.name == "step") return gates.step;
  if (spec.name == "momentum") return gates.momentum;
  if (spec.name == "weight_decay") return gates.weight_decay;
  if (spec.name == "ln_weight") return gates.ln_weight;
  if (spec.name == "bonus") return gates.bonus;
  return spec.neutral.value_or(1);
}

// One sequence and one memory.
std::int64_t SizeOf(Axis axis, const Recipe& recipe, const PairRows& rows, std::int64_t tokens) {
  switch (axis) {
    case Axis::kSteps: return recipe.optimizer.steps;
    case Axis::kTokens:
    case Axis::kRows: return tokens;
    case Axis::kKeyDim: return rows.key_dim;
    case Axis::kValueDim: return rows.value_dim;
    default: return 1;
  }
}

struct MadeInputs {
  Inputs inputs;
  std::vector<Tensor> tensors;
};

// All inputs that the recipe requires; q only where there are queries.
MadeInputs MakeInputs(const Recipe& recipe, const ConstantGates& gates, const PairRows& rows) {
  const auto tokens = static_cast<std::int64_t>(rows.v.size()) / rows.value_dim;
  MadeInputs made;
  for (const InputSpec& spec : InputSpecs(recipe)) {
    const bool scales = spec.name == "ln_weight" && gates.ln_weight != 0;
    if ((!spec.required && !scales) || (spec.name == "q" && rows.q.empty())) continue;
    std::vector<std::int64_t> sizes;
    for (const Axis axis : spec.shapes.front()) {
      sizes.push_back(SizeOf(axis, recipe, rows, tokens));
    }
    Tensor tensor(DType::kFloat64, Shape(std::span<const std::int64_t>(sizes)));
    if (spec.name == "k" || spec.name == "erase_key") {
      CopyRows(rows.k, tensor);
      if (spec.name == "erase_key" && recipe.reading.normalise_qk) {
        NormaliseRows(tensor.as<double>(), rows.key_dim);
      }
    } else if (spec.name == "v" || spec.name == "q") {
      CopyRows(spec.name == "v" ? rows.v : rows.q, tensor);
    } else {
      const auto entries = tensor.as<double>();
      std::fill(entries.begin(), entries.end(), ValueOf(spec, gates));
    }
    made.inputs.*spec.view = tensor.view();
    made.tensors.push_back(std::move(tensor));
  }
  return made;
}

std::vector<double> Values(const Tensor& tensor) {
  const auto entries = tensor.as<double>();
  return {entries.begin(), entries.end()};
}

CallOptions OneThread() { return {.executor = &SequentialExecutor()}; }

const Recipe& Checked(const Recipe& recipe) {
  if (const std::string why = NeedsLearning(recipe); !why.empty()) {
    throw Error("[experiment] " + ToString(recipe) + " cannot run without training: " + why);
  }
  return recipe;
}

std::string_view EngineFor(const Recipe& recipe, Runs runs) {
  const std::string_view engine = MakePlan(recipe).engine;
  const bool nonparametric = engine == "kernel_smoother" || engine == "kernel_regression" ||
                             engine == "kernel_dictionary" || engine == "local_polynomial";
  const bool taken = runs == Runs::kPlanned ||
                     (runs != Runs::kDefinition && engine == "least_squares") ||
                     (runs == Runs::kEngines && nonparametric);
  return taken ? engine : kDefinition;
}

}  // namespace

std::string NeedsLearning(const Recipe& recipe) {
  if (recipe.optimizer.solver == Solver::kSgd && recipe.optimizer.steps > 1) {
    return "it takes several pairs a token";
  }
  for (const InputSpec& spec : InputSpecs(recipe)) {
    if (spec.required && spec.name.starts_with("features")) {
      return "it takes the weights " + std::string(spec.name);
    }
  }
  return "";
}

StudyLayer::StudyLayer(const std::string& recipe, const ConstantGates& gates, Runs runs)
    : StudyLayer(ParseRecipe(recipe), gates, runs) {}

StudyLayer::StudyLayer(const Recipe& recipe, const ConstantGates& gates, Runs runs)
    : layer_(Checked(recipe), EngineFor(recipe, runs)), gates_(gates) {}

std::vector<double> StudyLayer::Forward(const PairRows& rows, std::vector<Status>* status) const {
  const MadeInputs made = MakeInputs(recipe(), gates_, rows);
  const std::int64_t tokens = made.inputs.v.size(1);
  Tensor y(DType::kFloat64, {1, tokens, 1, rows.value_dim});
  Outputs outputs{.y = y, .status = {}};
  Tensor statuses(DType::kInt8, {1, tokens, 1});
  if (status != nullptr) outputs.status = statuses.view();
  State state;
  layer_.Forward(made.inputs, state, outputs, OneThread());
  if (status != nullptr) {
    status->clear();
    for (const std::int8_t one : statuses.as<std::int8_t>()) status->push_back(Status{one});
  }
  return Values(y);
}

void StudyLayer::Memorize(const PairRows& rows, State& state) const {
  const MadeInputs made =
      MakeInputs(recipe(), gates_,
                 {.key_dim = rows.key_dim, .value_dim = rows.value_dim, .k = rows.k, .v = rows.v});
  layer_.Memorize(made.inputs, state, OneThread());
}

std::vector<double> StudyLayer::Retrieve(std::span<const double> q, std::int64_t key_dim,
                                         std::int64_t value_dim, const State& state) const {
  const std::int64_t queries = static_cast<std::int64_t>(q.size()) / key_dim;
  Tensor y(DType::kFloat64, {1, queries, 1, value_dim});
  Inputs inputs;
  inputs.q = TensorView(q.data(), DType::kFloat64, {1, queries, 1, key_dim});
  layer_.Retrieve(inputs, state, {.y = y, .status = {}}, OneThread());
  return Values(y);
}

std::vector<double> StudyLayer::Recall(const PairRows& rows) const {
  State state;
  Memorize(rows, state);
  return Retrieve(rows.q, rows.key_dim, rows.value_dim, state);
}

}  // namespace ttr::experiments
