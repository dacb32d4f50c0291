#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/memory/gates.h"
#include "src/recipe/family.h"
#include "ttr/error.h"
#include "ttr/memory.h"

namespace ttr {
namespace {

// Above this no size is meant; below it products of two are far from overflow.
constexpr std::int64_t kMostOfASize = std::int64_t{1} << 30;

const Recipe& Streamable(const Recipe& recipe) {
  if (recipe.reading.causal) return recipe;
  throw Error(
      "[AssociativeMemory] a recipe that reads the whole sequence at once (causal: false) has no "
      "memory that goes on from token to token; use Layer::Forward on the whole sequence");
}

// m alone: without what happens to the query before it or to the answer behind it.
Recipe FitOf(Recipe recipe) {
  const Reading plain;
  // The scale of a similarity is part of its kernel; elsewhere it is the reader's.
  if (recipe.similarity.kernel == Kernel::kNone) {
    recipe.reading.scale = plain.scale;
    recipe.reading.scale_rsqrt = plain.scale_rsqrt;
  }
  recipe.reading.output_norm = plain.output_norm;
  recipe.reading.correction = plain.correction;
  return recipe;
}

void CheckSizes(const AssociativeMemory::Sizes& sizes) {
  const auto check = [](std::string_view name, std::int64_t size) {
    if (size >= 1 && size <= kMostOfASize) return;
    throw Error("AssociativeMemory", name, "from 1 to 2^30", std::to_string(size));
  };
  check("key_dim", sizes.key_dim);
  check("value_dim", sizes.value_dim);
  check("heads", sizes.heads);
}

bool Takes(const std::vector<InputSpec>& specs, std::string_view name) {
  return std::any_of(specs.begin(), specs.end(),
                     [&](const InputSpec& spec) { return spec.name == name; });
}

// Numbers of one token as [1, rows, heads, dim].
TensorView View(std::string_view op, std::string_view name, const double* data, std::size_t count,
                std::int64_t rows, std::int64_t heads, std::int64_t dim) {
  const Shape shape{1, rows, heads, dim};
  if (shape.elements() != static_cast<std::int64_t>(count)) {
    const std::string axes =
        (rows > 1 ? "[n,H," : "[H,") + std::string(name == "value" ? "Dv" : "Dk");
    const Shape required = rows > 1 ? Shape{rows, heads, dim} : Shape{heads, dim};
    throw Error(op, name, axes + "] = " + required.ToString(), std::to_string(count) + " numbers");
  }
  return TensorView::Of(data, shape);
}

// One token, on the calling thread: to hand it to others would cost more than it takes.
CallOptions OnThisThread() { return {.executor = &SequentialExecutor()}; }

// Room for the status of every head, on the stack for all usual numbers of them.
class StatusRoom {
 public:
  explicit StatusRoom(std::int64_t heads) {
    if (static_cast<std::size_t>(heads) > small_.size()) {
      large_.resize(static_cast<std::size_t>(heads));
    }
    used_ = large_.empty() ? std::span(small_).first(static_cast<std::size_t>(heads))
                           : std::span<std::int8_t>(large_);
  }
  TensorView view() const {
    return TensorView::Of(used_.data(), {1, 1, static_cast<std::int64_t>(used_.size())});
  }
  Status Worst() const {
    return static_cast<Status>(*std::max_element(used_.begin(), used_.end()));
  }

