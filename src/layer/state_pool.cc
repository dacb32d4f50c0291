#include "ttr/state_pool.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "src/adapters/engine.h"
#include "src/adapters/registry.h"
#include "src/core/fill.h"
#include "src/layer/check_writes.h"
#include "src/layer/decoder_memory.h"
#include "src/layer/run_call.h"
#include "src/layer/tokens_of.h"
#include "src/recipe/family.h"
#include "ttr/error.h"

namespace ttr {
namespace {

constexpr std::string_view kOp = "Step";

/// The caller's tensors of some sequences: rows of the batch, or tokens of what is packed.
Inputs SequencesOf(const Requirements& requirements, const Inputs& inputs, std::int64_t first,
                   std::int64_t count, Tensor& bounds) {
  if (inputs.cu_seqlens.defined()) {
    const std::int64_t* const all = inputs.cu_seqlens.as<const std::int64_t>() + first;
    Inputs part = TokensOf(requirements, inputs, all[0], all[count] - all[0]);
    part.cu_seqlens = {};  // one sequence is packed with nothing
    if (count > 1) {
      bounds = Tensor(DType::kInt64, {count + 1});
      std::transform(all, all + count + 1, bounds.as<std::int64_t>().begin(),
                     [&](std::int64_t bound) { return bound - all[0]; });
      part.cu_seqlens = bounds;
    }
    return part;
  }
  Inputs part = inputs;
  for (const InputSpec& spec : requirements.inputs) {
    TensorView& view = part.*spec.view;
    if (view.defined() && spec.shapes.front().front() == Axis::kBatch) {
      view = view.Slice(0, first, count);
    }
  }
  return part;
}

Outputs SequencesOf(const Inputs& inputs, const Outputs& outputs, std::int64_t first,
                    std::int64_t count) {
  if (inputs.cu_seqlens.defined()) {
    const std::int64_t* const bounds = inputs.cu_seqlens.as<const std::int64_t>();
    return TokensOf(outputs, bounds[first], bounds[first + count] - bounds[first]);
  }
  const auto rows = [&](const TensorView& view) {
    return view.defined() ? view.Slice(0, first, count) : view;
  };
  Outputs part{.y = rows(outputs.y)};
  for (const ReportField& report : kReports) part.*report.view = rows(outputs.*report.view);
  return part;
}

/// A tensor of one slot, [1, ...], as that of so many slots.
TensorView OfSlots(const TensorView& one, std::int64_t slots, std::size_t slot_bytes) {
  std::array<std::int64_t, kMaxRank> sizes{}, strides{};
  const auto rank = static_cast<std::size_t>(one.rank());
  for (std::size_t axis = 0; axis < rank; ++axis) {
    sizes[axis] = one.size(static_cast<int>(axis));
    strides[axis] = one.stride(static_cast<int>(axis));
  }
  sizes[0] = slots;
  strides[0] = static_cast<std::int64_t>(slot_bytes / SizeOf(one.dtype()));
  return {one.data(), one.dtype(), Shape(std::span<const std::int64_t>(sizes.data(), rank)),
          std::span<const std::int64_t>(strides.data(), rank)};
}

}  // namespace

/// Neighbouring sequences of a call that all have a slot.
struct StatePool::Rows {
  std::span<const std::int64_t> slots;
  const Dims& dims;
  const Inputs& inputs;
  const Outputs& outputs;

  std::int64_t count() const { return static_cast<std::int64_t>(slots.size()); }
};

/// Rows of their own: some of a call's sequences.
struct StatePool::Part {
  /// Sequences first .. first + count.
  Part(const Requirements& requirements, std::span<const std::int64_t> all, const Inputs& given,
       const Outputs& results, std::int64_t first, std::int64_t count)
      : slots(all.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count))),
        inputs(SequencesOf(requirements, given, first, count, bounds)),
        outputs(SequencesOf(given, results, first, count)),
        dims(InferDims(kOp, requirements, inputs, Needs::kBoth)) {}

  Rows rows() const { return {slots, dims, inputs, outputs}; }

  std::span<const std::int64_t> slots;
  Tensor bounds{};  // memory of inputs.cu_seqlens, where it is a part of the caller's
  Inputs inputs;
  Outputs outputs;
  Dims dims;
};

