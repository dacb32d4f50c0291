#include "ttr/decoder.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "src/adapters/engine.h"
#include "src/layer/run_call.h"
#include "src/recipe/family.h"
#include "ttr/error.h"

namespace ttr {
namespace {

constexpr std::size_t kUnit = 64;

std::size_t RoundUp(std::size_t bytes) { return (bytes + kUnit - 1) / kUnit * kUnit; }

/// What the memory of a decoder is of: never 0.
std::uint64_t Fingerprint(std::size_t recipe, const Dims& dims, DType dtype) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&](std::uint64_t number) { hash = (hash ^ number) * 0x100000001b3; };
  mix(recipe);
  for (const std::int64_t size :
       {dims.states(), dims.heads, dims.key_dim, dims.value_dim, dims.features, dims.hidden}) {
    mix(static_cast<std::uint64_t>(size));
  }
  mix(static_cast<std::uint64_t>(dtype));
  return hash | 1;
}

DType TypeOf(const StateSpec& spec, DType dtype) { return spec.counts ? DType::kInt64 : dtype; }

std::size_t BytesOf(const StateSpec& spec, const Recipe& recipe, const Dims& dims, DType dtype) {
  const auto elements = static_cast<std::size_t>(StateShape(spec, recipe, dims).elements());
  return RoundUp(elements * ttr::SizeOf(TypeOf(spec, dtype)));
}

}  // namespace

/// At the beginning of the memory. All zeros: nothing has been memorized.
struct Decoder::Header {
  std::uint64_t fingerprint = 0;
  std::int64_t started = 0;  // are the entries of the state there?
  std::int64_t defers = 0;   // is the auxiliary tensor that of steps that defer?
  std::int64_t stale = 0;    // has it what the entries lack?
  std::int64_t numbers = 0;  // of it, a memory; 0: there is none
  bool operator==(const Header&) const = default;
};

std::size_t Decoder::Bytes(const Layer& layer, const Dims& dims, DType state) {
  CheckDims("Decoder", dims);
  const Recipe& recipe = layer.recipe();
  if (KeepsPairs(recipe)) return 0;
  std::size_t bytes = kUnit;
  for (const StateSpec& spec : layer.requirements().state) {
    bytes += BytesOf(spec, recipe, dims, state);
  }
  const Engine& engine = *layer.engine_;
  std::int64_t numbers = engine.AuxiliaryNumbers(recipe, dims, state, false);
  if (engine.Defers(recipe, dims, state)) {
    numbers = std::max(numbers, engine.AuxiliaryNumbers(recipe, dims, state, true));
  }
  const auto memories = static_cast<std::size_t>(dims.states() * dims.heads);
  return bytes + memories * static_cast<std::size_t>(numbers) * ttr::SizeOf(state);
}