 private:
  std::array<std::int8_t, 64> small_{};
  std::vector<std::int8_t> large_;
  std::span<std::int8_t> used_;
};

}  // namespace

AssociativeMemory::AssociativeMemory(std::string_view recipe, const Sizes& sizes)
    : AssociativeMemory(ParseRecipe(recipe), sizes) {}

AssociativeMemory::AssociativeMemory(const Recipe& recipe, const Sizes& sizes)
    : layer_(std::make_shared<const Layer>(Streamable(recipe))),
      fit_(FitOf(recipe)),
      sizes_(sizes),
      specs_(InputSpecs(recipe)) {
  CheckSizes(sizes);
}

void AssociativeMemory::SetGate(std::string_view name, std::span<const double> values) {
  const InputSpec& spec = RequireGate("SetGate", specs_, name);
  const TensorView view = GateView("SetGate", spec, recipe(), sizes_, values);
  Inputs inputs;
  inputs.*spec.view = view;
  CheckRanges("SetGate", recipe(), inputs);
  gates_.insert_or_assign(std::string(name), Tensor::Copy(view));
}

void AssociativeMemory::Memorize(std::span<const double> key, std::span<const double> value,
                                 const Gates& gates) {
  constexpr std::string_view kOp = "Memorize";
  Inputs inputs;
  const std::int64_t rows = RowsPerToken(recipe());
  if (Takes(specs_, "k")) {
    inputs.k = View(kOp, "key", key.data(), key.size(), rows, sizes_.heads, sizes_.key_dim);
  }
  inputs.v = View(kOp, "value", value.data(), value.size(), rows, sizes_.heads, sizes_.value_dim);

  for (const auto& [name, values] : gates) RequireGate(kOp, specs_, name);
  for (const InputSpec& spec : specs_) {
    if (!IsGate(spec)) continue;
    if (spec.of_query) {
      if (gates.contains(spec.name)) {
        throw Error(kOp, "gate '" + std::string(spec.name) + "'",
                    "set by SetGate, for queries take it", "given with a pair");
      }
      continue;
    }
    if (const auto given = gates.find(spec.name); given != gates.end()) {
      inputs.*spec.view = GateView(kOp, spec, recipe(), sizes_, given->second);
    } else if (const auto set = gates_.find(spec.name); set != gates_.end()) {
      inputs.*spec.view = set->second.view();
    } else if (spec.required && spec.name != "bonus") {  // a bonus is read with, never written with
      throw Error(kOp, "gate '" + std::string(spec.name) + "'", GateText(spec, sizes_), "absent");
    }
  }
  if (decoder_) {
    decoder_->Memorize(inputs, OnThisThread());
  } else {
    Decoder first(*layer_, SizesOfCalls(recipe(), sizes_, inputs.features_w), DType::kFloat64);
    first.Memorize(inputs, OnThisThread());
    decoder_ = std::move(first);
  }
  ++count_;
}

const State& AssociativeMemory::state() const {
  static const State empty;
  return decoder_ ? decoder_->state_ : empty;  // nothing is deferred by Memorize
}

Status AssociativeMemory::Read(const Layer& layer, std::string_view op, std::string_view name,
                               std::span<const double> query, std::span<double> value) const {
  Inputs inputs;
  if (Takes(specs_, "q")) {
    inputs.q = View(op, name, query.data(), query.size(), 1, sizes_.heads, sizes_.key_dim);
  }
  for (const InputSpec& spec : specs_) {
    if (!IsGate(spec) || (IsPerToken(spec) && !spec.of_query)) continue;
    if (const auto set = gates_.find(spec.name); set != gates_.end()) {
      inputs.*spec.view = set->second.view();
    }
  }
  StatusRoom status(sizes_.heads);
  const TensorView y =
      View(op, "value", value.data(), value.size(), 1, sizes_.heads, sizes_.value_dim);
  const Outputs outputs{.y = y, .status = status.view()};
  if (decoder_) {
    decoder_->Read(layer, op, inputs, outputs, OnThisThread());
  } else {
    layer.Retrieve(inputs, {}, outputs, OnThisThread());
  }
  return status.Worst();
}

Status AssociativeMemory::Retrieve(std::span<const double> query, std::span<double> value) const {
  return Read(*layer_, "Retrieve", "query", query, value);
}

double AssociativeMemory::Loss(std::span<const double> key, std::span<const double> value) const {
  View("Loss", "value", value.data(), value.size(), 1, sizes_.heads, sizes_.value_dim);
  std::vector<double> answer(value.size());
  Read(fit_, "Loss", "key", key, answer);
  double loss = 0;
  for (std::size_t i = 0; i < answer.size(); ++i) {
    const double error = value[i] - answer[i];
    loss += error * error / 2;
  }
  return loss;
}

}  // namespace ttr
