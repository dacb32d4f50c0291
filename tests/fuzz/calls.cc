// Calls of layers as bytes choose them, with scratch, saved memory and decoders' memory of exactly
// the sizes that the layer states: refused before anything is written, or run whole, in pieces,
// packed beside others and alone, token by token and backwards. Where the numbers are ordinary all
// ways agree, and the definition with them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/drawn_call.h"
#include "tests/support/guarded.h"
#include "ttr/decoder.h"

namespace ttr::fuzz {
namespace {

using test::Guarded;
using test::LargestDifference;

constexpr std::int8_t kUnwritten = 99;

// Outputs of a call, and the state that it leaves.
struct Answer {
  explicit Answer(const DrawnCall& drawn, const Dims& dims)
      : y(drawn.call.inputs.v.dtype(), OutputShape(dims)),
        status(DType::kInt8, StatusShape(dims)),
        iterations(DType::kInt64, StatusShape(dims)),
        residual(DType::kFloat64, StatusShape(dims)),
        state(drawn.state) {
    std::ranges::fill(status.as<std::int8_t>(), kUnwritten);
    for (std::int64_t i = 0; i < y.elements(); ++i) {
      StoreElement(y.data(), y.dtype(), i, std::numeric_limits<double>::quiet_NaN());
    }
  }

  Outputs All() const { return {y, status, iterations, residual}; }
  Outputs Tokens(std::int64_t begin, std::int64_t count) const {
    const auto part = [=](const TensorView& view) { return view.Slice(1, begin, count); };
    return {part(y), part(status), part(iterations), part(residual)};
  }
  bool Solved() const {
    return std::ranges::all_of(status.as<std::int8_t>(), [](std::int8_t s) { return s == 0; });
  }

