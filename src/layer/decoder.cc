#include "ttr/decoder.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "src/adapters/engine.h"
#include "src/adapters/registry.h"
#include "src/core/fingerprint.h"
#include "src/core/view_checks.h"
#include "src/layer/check_writes.h"
#include "src/layer/copy_of_all.h"
#include "src/layer/decoder_memory.h"
#include "src/layer/run_call.h"
#include "src/layer/widened_state.h"
#include "src/recipe/check_sizes.h"
#include "src/recipe/family.h"
#include "ttr/error.h"

namespace ttr {
namespace {

/// A number for the recipe and sizes that the memory of a decoder belongs to: never 0.
std::uint64_t FingerprintOf(std::size_t recipe, const Dims& dims, DType dtype,
                            const Pendency& pendency) {
  Fingerprint hash;
  hash.Add(pendency.draft);
  hash.Add(pendency.window);
  hash.Add(std::uint64_t{recipe});
  for (const std::int64_t size :
       {dims.states(), dims.heads, dims.key_dim, dims.value_dim, dims.features, dims.hidden}) {
    hash.Add(size);
  }
  hash.Add(static_cast<std::int64_t>(dtype));
  return hash.value() | 1;
}

/// The sizes of decoders that are run together, as of one.
Dims Together(Dims dims, std::int64_t decoders) {
  dims.batch = dims.states() * decoders;
  dims.sequences = 0;
  return dims;
}

/// Does an entry lie in this memory?
bool Meets(const State& state, std::span<const std::byte> memory) {
  Extent extent;
  extent.begin = memory.data();
  extent.end = memory.data() + memory.size();
  return std::ranges::any_of(state.entries(), [&](const State::Entry& entry) {
    return Extent("Start", entry.name, entry.view).Meets(extent);
  });
}

/// Tokens after which a state is rounded, if the caller does not say. Twice as many would divide
/// the error by the root of 2; keys and values that wait would fill a third of a slot, and products
/// with them cost more than the writes that are saved.
constexpr std::int64_t kRoundedWindow = 8;

/// Takes the reports that this engine leaves to the definition out of `outputs`; nothing where
/// there are none.
std::optional<Outputs> TakeReports(const Engine& engine, const Recipe& recipe, Outputs& outputs) {
  Outputs apart;
  bool any = false;
  for (const ReportField& report : kReports) {
    TensorView& view = outputs.*report.view;
    if (!view.defined() || engine.HasReport(report) || !HasReport(recipe, report)) continue;
    std::swap(apart.*report.view, view);
    any = true;
  }
  return any ? std::optional(apart) : std::nullopt;
}

void CheckOptions(const Layer& layer, const DecoderOptions& options) {
  if (!IsFloating(options.state)) {
    throw Error("Decoder", "state", "float32, float64, bfloat16 or float16", Name(options.state));
  }
  if (IsNarrow(options.state) && !Decoder::KeepsDrafts(layer)) {
    throw Error("Decoder", "state",
                "float32 or float64 for this layer, whose writes cannot wait: its memory would be "
                "rounded at every token",
                Name(options.state));
  }
  for (const auto& [name, tokens] :
       {std::pair("draft", options.draft), std::pair("window", options.window)}) {
    if (tokens >= 0 && tokens <= Decoder::kMostTokens) continue;
    throw Error("Decoder", name, "from 0 to " + std::to_string(Decoder::kMostTokens),
                std::to_string(tokens));
  }
  if (options.together < 1) {
    throw Error("Decoder", "together", "1 or more", std::to_string(options.together));
  }
}

}  // namespace

void CheckDecoder(const Layer& layer, std::int64_t draft, bool in_callers_memory) {
  if (draft > 0 && in_callers_memory && !Decoder::KeepsDrafts(layer)) {
    throw Error("Decoder", "draft", "0 in memory of the caller's: this layer needs copies of it",
                std::to_string(draft));
  }
  if (!layer.recipe().reading.causal) {
    throw Error("Decoder", "recipe", "causal: one that goes on from token to token",
                ToString(layer.recipe()));
  }
}

Pendency PendencyOf(const DecoderOptions& options) {
  const bool chosen = options.window > 0 || !IsNarrow(options.state);
  return {.window = chosen ? options.window : kRoundedWindow, .draft = options.draft};
}

void CheckDecoderMemory(std::string_view op, std::span<const std::byte> memory, std::size_t bytes) {
  if (memory.size() < bytes) {
    throw Error(op, "memory", "at least " + std::to_string(bytes) + " bytes",
                std::to_string(memory.size()));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  if (address % kDecoderUnit != 0) {
    throw Error(op, "memory", "at a multiple of 64",
                std::to_string(address % kDecoderUnit) + " beyond one");
  }
}

std::size_t Decoder::Bytes(const Layer& layer, const Dims& dims, DType state) {
  return Bytes(layer, dims, DecoderOptions{.state = state});
}

std::size_t Decoder::Bytes(const Layer& layer, const Dims& dims, const DecoderOptions& options) {
  CheckOptions(layer, options);
  const DType state = options.state;
  CheckDims("Decoder", dims);
  const Recipe& recipe = layer.recipe();
  Dims one = dims;
  one.tokens = 1;
  CheckSizes("Decoder", recipe, one);
  if (KeepsPairs(recipe)) return 0;
  std::size_t bytes = kDecoderUnit;
  for (const StateSpec& spec : layer.requirements().state) {
    bytes += DecoderBytesOf(spec, recipe, dims, state);
  }
  const Engine& engine = *layer.engine_;
  std::int64_t numbers = engine.AuxiliaryNumbers(recipe, dims, state, nullptr);
  const Pendency pendency = PendencyOf(options);
  const bool asked = pendency.asked() && KeepsDrafts(layer);
  if (asked || engine.Defers(recipe, Together(dims, options.together), state)) {
    numbers = std::max(numbers, engine.AuxiliaryNumbers(recipe, dims, state, &pendency));
  }
  const auto memories = static_cast<std::size_t>(dims.states() * dims.heads);
  return bytes + memories * static_cast<std::size_t>(numbers) * ttr::SizeOf(WideOf(state));
}

Decoder::Decoder(const Layer& layer, const Dims& dims, DType state, std::span<std::byte> memory)
    : Decoder(layer, dims, DecoderOptions{.state = state, .memory = memory}) {}

Decoder::Decoder(const Layer& layer, const Dims& dims, const DecoderOptions& options, Unattached)
    : layer_(&layer),
      dims_(dims),
      dtype_(options.state),
      draft_(options.draft),
      window_(PendencyOf(options).window),
      together_(options.together) {
  dims_.tokens = 1;
}

Decoder::Decoder(const Layer& layer, const Dims& dims, const DecoderOptions& options)
    : Decoder(layer, dims, options, Unattached()) {
  const std::size_t bytes = Bytes(layer, dims, options);
  std::span<std::byte> memory = options.memory;
  CheckDecoder(layer, draft_, !memory.empty());
  if (bytes == 0) {
    if (memory.empty()) return;
    throw Error("Decoder", "memory", "empty, as this memory keeps its pairs and grows",
                std::to_string(memory.size()) + " bytes");
  }
  if (memory.empty()) {
    owned_ = Tensor(DType::kInt8, {static_cast<std::int64_t>(bytes)});
    memory = {static_cast<std::byte*>(owned_.data()), bytes};
  }
  CheckDecoderMemory("Decoder", memory, bytes);
  Attach(memory.first(bytes));
}

void Decoder::Attach(std::span<std::byte> memory) {
  memory_ = memory;
  behind_ = kDecoderUnit;
  for (const StateSpec& spec : layer_->requirements().state) {
    behind_ += DecoderBytesOf(spec, layer_->recipe(), dims_, dtype_);
  }
  const std::uint64_t mine = Fingerprint();
  // What the header says decides how much of the memory is read.
  const Header& there = header();
  const bool nothing = there == Header();
  const bool flags = (there.started | there.defers | there.stale | 1) == 1;
  const bool numbers = there.numbers == 0 || there.numbers == AuxiliaryNumbers(there.defers != 0);
  if (!nothing && !(there.fingerprint == mine && flags && numbers)) {
    throw Error("Decoder", "memory", "zeros, or left by a decoder of the same layer and sizes",
                "something else");
  }
  if (nothing) header().fingerprint = mine;
  state_.clear();
  if (header().started == 0) return;
  std::byte* at = memory_.data() + kDecoderUnit;
  for (const StateSpec& spec : layer_->requirements().state) {
    state_.Bind(spec.name, TensorView(at, DecoderTypeOf(spec, dtype_),
                                      StateShape(spec, layer_->recipe(), dims_)));
    at += DecoderBytesOf(spec, layer_->recipe(), dims_, dtype_);
  }
}

Decoder::Decoder(const Decoder& other)
    : layer_(other.layer_),
      dims_(other.dims_),
      dtype_(other.dtype_),
      draft_(other.draft_),
      window_(other.window_),
      together_(other.together_),
      kept_(other.kept_),
      tokens_kept_(other.tokens_kept_) {
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

std::uint64_t Decoder::Fingerprint() const {
  return FingerprintOf(layer_->recipe_hash_, dims_, dtype_, pendency());
}

Decoder::Header& Decoder::header() const { return *reinterpret_cast<Header*>(memory_.data()); }

void Decoder::Start(const State& state) {
  if (&state == &state_) return;  // its own: there already
  StartFrom(state);
  ForgetDrafts();
}

void Decoder::StartFrom(const State& state) {
  CheckState("Start", layer_->requirements(), dims_, state);
  for (const StateSpec& spec : layer_->requirements().state) {
    if (state.empty() || memory_.empty() || state.Get(spec.name).defined()) continue;
    throw Error("Start", spec.name, "there, as the state is not empty", "absent");
  }
  if (memory_.empty()) {        // pairs
    state_ = CopyOfAll(state);  // made before the old one goes, whose memory `state` may share
    pair_numbers_ = {};
    return;
  }
  if (!Meets(state, memory_)) return Begin(state);
  Flush(DefaultExecutor());  // what is deferred belongs to it
  Begin(CopyOfAll(state));
}

void Decoder::Begin(const State& state) {
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

std::span<std::byte> Decoder::Before() const {
  return memory_.first(std::min(memory_.size(), kDecoderUnit));
}

std::span<std::byte> Decoder::Behind() const { return memory_.subspan(behind_); }

TensorView Decoder::Auxiliary() const {
  if (memory_.empty() || header().numbers == 0) return {};
  return TensorView(Behind().data(), WideOf(dtype_),
                    {dims_.states(), dims_.heads, header().numbers});
}

std::int64_t Decoder::AuxiliaryNumbers(bool defers) const {
  const Pendency asked = pendency();
  return layer_->engine_->AuxiliaryNumbers(layer_->recipe(), dims_, dtype_,
                                           defers ? &asked : nullptr);
}

Pendency Decoder::pendency() const { return {.window = window_, .draft = draft_}; }

bool Decoder::PairsWait() const { return pendency().asked() && KeepsDrafts(*layer_); }

bool Decoder::stale() const { return header().stale != 0; }

bool Decoder::Defers() const {
  return PairsWait() ||
         layer_->engine_->Defers(layer_->recipe(), Together(dims_, together_), dtype_);
}

bool Decoder::IsPrepared(bool defers) const {
  return header().numbers == AuxiliaryNumbers(defers) && (header().defers != 0) == defers;
}

State Decoder::NoPairs() const {
  State none;
  for (const StateSpec& spec : layer_->requirements().state) {
    none.Set(spec.name,
             Tensor(DecoderTypeOf(spec, dtype_), StateShape(spec, layer_->recipe(), dims_)));
  }
  return none;
}

TensorView Decoder::PrepareAuxiliary(bool defers, Executor& executor) {
  if (!defers) Flush(executor);
  if (!IsPrepared(defers)) {
    header().numbers = AuxiliaryNumbers(defers);
    header().defers = defers ? 1 : 0;
    if (const TensorView fresh = Auxiliary(); fresh.defined()) {
      std::memset(fresh.data(), 0,
                  static_cast<std::size_t>(fresh.shape().elements()) * ttr::SizeOf(fresh.dtype()));
    }
  }
  return Auxiliary();
}

void Decoder::Run(std::string_view op, const Inputs& inputs, const Outputs& outputs, bool reads,
                  const CallOptions& options) {
  const Needs needs = reads ? Needs::kBoth : Needs::kWrite;
  const Operator runs{
      op,   layer_->requirements(), *layer_->engine_, layer_->recipe_hash_, *layer_->prepared_,
      needs};
  if (!reads) RequireOneToken(op, layer_->recipe(), inputs);
  const bool first = memory_.empty() ? state_.empty() : header().started == 0;
  const Pendency asked = pendency();
  // A write waits for the next token alone: of several tokens there is nothing to wait for.
  const bool one = inputs.v.rank() == 4 && inputs.v.size(1) == RowsPerToken(layer_->recipe());
  const bool defers = reads && Defers() && (one || PairsWait());
  if (!memory_.empty() && (first || !IsPrepared(defers))) {  // it is written before RunCall()
    const Dims dims = CheckCall(op, layer_->requirements(), inputs, state_, needs);
    CheckOutputs(op, dims, inputs, {.state = State(), .before = memory_}, outputs, options, needs);
  }
  if (first) StartFrom(memory_.empty() ? NoPairs() : layer_->InitialState(inputs));
  const TensorView numbers =
      memory_.empty() ? TensorView() : PrepareAuxiliary(defers, ExecutorOf(options));
  try {
    RunCall(runs, inputs, state_, outputs, options,
            {.numbers = numbers,
             .pendency = defers ? &asked : nullptr,
             .of_pairs = memory_.empty() ? &pair_numbers_ : nullptr,
             .before = Before(),
             .behind = Behind()});
  } catch (...) {
    if (first) StartFrom({});
    throw;
  }
  if (!memory_.empty()) header().stale = defers ? 1 : 0;
}

void Decoder::Step(const Inputs& inputs, const Outputs& outputs, const CallOptions& options) {
  const Requirements& requirements = layer_->requirements();
  Outputs own = outputs;
  if (auto apart = TakeReports(*layer_->engine_, layer_->recipe(), own)) {
    const Dims dims = CheckCall("Step", requirements, inputs, state_, Needs::kBoth);
    CheckOutputs("Step", dims, inputs, {.state = State(), .before = memory_}, outputs, options,
                 Needs::kBoth);
    Decoder copy = *this;  // whose state is written and forgotten
    State state = CopyOfAll(copy.state(options));
    const Tensor y(outputs.y.dtype(), outputs.y.shape());
    apart->y = y;
    RunCall({"Step", requirements, DefinitionEngine(), layer_->recipe_hash_, *layer_->prepared_},
            inputs, state, *apart, {.executor = options.executor});
    return Step(inputs, own, options);
  }
  if (draft_ > 0 && !PairsWait()) return StepOneByOne(inputs, outputs, options);
  Run("Step", inputs, outputs, true, options);
}

void Decoder::Memorize(const Inputs& inputs, const CallOptions& options) {
  Run("Memorize", inputs, {}, false, options);
  ForgetDrafts();
}

void Decoder::Retrieve(const Inputs& inputs, const Outputs& outputs,
                       const CallOptions& options) const {
  Read(*layer_, "Retrieve", inputs, outputs, options);
}

void Decoder::Read(const Layer& reader, std::string_view op, const Inputs& inputs,
                   const Outputs& outputs, const CallOptions& options) const {
  const bool rounded = IsNarrow(dtype_);
  if (!rounded && !memory_.empty() && header().stale != 0) {
    Decoder copy = *this;
    copy.Flush(ExecutorOf(options));
    return copy.Read(reader, op, inputs, outputs, options);
  }
  const bool one = inputs.q.rank() == 4 && inputs.q.size(1) == 1;
  State read = rounded ? WideState(ExecutorOf(options)) : state_.Shared();
  RunCall({op, reader.requirements(), *reader.engine_, reader.recipe_hash_, *reader.prepared_,
           Needs::kRead},
          inputs, read, outputs, options,
          {.numbers = one ? auxiliary() : TensorView(), .before = Before(), .behind = Behind()});
}

const State& Decoder::state(const CallOptions& options) {
  if (IsNarrow(dtype_)) return wide_ = WideState(ExecutorOf(options));
  if (!memory_.empty()) Flush(ExecutorOf(options));
  return state_;
}

State Decoder::WideState(Executor& executor) const {
  State wide = Widened(state_);
  if (header().stale != 0) {
    const Tensor waiting = Tensor::Copy(Auxiliary());  // which Flush() marks as written
    layer_->engine_->Flush(layer_->recipe(), wide, waiting, pendency(), executor);
  }
  return wide;
}

void Decoder::Flush(Executor& executor) {
  if (header().stale == 0) return;
  layer_->engine_->Flush(layer_->recipe(), state_, Auxiliary(), pendency(), executor);
  header().stale = 0;
  header().numbers = 0;
}

TensorView Decoder::auxiliary() const {
  return memory_.empty() || header().defers != 0 ? TensorView() : Auxiliary();
}

void Decoder::SetAuxiliary(const TensorView& numbers) {
  const Tensor given = Tensor::Copy(numbers);  // which may lie where they go
  const TensorView mine =
      memory_.empty() ? TensorView() : PrepareAuxiliary(false, DefaultExecutor());
  if (!mine.defined() || !(mine.shape() == numbers.shape()) || numbers.dtype() != mine.dtype()) {
    throw Error("SetAuxiliary", "numbers",
                mine.defined() ? std::string(Name(mine.dtype())) + " " + mine.shape().ToString()
                               : "absent, as this layer keeps none",
                std::string(Name(numbers.dtype())) + " " + numbers.shape().ToString());
  }
  CopyInto(given, mine);
}

}  // namespace ttr