Decoder::Decoder(const Layer& layer, const Dims& dims, DType state, std::span<std::byte> memory)
    : layer_(&layer), dims_(dims), dtype_(state) {
  const std::size_t bytes = Bytes(layer, dims, state);
  if (!layer.recipe().reading.causal) {
    throw Error("Decoder", "recipe", "causal: one that goes on from token to token",
                ToString(layer.recipe()));
  }
  if (state != DType::kFloat32 && state != DType::kFloat64) {
    throw Error("Decoder", "state", "float32 or float64", Name(state));
  }
  dims_.tokens = 1;
  if (bytes == 0) {
    if (memory.empty()) return;
    throw Error("Decoder", "memory", "empty, as this memory keeps its pairs and grows",
                std::to_string(memory.size()) + " bytes");
  }
  if (memory.empty()) {
    owned_ = Tensor(DType::kInt8, {static_cast<std::int64_t>(bytes)});
    memory = {static_cast<std::byte*>(owned_.data()), bytes};
  }
  if (memory.size() < bytes) {
    throw Error("Decoder", "memory", "at least " + std::to_string(bytes) + " bytes",
                std::to_string(memory.size()));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  if (address % kUnit != 0) {
    throw Error("Decoder", "memory", "at a multiple of 64",
                std::to_string(address % kUnit) + " beyond one");
  }
  Attach(memory.first(bytes));
}

void Decoder::Attach(std::span<std::byte> memory) {
  memory_ = memory;
  const std::uint64_t mine = Fingerprint(layer_->recipe_hash_, dims_, dtype_);
  // What the header says decides how much of the memory is read.
  const Header& there = header();
  const bool nothing = there == Header();
  const bool flags = (there.started | there.defers | there.stale | 1) == 1;
  const bool numbers = there.numbers == 0 || there.numbers == AuxiliaryNumbers(there.defers != 0);
  if (!nothing && !(there.fingerprint == mine && flags && numbers)) {
    throw Error("Decoder", "memory", "zeros, or left by a decoder of the same layer and sizes",
                "something else");
  }
  header().fingerprint = mine;
  state_.clear();
  if (header().started == 0) return;
  std::byte* at = memory_.data() + kUnit;
  for (const StateSpec& spec : layer_->requirements().state) {
    state_.Bind(spec.name,
                TensorView(at, TypeOf(spec, dtype_), StateShape(spec, layer_->recipe(), dims_)));
    at += BytesOf(spec, layer_->recipe(), dims_, dtype_);
  }
}

Decoder::Decoder(const Decoder& other)
    : layer_(other.layer_), dims_(other.dims_), dtype_(other.dtype_) {
  if (other.memory_.empty()) {
    state_ = other.state_;
    return;
  }
  owned_ = Tensor(DType::kInt8, {static_cast<std::int64_t>(other.memory_.size())});
  std::memcpy(owned_.data(), other.memory_.data(), other.memory_.size());
  Attach({static_cast<std::byte*>(owned_.data()), other.memory_.size()});
}

Decoder& Decoder::operator=(const Decoder& other) {
  if (this != &other) *this = Decoder(other);
  return *this;
}

Decoder::Header& Decoder::header() const { return *reinterpret_cast<Header*>(memory_.data()); }

void Decoder::Start(const State& state) {
  if (&state == &state_) return;  // its own: there already
  CheckState("Start", layer_->requirements(), dims_, state);
  for (const StateSpec& spec : layer_->requirements().state) {
    if (state.empty() || memory_.empty() || state.Get(spec.name).defined()) continue;
    throw Error("Start", spec.name, "there, as the state is not empty", "absent");
  }
  if (memory_.empty()) {  // pairs
    state_.clear();
    pair_numbers_ = {};
    for (const State::Entry& entry : state.entries()) {
      state_.Set(entry.name, Tensor::Copy(entry.view));
    }
    return;
  }
  Header fresh;
  fresh.fingerprint = header().fingerprint;
  header() = fresh;
  state_.clear();
  if (state.empty()) return;
  header().started = 1;
  Attach(memory_);
  for (const State::Entry& entry : state_.entries()) {
    const TensorView from = state.Get(entry.name);
    if (from.shape() == entry.view.shape()) {
      CopyInto(from, entry.view);
      continue;
    }
    // Start weights that all sequences share.
    for (std::int64_t n = 0; n < entry.view.size(0); ++n) {
      const TensorView row = entry.view.Slice(0, n, 1);
      CopyInto(from, TensorView(row.data(), row.dtype(), from.shape()));
    }
  }
}

TensorView Decoder::Auxiliary() const {
  if (memory_.empty() || header().numbers == 0) return {};
  std::byte* at = memory_.data() + kUnit;
  for (const StateSpec& spec : layer_->requirements().state) {
    at += BytesOf(spec, layer_->recipe(), dims_, dtype_);
  }
  return TensorView(at, dtype_, {dims_.states(), dims_.heads, header().numbers});
}

std::int64_t Decoder::AuxiliaryNumbers(bool defers) const {
  return layer_->engine_->AuxiliaryNumbers(layer_->recipe(), dims_, dtype_, defers);
}

TensorView Decoder::PrepareAuxiliary(bool defers, Executor& executor) {
  const std::int64_t numbers = AuxiliaryNumbers(defers);
  if (!defers) Flush(executor);
  if (header().numbers != numbers || (header().defers != 0) != defers) {
    header().numbers = numbers;
    header().defers = defers ? 1 : 0;
    if (const TensorView fresh = Auxiliary(); fresh.defined()) {
      std::memset(fresh.data(), 0,
                  static_cast<std::size_t>(fresh.shape().elements()) * ttr::SizeOf(dtype_));
    }
  }
  return Auxiliary();
}

void Decoder::Run(std::string_view op, const Inputs& inputs, const Outputs& outputs, bool reads,
                  const CallOptions& options) {
  const Operator runs{op, layer_->requirements(), *layer_->engine_};
  const Needs needs = reads ? Needs::kBoth : Needs::kWrite;
  RequireOneToken(op, layer_->recipe(), inputs);
  if (memory_.empty()) {
    return RunCall(runs, inputs, state_, outputs, needs, options, {.of_pairs = &pair_numbers_});
  }
  const bool first = header().started == 0;
  if (first) {
    CheckCall(op, layer_->requirements(), inputs, {}, needs, options);
    Start(layer_->InitialState(inputs));
  }
  const bool defers = reads && layer_->engine_->Defers(layer_->recipe(), dims_, dtype_);
  const TensorView numbers = PrepareAuxiliary(defers, ExecutorOf(options));
  try {
    RunCall(runs, inputs, state_, outputs, needs, options, {numbers, defers});
  } catch (...) {
    if (first) Start({});
    throw;
  }
  header().stale = defers ? 1 : 0;
}

void Decoder::Step(const Inputs& inputs, const Outputs& outputs, const CallOptions& options) {
  Run("Step", inputs, outputs, true, options);
}

void Decoder::Memorize(const Inputs& inputs, const CallOptions& options) {
  Run("Memorize", inputs, {}, false, options);
}

void Decoder::Retrieve(const Inputs& inputs, const Outputs& outputs,
                       const CallOptions& options) const {
  Read(*layer_, "Retrieve", inputs, outputs, options);
}

void Decoder::Read(const Layer& reader, std::string_view op, const Inputs& inputs,
                   const Outputs& outputs, const CallOptions& options) const {
  if (!memory_.empty() && header().stale != 0) {
    Decoder copy = *this;
    copy.Flush(ExecutorOf(options));
    return copy.Read(reader, op, inputs, outputs, options);
  }
  const bool one = inputs.q.rank() == 4 && inputs.q.size(1) == 1;
  State read = state_.Shared();
  RunCall({op, reader.requirements(), *reader.engine_}, inputs, read, outputs, Needs::kRead,
          options, {one ? auxiliary() : TensorView(), false});
}

const State& Decoder::state(const CallOptions& options) {
  if (!memory_.empty()) Flush(ExecutorOf(options));
  return state_;
}

void Decoder::Flush(Executor& executor) {
  if (header().stale == 0) return;
  layer_->engine_->Flush(layer_->recipe(), state_, Auxiliary(), executor);
  header().stale = 0;
  header().numbers = 0;
}

TensorView Decoder::auxiliary() const {
  return memory_.empty() || header().defers != 0 ? TensorView() : Auxiliary();
}

void Decoder::SetAuxiliary(const TensorView& numbers) {
  const TensorView mine =
      memory_.empty() ? TensorView() : PrepareAuxiliary(false, DefaultExecutor());
  if (!mine.defined() || !(mine.shape() == numbers.shape()) || numbers.dtype() != dtype_) {
    throw Error("SetAuxiliary", "numbers",
                mine.defined() ? std::string(Name(dtype_)) + " " + mine.shape().ToString()
                               : "absent, as this layer keeps none",
                std::string(Name(numbers.dtype())) + " " + numbers.shape().ToString());
  }
  CopyInto(numbers, mine);
}

}  // namespace ttr