  Tensor y, status, iterations, residual;
  State state;
};

Dims DimsOf(const DrawnCall& drawn, const Inputs& inputs) {
  return CheckInputs("fuzz", drawn.layer.requirements(), inputs);
}

void Run(const DrawnCall& drawn, const Inputs& inputs, State& state, const Outputs& outputs,
         std::span<std::byte> saved = {}) {
  const Dims dims = DimsOf(drawn, inputs);
  const Guarded scratch(drawn.layer.ScratchBytes(dims, 1));
  CallOptions options = drawn.options;
  options.scratch = scratch.bytes();
  options.saved = saved;
  if (dims.tokens == 1 && drawn.bounds.empty() && saved.empty()) {
    drawn.layer.Step(inputs, state, outputs, options);
  } else {
    drawn.layer.Forward(inputs, state, outputs, options);
  }
  Expect(scratch.Whole(), "written before the scratch");
}

// Gradients of all that a call takes, in the order of InputFields() and of the state.
std::vector<Tensor> Gradients(const DrawnCall& drawn, const Dims& dims, const State& dstate,
                              std::span<std::byte> saved) {
  const Guarded scratch(drawn.layer.BackwardScratchBytes(dims, 1));
  CallOptions options = drawn.options;
  options.scratch = scratch.bytes();
  options.saved = saved;
  Inputs views;
  std::vector<Tensor> gradients;
  for (const InputField& field : InputFields()) {
    const TensorView& view = drawn.call.inputs.*field.view;
    if (!view.defined() || !IsFloating(view.dtype())) continue;
    gradients.emplace_back(DType::kFloat64, view.shape());
    views.*field.view = gradients.back();
  }
  Tensor dy(drawn.call.inputs.v.dtype(), OutputShape(dims));
  for (std::int64_t i = 0; i < dy.elements(); ++i) {
    StoreElement(dy.data(), dy.dtype(), i, 0.1 * static_cast<double>(i % 7 - 3));
  }
  State initial;
  drawn.layer.Backward(drawn.call.inputs, drawn.state, dy, dstate, views, initial, options);
  Expect(scratch.Whole(), "written before the scratch of Backward");
  for (const State::Entry& entry : initial.entries()) {
    gradients.push_back(Tensor::Copy(entry.view));
  }
  return gradients;
}

// What reaches the gradient of the last state: any numbers of its shapes, here those of the state.
State LastGradient(const State& state) {
  State gradient;
  if (state.Get("state.length").defined()) return gradient;
  for (const State::Entry& entry : state.entries()) {
    if (IsFloating(entry.view.dtype())) gradient.Set(entry.name, Tensor::Copy(entry.view));
  }
  return gradient;
}

void Backwards(const DrawnCall& drawn, const Dims& dims, const State& end,
               std::span<std::byte> saved) {
  if (!drawn.layer.HasGradients(dims)) return;
  const State dstate = drawn.carries ? LastGradient(end) : State();
  const std::vector<Tensor> anew = Gradients(drawn, dims, dstate, {});
  if (saved.empty()) return;
  const std::vector<Tensor> kept = Gradients(drawn, dims, dstate, saved);
  const std::string_view engine = drawn.layer.plan().engine;
  if (engine != "fast_weights" && engine != "scan") return;  // of these include/ttr/layer.h says so
  for (std::size_t i = 0; i < anew.size(); ++i) {
    Expect(LargestDifference(anew[i], kept[i]) == 0, drawn.Text() + ": saved, gradients differ");
  }
}

// The whole call, and backwards through it. False where it is refused; then nothing is written.
bool RunWhole(const DrawnCall& drawn, Answer& answer, bool backwards) {
  const Dims dims = DimsOf(drawn, drawn.call.inputs);
  const DType arithmetic = ArithmeticType(drawn.call.inputs, drawn.state);
  const Guarded saved(drawn.saves ? drawn.layer.SavedBytes(dims, arithmetic) : 0, 64);
  const bool accepted =
      Accepts([&] { Run(drawn, drawn.call.inputs, answer.state, answer.All(), saved.bytes()); });
  const auto status = answer.status.as<std::int8_t>();
  if (!accepted) {
    const auto untouched = [](std::int8_t s) { return s == kUnwritten; };
    Expect(std::ranges::all_of(status, untouched), "written and then refused");
    return false;
  }
  const auto known = [](std::int8_t s) { return s >= 0 && s <= 3; };
  Expect(std::ranges::all_of(status, known), "a status that there is not");
  if (backwards) Backwards(drawn, dims, answer.state, saved.bytes());
  Expect(saved.Whole(), "written before the saved memory");
  return true;
}

Answer RunPieces(const DrawnCall& drawn, std::int64_t piece) {
  const Dims& dims = drawn.call.dims;
  Answer answer(drawn, DimsOf(drawn, drawn.call.inputs));
  for (std::int64_t begin = 0; begin < dims.tokens; begin += piece) {
    const std::int64_t count = std::min(piece, dims.tokens - begin);
    Run(drawn, test::TokensOf(drawn.call, begin, count), answer.state, answer.Tokens(begin, count));
  }
  return answer;
}

Answer RunDecoder(const DrawnCall& drawn) {
  Answer answer(drawn, DimsOf(drawn, drawn.call.inputs));
  const Dims dims = DimsOf(drawn, test::TokensOf(drawn.call, 0, 1));
  const DType carried = ArithmeticType(drawn.call.inputs, drawn.state);
  const Guarded memory(Decoder::Bytes(drawn.layer, dims, carried), 64);
  std::ranges::fill(memory.bytes(), std::byte{0});
  const Guarded scratch(drawn.layer.ScratchBytes(dims, 1));
  CallOptions options = drawn.options;
  options.scratch = scratch.bytes();
  Decoder decoder(drawn.layer, dims, carried, memory.bytes());
  if (!drawn.state.empty()) decoder.Start(drawn.state);
  for (std::int64_t t = 0; t < drawn.call.dims.tokens; ++t) {
    decoder.Step(test::TokensOf(drawn.call, t, 1), answer.Tokens(t, 1), options);
  }
  answer.state = decoder.state();
  Expect(memory.Whole() && scratch.Whole(), "written before the memory of a decoder");
  return answer;
}

// Every packed sequence as a call of its own.
Answer RunAlone(const DrawnCall& drawn) {
  Answer answer(drawn, DimsOf(drawn, drawn.call.inputs));
  for (std::size_t n = 0; n + 1 < drawn.bounds.size(); ++n) {
    const std::int64_t begin = drawn.bounds[n], count = drawn.bounds[n + 1] - begin;
    Inputs inputs = test::TokensOf(drawn.call, begin, count);
    inputs.cu_seqlens = {};
    State state;
    for (const State::Entry& entry : drawn.state.entries()) {
      const TensorView row = entry.view.Slice(0, static_cast<std::int64_t>(n), 1);
      state.Set(entry.name, Tensor::Copy(row));
    }
    Run(drawn, inputs, state, answer.Tokens(begin, count));
  }
  return answer;
}

// Where the definition answers in no time.
bool IsSmall(const Dims& dims) {
  return dims.tokens <= 9 && dims.key_dim <= 9 && dims.value_dim <= 9;
}

Answer RunDefinition(const DrawnCall& drawn) {
  Answer answer(drawn, DimsOf(drawn, drawn.call.inputs));
  const Layer definition(drawn.recipe(), kDefinition);
  definition.Forward(drawn.call.inputs, answer.state, answer.All(), drawn.options);
  return answer;
}

double Largest(const TensorView& view) {
  double largest = 0;
  const Tensor copy = Tensor::Copy(view, DType::kFloat64);
  for (const double x : copy.as<double>()) {
    largest =
        std::isnan(x) ? std::numeric_limits<double>::infinity() : std::max(largest, std::abs(x));
  }
  return largest;
}

// Are answers of this recipe as continuous as rounding needs them? What fades, depends on other
// features or stops at a threshold is not: so it is with the drawn recipes of tests/layer.
bool Continuous(const DrawnCall& drawn) {
  const Recipe& recipe = drawn.recipe();
  if (recipe.optimizer.tolerance > 0) return false;
  const bool inverts = recipe.optimizer.preconditioner != Preconditioner::kNone;
  if (inverts && recipe.optimizer.ridge == 0) return false;
  if (drawn.layer.plan().engine != "least_squares") return true;
  const bool fades =
      recipe.weights.decay != Decay::kNone && recipe.optimizer.ridge_kind == RidgeKind::kFading;
  const bool depends = recipe.function.features != FeatureMap::kNone && recipe.optimizer.ridge == 0;
  return !fades && !depends;
}

// What a disturbance of some hundred roundings makes of an answer is its condition; another way may
// round as much some thousand times.
class Judge {
 public:
  Judge(DrawnCall& drawn, const Answer& whole) : whole_(whole), rounding_(drawn.Rounding()) {
    if (rounding_ == 0 || !Continuous(drawn) || !whole.Solved()) return;
    Answer disturbed(drawn, DimsOf(drawn, drawn.call.inputs));
    drawn.Disturb();
    if (!RunWhole(drawn, disturbed, false) || !disturbed.Solved()) return;
    moderate_ = Largest(whole.y) < 1e6 && Grows(whole.state) < 1e6;
    condition_ = 1000 * LargestDifference(whole.y, disturbed.y);
  }