std::size_t StatePool::SlotBytes(const Layer& layer, const Dims& dims,
                                 const DecoderOptions& options) {
  const std::size_t bytes = Decoder::Bytes(layer, dims, options);
  CheckDecoder(layer, options.draft, true);
  if (bytes == 0) {
    throw Error("StatePool", "recipe",
                "one whose memory has a size (one that keeps its pairs grows: a Decoder for each "
                "stream is its pool)",
                ToString(layer.recipe()));
  }
  return RoundToDecoderUnit(bytes);
}

StatePool::StatePool(const Layer& layer, const Dims& dims, std::int64_t slots,
                     const DecoderOptions& options)
    : layer_(&layer), dims_(dims), options_(options), slots_(slots) {
  if (dims.batch != 1 || dims.sequences != 0) {
    throw Error("StatePool", "dims", "those of one stream (B = 1, not packed)",
                "B = " + std::to_string(dims.batch) + ", " + std::to_string(dims.sequences) +
                    " packed sequences");
  }
  if (slots < 1) throw Error("StatePool", "slots", "1 or more", std::to_string(slots));
  dims_.tokens = 1;
  options_.together = slots;
  options_.memory = {};
  slot_bytes_ = SlotBytes(layer, dims_, options_);
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(slot_bytes_, static_cast<std::size_t>(slots), &bytes)) {
    throw Error("StatePool", "slots", "fewer: their bytes have no number", std::to_string(slots));
  }
  memory_ = options.memory;
  if (memory_.empty()) {
    owned_ = Tensor(DType::kInt8, {slots, static_cast<std::int64_t>(slot_bytes_)});
    memory_ = {static_cast<std::byte*>(owned_.data()), bytes};
  }
  CheckDecoderMemory("StatePool", memory_, bytes);
  memory_ = memory_.first(bytes);
  // The memory is not looked at: other threads may be at work in it.
  const Decoder any(layer, dims_, options_, Decoder::Unattached());
  facts_ = {.fingerprint = any.Fingerprint(),
            .pairs_wait = any.PairsWait(),
            .defers = any.Defers(),
            .numbers = {any.AuxiliaryNumbers(false), any.AuxiliaryNumbers(true)}};
}

Decoder::Header& StatePool::HeaderOf(std::int64_t slot) const {
  return *reinterpret_cast<Decoder::Header*>(MemoryOf(slot).data());
}

std::span<std::byte> StatePool::MemoryOf(std::int64_t slot) const {
  return memory_.subspan(static_cast<std::size_t>(slot) * slot_bytes_, slot_bytes_);
}

void StatePool::RequireSlot(std::string_view op, std::int64_t slot) const {
  if (slot >= 0 && slot < slots_) return;
  throw Error(op, "slot", "from 0 to " + std::to_string(slots_ - 1), std::to_string(slot));
}

Decoder StatePool::At(std::int64_t slot) const {
  RequireSlot("At", slot);
  DecoderOptions options = options_;
  options.memory = MemoryOf(slot);
  return {*layer_, dims_, options};
}

void StatePool::Copy(std::int64_t from, std::int64_t to) const {
  RequireSlot("Copy", from);
  RequireSlot("Copy", to);
  if (from != to) std::memcpy(MemoryOf(to).data(), MemoryOf(from).data(), slot_bytes_);
}

void StatePool::Free(std::int64_t slot) const {
  RequireSlot("Free", slot);
  // Zeros in the header: nothing has been memorized, whatever lies behind it.
  std::memset(MemoryOf(slot).data(), 0, kDecoderUnit);
}

