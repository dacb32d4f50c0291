#include "tools/bench_work.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "tools/bench_least_squares.h"
#include "ttr/error.h"
#include "ttr/util/random.h"

namespace ttr::tools {
namespace {

// Exponentials a token and memory that the decay asks for.
double Exponentials(const Recipe& recipe, const Dims& dims) {
  const double channels = static_cast<double>(
      recipe.function.kind == FunctionClass::kConstant ? dims.value_dim : dims.key_dim);
  const double phases = recipe.weights.phase ? 2 * channels : 0;
  switch (recipe.weights.decay) {
    case Decay::kNone:
    case Decay::kConstant:
    case Decay::kRetention: return phases;
    case Decay::kScalar: return phases + 1;
    case Decay::kChannel: return phases + channels;
    case Decay::kMatrix: return static_cast<double>(dims.key_dim * dims.value_dim);
  }
  return 0;
}

}  // namespace

bool KeepsPairs(const Recipe& recipe) {
  for (const StateSpec& spec : StateSpecs(recipe)) {
    if (std::find(spec.shape.begin(), spec.shape.end(), Axis::kPairs) != spec.shape.end()) {
      return true;
    }
  }
  return false;
}

Work::Work(std::string name, const Recipe& recipe, Setting setting, Executor& executor,
           BenchMemory& memory)
    : name_(std::move(name)),
      setting_(std::move(setting)),
      plan_(MakePlan(recipe, setting_.dims)),
      layer_(std::make_shared<const Layer>(recipe)),
      executor_(&executor) {
  const Dims& dims = setting_.dims;
  inputs_ = memory.MakeInputs(recipe, dims, setting_.dtype);
  if (setting_.reach > 0) {
    const double span = setting_.reach * static_cast<double>(dims.tokens);
    inputs_ = memory.Drifting(inputs_, recipe.similarity.bandwidth / span);
  }
  const TensorView y = memory.Take("y", setting_.dtype,
                                   {dims.batch, dims.tokens, dims.output_heads(), dims.value_dim});
  outputs_ = {.y = y, .status = {}};
  if (setting_.slots) {
    MixSlots(memory);
  } else if (setting_.decoder) {
    memory_.decoder = memory.Bytes("decoder", Decoder::Bytes(*layer_, dims, DecoderSetting()));
  } else if (setting_.pairs > 0) {
    KeepPairs(memory);
  } else if (!KeepsPairs(recipe) && recipe.reading.causal) {
    state_ = memory.Memory(*layer_, inputs_);
  }
  if (CarriesGram(recipe)) {
    outputs_.status =
        memory.Take("status", DType::kInt8, {dims.batch, dims.tokens, dims.output_heads()});
    if (setting_.decoder || !state_.empty()) start_ = OneHead(memory);
  }
  std::size_t scratch = layer_->ScratchBytes(dims, setting_.threads);
  if (setting_.doing == Doing::kForwardBackward) {
    gradients_ = memory.Gradients(inputs_);
    scratch = std::max(scratch, layer_->BackwardScratchBytes(dims, setting_.threads));
    memory_.saved = memory.Bytes("saved", layer_->SavedBytes(dims));
  }
  memory_.scratch = memory.Bytes("scratch", scratch);
  FindDemand();
}

void Work::FindDemand() {
  const Recipe& recipe = layer_->recipe();
  const Dims& dims = setting_.dims;
  const TensorView& y = outputs_.y;
  Dims kept = dims;
  kept.tokens = std::max(dims.tokens, setting_.pairs);
  const Cost cost = EstimateCost(recipe, layer_->plan(), kept);
  const auto units = static_cast<double>(dims.batch * dims.tokens * dims.heads);
  const double y_bytes =
      static_cast<double>(y.shape().elements()) * static_cast<double>(SizeOf(y.dtype()));
  const double stream = BytesOf(inputs_) + y_bytes;
  const bool decodes = setting_.doing == Doing::kSteps;
  // The backward pass of a product is two products.
  const double passes = setting_.doing == Doing::kForwardBackward ? 3 : 1;
  demand_.flops = passes * (CarriesGram(recipe) ? LeastSquaresFlops(recipe, dims, setting_.decoder)
                                                : cost.flops_per_token);
  demand_.exps = passes * Exponentials(recipe, dims);
  if (KeepsPairs(recipe)) {
    demand_.exps += demand_.flops / static_cast<double>(2 * (dims.key_dim + dims.value_dim));
  }
  demand_.stream_bytes = passes * stream / units;
  double state = decodes ? cost.state_bytes : 0;
  if (setting_.pairs > 0) {
    state *= static_cast<double>(SizeOf(setting_.dtype)) / SizeOf(DType::kFloat32);
    demand_.pairs_bytes = state;
  } else {
    demand_.state_bytes = 2 * state;
  }
  demand_.footprint = passes * stream + state * static_cast<double>(dims.heads);
}

void Work::KeepPairs(BenchMemory& memory) {
  constexpr std::int64_t kDrawn = 4099;  // a prime, so that rows differ
  std::vector<double> drawn(kDrawn);
  CounterRandom random(7, 0);
  for (double& number : drawn) number = random.Normal();
  for (const StateSpec& spec : layer_->requirements().state) {
    const bool of_pairs = spec.role == EntryRole::kPairs;
    const DType dtype = spec.counts() ? DType::kInt64 : of_pairs ? setting_.dtype : DType::kFloat32;
    const Shape shape = StateShape(spec, layer_->recipe(), setting_.dims, setting_.pairs);
    const TensorView view = memory.Take(spec.name, dtype, shape);
    // Memory that nobody has written may be one page of zeros, and keys that are all alike
    // singular.
    for (std::int64_t i = 0; !spec.counts() && i < shape.elements(); ++i) {
      StoreElement(view.data(), dtype, i, drawn[static_cast<std::size_t>(i % kDrawn)]);
    }
    state_.Bind(spec.name, view);
  }
}

// As many slots as rows, each row's far from its neighbours'.
void Work::MixSlots(BenchMemory& memory) {
  Dims one = setting_.dims;
  one.batch = 1;
  const std::int64_t rows = setting_.dims.batch;
  memory_.decoder =
      memory.Bytes("pool", static_cast<std::size_t>(rows) * StatePool::SlotBytes(*layer_, one));
  constexpr std::int64_t kApart = 37;  // prime to the number of rows, a power of two
  for (std::int64_t row = 0; row < rows; ++row) slots_.push_back(row * kApart % rows);
}

void Work::Run() {
  if (setting_.pairs > 0) {  // the last of them is written anew
    const TensorView length = state_.Get("state.length");
    std::fill_n(length.as<std::int64_t>(), length.shape().elements(), setting_.pairs - 1);
  }
  const CallOptions options{.executor = executor_,
                            .scratch = memory_.scratch,
                            .bfloat16_products = setting_.bfloat16_products};
  State fresh;
  State& state = state_.empty() ? fresh : state_;
  switch (setting_.doing) {
    case Doing::kForward: layer_->Forward(inputs_, state, outputs_, options); break;
    case Doing::kSteps:
      if (pool_) {
        pool_->Step(slots_, inputs_, outputs_, options);
      } else if (decoder_) {
        decoder_->Step(inputs_, outputs_, options);
      } else {
        layer_->Step(inputs_, state, outputs_, options);
      }
      break;
    case Doing::kForwardBackward: {
      const CallOptions saving{
          .executor = executor_, .scratch = memory_.scratch, .saved = memory_.saved};
      layer_->Forward(inputs_, state, outputs_, saving);
      layer_->Backward(inputs_, {}, outputs_.y, {}, gradients_, initial_gradient_, saving);
      break;
    }
  }
}

double Work::Once(int count) {
  const double start = Now();
  for (int i = 0; i < count; ++i) Run();
  return (Now() - start) / count;
}

// Gram matrices grow with every call that goes on from the last, and those of a single token's key
// become singular as no model's are. So such works begin every sample where they began the first:
// at the recipe's start, single tokens behind a sequence of full rank.
State Work::OneHead(BenchMemory& memory) const {
  const Recipe& recipe = layer_->recipe();
  Dims dims = setting_.dims;
  dims.heads = dims.query_heads = dims.key_heads = dims.value_heads = 1;
  const bool behind = setting_.doing == Doing::kSteps;
  if (behind) dims.tokens = TokensOfFullRank(recipe, dims);
  const Inputs inputs = memory.MakeInputs(recipe, dims, setting_.dtype);
  State start = layer_->InitialState(inputs);
  if (behind) layer_->Memorize(inputs, start, {.executor = executor_});
  return start;
}

DecoderOptions Work::DecoderSetting() const {
  return {.state = setting_.state, .draft = setting_.draft ? setting_.dims.tokens : 0};
}

void Work::Restore() {
  if (setting_.slots) {
    std::ranges::fill(memory_.decoder, std::byte{});
    Dims one = setting_.dims;
    one.batch = 1;
    pool_.emplace(*layer_, one, setting_.dims.batch, DecoderOptions{.memory = memory_.decoder});
    return;
  }
  if (setting_.decoder) {
    // Others have used its memory since the last sample.
    std::ranges::fill(memory_.decoder, std::byte{});
    DecoderOptions options = DecoderSetting();
    options.memory = memory_.decoder;
    decoder_.emplace(*layer_, setting_.dims, options);
    decoder_->Start(layer_->InitialState(inputs_));
  }
  if (IsNarrow(setting_.state)) {  // what state() gives is a copy
    State start = layer_->InitialState(inputs_);
    Fill(start);
    decoder_->Start(start);
  } else {
    Fill(decoder_ ? decoder_->state() : state_);
  }
}

void Work::Fill(const State& state) const {
  for (const State::Entry& entry : start_.entries()) {
    const TensorView view = state.Get(entry.name);
    for (std::int64_t head = 0; head < view.shape()[1]; ++head) {
      CopyInto(entry.view, view.Slice(1, head, 1));
    }
  }
}

double Work::SolvedShare() const {
  const TensorView& status = outputs_.status;
  if (!status.defined()) return 1;
  const std::int64_t count = status.shape().elements();
  const auto* const values = status.as<std::int8_t>();
  const auto solved = std::count(values, values + count, std::int8_t(Status::kSolved));
  return static_cast<double>(solved) / static_cast<double>(count);
}

void Work::Sample() {
  if (ns_.size() >= kLeastSamples && spent_ > kShareSeconds) return;
  Again();
}

// Calls: as many tokens as wait beside a narrow state.
constexpr int kRound = 8;

void Work::Again() {
  Restore();
  const Dims& dims = setting_.dims;
  const auto units = static_cast<double>(dims.batch * dims.tokens * dims.heads);
  const double before = IssueRate(setting_.threads);
  // Writes that wait are done every few calls: a sample has whole rounds of them, and begins
  // behind one.
  const int round = IsNarrow(setting_.state) || setting_.draft ? kRound : 1;
  if (count_ == 0) {
    double seconds = Once(1);  // touches its memory
    if (seconds < 10 * kSampleSeconds) seconds = Once(1);
    count_ = static_cast<int>(std::clamp(kSampleSeconds / seconds, 1.0, 1e5));
    count_ = (count_ + round - 1) / round * round;
    if (round > 1) Once(round);
  } else if (count_ > 1 || setting_.decoder || setting_.slots) {
    // Brings what it reads back into the caches, and wakes the executor's threads; a decoder's
    // first token makes its factor, or has no deferred write to do.
    Once(round);
  }
  const double seconds = Once(count_);
  const double after = IssueRate(setting_.threads);
  spent_ += seconds * count_;
  ns_.Add(1e9 * seconds / units, std::min(before, after));
  solved_ = std::min(solved_, SolvedShare());
}

double Work::Bytes() const {
  double bytes = BytesOf(inputs_) + BytesOf(gradients_);
  const auto add = [&](const TensorView& view) {
    bytes +=
        static_cast<double>(view.shape().elements()) * static_cast<double>(SizeOf(view.dtype()));
  };
  add(outputs_.y);
  for (const State::Entry& entry : state_.entries()) add(entry.view);
  return bytes + static_cast<double>(memory_.bytes());
}

double Work::x() const {
  const Dims& dims = setting_.dims;
  if (setting_.variant == "T") return static_cast<double>(dims.tokens);
  if (setting_.variant == "d") return static_cast<double>(dims.key_dim);
  if (setting_.variant == "H") return static_cast<double>(dims.heads);
  return setting_.threads;
}

Tensor Work::Answers(bool wide) const {
  std::vector<Tensor> copies;
  Inputs inputs = inputs_;
  for (const InputField& field : InputFields()) {
    TensorView& view = inputs.*field.view;
    if (!wide || !view.defined() || !IsFloating(view.dtype())) continue;
    view = copies.emplace_back(Tensor::Copy(view, DType::kFloat32)).view();
  }
  Tensor y(wide ? DType::kFloat32 : outputs_.y.dtype(), outputs_.y.shape());
  State state;
  layer_->Forward(inputs, state, {.y = y.view(), .status = {}},
                  {.executor = executor_,
                   .scratch = memory_.scratch,
                   .bfloat16_products = setting_.bfloat16_products});
  return y;
}

bool HasFastBackward(const Recipe& recipe) { return Layer(recipe).HasGradients(); }

bool HasDecoder(const Recipe& recipe, const Dims& dims) {
  // Its memory has more than the entries of the state, each of which begins at a multiple of 64.
  const Layer layer(recipe);
  std::size_t state = 64;
  for (const StateSpec& spec : layer.requirements().state) {
    const std::int64_t bytes = StateShape(spec, recipe, dims).elements() * (spec.counts() ? 8 : 4);
    state += static_cast<std::size_t>((bytes + 63) / 64 * 64);
  }
  return Decoder::Bytes(layer, dims) > state;
}

}  // namespace ttr::tools