  void Compare(const Answer& other, const std::string& what) const {
    if (!moderate_ || !other.Solved()) return;
    const double within = condition_ + 100 * rounding_ * (1 + Largest(whole_.y));
    const double difference = LargestDifference(whole_.y, other.y);
    Expect(difference <= within, what + " it answers otherwise: by " + std::to_string(difference) +
                                     " where " + std::to_string(within) + " is rounding");
  }

 private:
  static double Grows(const State& state) {
    double largest = 0;
    for (const State::Entry& entry : state.entries()) {
      largest = std::max(largest, Largest(entry.view));
    }
    return largest;
  }

  const Answer& whole_;
  double rounding_;
  bool moderate_ = false;
  double condition_ = 0;
};

}  // namespace

void Calls(Bytes bytes) {
  Source source(bytes);
  const Recipe recipe = DrawRecipe(source);
  const std::int64_t cut = 1 + source.Below(16);
  DrawnCall drawn(recipe, source);
  if (!Accepts([&] { DimsOf(drawn, drawn.call.inputs); })) return;
  Answer whole(drawn, DimsOf(drawn, drawn.call.inputs));
  if (!RunWhole(drawn, whole, true)) return;
  std::vector<std::pair<std::string, Answer>> others;
  if (IsSmall(drawn.call.dims)) others.emplace_back("by the definition", RunDefinition(drawn));
  if (drawn.Splits() && !drawn.bounds.empty()) {
    others.emplace_back("alone", RunAlone(drawn));
  } else if (drawn.Splits() && drawn.call.dims.tokens > 0) {
    others.emplace_back("in pieces", RunPieces(drawn, cut));
    others.emplace_back("token by token", RunPieces(drawn, 1));
    others.emplace_back("by a decoder", RunDecoder(drawn));
  }
  const Judge judge(drawn, whole);
  for (const auto& [what, answer] : others) judge.Compare(answer, drawn.Text() + ": " + what);
}

}  // namespace ttr::fuzz