void StatePool::CheckSlots(std::span<const std::int64_t> slots, std::int64_t sequences) const {
  if (static_cast<std::int64_t>(slots.size()) != sequences) {
    throw Error(kOp, "slots", std::to_string(sequences) + ", one for each sequence",
                std::to_string(slots.size()));
  }
  std::vector<bool> taken(static_cast<std::size_t>(slots_));
  for (const std::int64_t slot : slots) {
    if (slot < -1 || slot >= slots_) {
      throw Error(kOp, "slots", "from -1 to " + std::to_string(slots_ - 1), std::to_string(slot));
    }
    if (slot < 0) continue;
    const auto i = static_cast<std::size_t>(slot);
    if (taken[i]) throw Error(kOp, "slots", "different ones", "twice " + std::to_string(slot));
    taken[i] = true;
  }
}

State StatePool::StatesOf(std::int64_t first, std::int64_t rows) const {
  State states;
  std::byte* at = MemoryOf(first).data() + kDecoderUnit;
  for (const StateSpec& spec : layer_->requirements().state) {
    const TensorView one(at, DecoderTypeOf(spec, options_.state),
                         StateShape(spec, layer_->recipe(), dims_));
    states.Bind(spec.name, OfSlots(one, rows, slot_bytes_));
    at += DecoderBytesOf(spec, layer_->recipe(), dims_, options_.state);
  }
  return states;
}

State StatePool::ShapesOf(std::int64_t rows) const {
  static constexpr std::int64_t kNone = 0;
  static constexpr std::array<std::int64_t, kMaxRank> kStrides{};
  State states = StatesOf(0, rows);
  for (const StateSpec& spec : layer_->requirements().state) {
    if (!spec.counts()) continue;
    const Shape shape = states.Get(spec.name).shape();
    states.Bind(spec.name,
                TensorView(const_cast<std::int64_t*>(&kNone), DType::kInt64, shape,
                           std::span(kStrides).first(static_cast<std::size_t>(shape.rank()))));
  }
  return states;
}

TensorView StatePool::NumbersOf(std::int64_t first, std::int64_t rows, std::int64_t numbers) const {
  if (numbers == 0) return {};
  std::byte* at = MemoryOf(first).data() + kDecoderUnit;
  for (const StateSpec& spec : layer_->requirements().state) {
    at += DecoderBytesOf(spec, layer_->recipe(), dims_, options_.state);
  }
  return OfSlots(TensorView(at, WideOf(options_.state), {1, dims_.heads, numbers}), rows,
                 slot_bytes_);
}

std::vector<StatePool::Part> StatePool::Neighbours(std::span<const std::int64_t> slots,
                                                   const Inputs& inputs,
                                                   const Outputs& outputs) const {
  std::vector<Part> parts;
  for (std::size_t first = 0; first < slots.size();) {
    const auto taken = slots.subspan(first);
    const auto count = static_cast<std::size_t>(std::ranges::find(taken, -1) - taken.begin());
    if (count > 0) {
      parts.emplace_back(layer_->requirements(), slots, inputs, outputs,
                         static_cast<std::int64_t>(first), static_cast<std::int64_t>(count));
    }
    first += count + 1;
  }
  return parts;
}

void StatePool::Step(std::span<const std::int64_t> slots, const Inputs& inputs,
                     const Outputs& outputs, const CallOptions& options) {
  const Requirements& requirements = layer_->requirements();
  const State shapes = ShapesOf(static_cast<std::int64_t>(slots.size()));
  const Dims dims = InferDims(kOp, requirements, inputs, Needs::kBoth, &shapes);
  CheckSequences(kOp, dims, inputs);
  CheckSlots(slots, dims.states());
  if (!options.saved.empty()) {
    throw Error(kOp, "saved", "empty", std::to_string(options.saved.size()) + " bytes");
  }
  CheckOutputs(kOp, dims, inputs, {.state = State(), .before = memory_}, outputs, options,
               Needs::kBoth);
  const bool whole = std::ranges::find(slots, -1) == slots.end();
  if (whole) CheckCallOf(kOp, requirements, dims, inputs, shapes);
  const std::vector<Part> parts = whole ? std::vector<Part>() : Neighbours(slots, inputs, outputs);
  for (const Part& part : parts) {
    CheckCallOf(kOp, requirements, part.dims, part.inputs, ShapesOf(part.rows().count()));
  }
  for (const std::int64_t slot : slots) {  // all of them, before any is written
    if (slot >= 0 && HeaderOf(slot).fingerprint != facts_.fingerprint) At(slot);
  }
  if (whole) return Run({slots, dims, inputs, outputs}, options);
  for (std::size_t n = 0; n < slots.size(); ++n) {
    if (slots[n] >= 0) continue;
    const Outputs unused = SequencesOf(inputs, outputs, static_cast<std::int64_t>(n), 1);
    Fill(unused.y, 0);
    for (const ReportField& report : kReports) Fill(unused.*report.view, 0);
  }
  for (const Part& part : parts) Run(part.rows(), options);
}

void StatePool::Run(const Rows& rows, const CallOptions& options) const {
  const Requirements& requirements = layer_->requirements();
  const Recipe& recipe = layer_->recipe();
  const Engine& engine = EngineFor(*layer_->engine_, recipe, rows.dims);
  const bool packed = rows.dims.sequences > 0;
  const bool defers = facts_.pairs_wait || (facts_.defers && rows.dims.tokens == 1 && !packed);
  if (rows.count() > 1 && (!engine.TakesSlots(recipe) || (packed && defers))) {
    for (std::int64_t n = 0; n < rows.count(); ++n) {
      Run(Part(requirements, rows.slots, rows.inputs, rows.outputs, n, 1).rows(), options);
    }
    return;
  }
  const std::vector<std::int64_t> fresh = Prepare(rows, defers, ExecutorOf(options));
  const bool alone = rows.count() == 1;  // its state is a view: no engine need take slots for it
  const std::int64_t first = alone ? rows.slots.front() : 0;
  State states = StatesOf(first, rows.count());
  const Pendency pendency = PendencyOf(options_);
  try {
    RunChecked({kOp, requirements, *layer_->engine_, layer_->recipe_hash_, *layer_->prepared_},
               rows.dims, rows.inputs, states, rows.outputs, options,
               {.numbers = NumbersOf(first, rows.count(), facts_.Numbers(defers)),
                .pendency = defers ? &pendency : nullptr,
                .slots = alone ? std::span<const std::int64_t>() : rows.slots});
  } catch (...) {
    for (const std::int64_t slot : fresh) Free(slot);
    throw;
  }
  for (const std::int64_t slot : rows.slots) {
    Decoder::Header& header = HeaderOf(slot);  // its line stays clean where nothing changes
    if (const auto stale = defers ? 1 : 0; header.stale != stale) header.stale = stale;
  }
}

std::vector<std::int64_t> StatePool::Prepare(const Rows& rows, bool defers,
                                             Executor& executor) const {
  std::vector<std::int64_t> fresh;
  for (std::int64_t n = 0; n < rows.count(); ++n) {
    const std::int64_t slot = rows.slots[static_cast<std::size_t>(n)];
    const Decoder::Header& header = HeaderOf(slot);
    const bool ready = header.fingerprint == facts_.fingerprint && header.started != 0 &&
                       header.numbers == facts_.Numbers(defers) && (header.defers != 0) == defers;
    if (ready && (defers || header.stale == 0)) continue;
    Decoder decoder = At(slot);
    if (header.started == 0) {
      const Part one(layer_->requirements(), rows.slots, rows.inputs, rows.outputs, n, 1);
      decoder.StartFrom(layer_->InitialState(one.inputs));
      fresh.push_back(slot);
    }
    decoder.PrepareAuxiliary(defers, executor);
  }
  return fresh;
}

}  // namespace ttr
