// The backward pass of one memory, block by block: gather, gradients of rows, scatter.

#include <algorithm>
#include <cmath>

#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/fast_weights/backward/whole.h"
#include "src/engines/fast_weights/row_io.h"

namespace ttr::fast_weights {
namespace {

/// Gradients of what is behind the last row, and what there was before the first.
template <class T>
void GatherEnds(const Options& options, const Memory& memory, const GradientMemory& out,
                BackwardRows<T>& rows) {
  ReadMemory(memory, out.final.state, out.final.sum, rows, rows.d_final);
  if (options.paired()) {
    const std::int64_t second = rows.second(options);
    // Channels beyond the last, too, are rotated.
    for (const std::int64_t first : {std::int64_t{0}, second}) {
      T* const to = rows.d_final + first;
      std::fill(to + memory.dims.key_dim * rows.value_stride, to + second, T(0));
    }
    ReadMemory(memory, out.final.second, {}, rows, rows.d_final + second);
  }
  RunningArrays<T>& running = rows.running;
  if (running.maxima != nullptr) {
    running.block_maxima[0] =
        memory.entries.maximum ? ReadOne<double>(memory.entries.maximum, 0) : 0;
    running.d_maximum = out.final.maximum ? ReadOne<T>(out.final.maximum, 0) : T(0);
  }
  if (options.preconditioned) {
    ReadPadded(memory.entries.curvature, 0, memory.dims.key_dim, rows.key_stride,
               running.block_curvatures);
    std::fill_n(running.d_curvature, rows.key_stride, T(0));
    if (out.final.curvature)
      ReadRow(out.final.curvature, 0, memory.dims.key_dim, running.d_curvature);
  }
  if (options.bonus) std::fill_n(rows.d_bonus_row, rows.key_stride, T(0));
}

/// The gradients of what is there before the first row, and of constants.
template <class T>
void ScatterEnds(const Options& options, const Memory& memory, const GradientMemory& out,
                 const BackwardRows<T>& rows) {
  const RunningArrays<T>& running = rows.running;
  const StateOperands<Rows>& to = out.entries;
  const std::int64_t stride = rows.value_stride;
  const std::int64_t keys = memory.dims.key_dim, values = memory.dims.value_dim;
  for (std::int64_t d = 0; d < keys; ++d) {
    WriteRow(rows.d_initial + d * stride, values, to.state, d, false);
    if (!options.paired()) continue;
    WriteRow(rows.d_initial + rows.second(options) + d * stride, values, to.second, d, false);
  }
  for (std::int64_t d = 0; to.sum && d < keys; ++d) {
    rows.row[d] = rows.d_initial[d * stride + values];
  }
  WriteRow(rows.row, keys, to.sum, 0, false);
  if (to.curvature) WriteRow(running.d_curvature, keys, to.curvature, 0, false);
  if (to.maximum) {
    const bool finite = std::isfinite(running.block_maxima[0]);
    WriteOne(finite ? running.d_first_maximum + running.d_maximum : T(0), to.maximum, 0);
  }
  const Rows& bonus = out.inputs.bonus;
  if (bonus) WriteRow(rows.d_bonus_row, keys, bonus, 0, out.add_constants);
}

/// The rows and numbers of the block of `rows`, `of` their arrays, where the memory has them.
template <class T, class Number>
BlockRows<T> BlockOf(const Options& options, const BackwardRows<Number>& rows,
                     const RowArrays<Number>& of) {
  const std::int64_t keys = rows.key_stride, values = rows.value_stride;
  BlockRows<T> block;
  block.write = {of.write, keys};
  if (options.erases()) block.erase = {of.erase, keys};
  if (options.separate_value_key()) {
    block.second_write = {of.key, keys};
    block.second_value = {of.value, values};
  } else {
    block.value = {of.value, values};
  }
  block.query = {of.query, keys, rows.rows * keys};
  if (options.by_channel()) block.gates = {of.gates, keys};
  if (options.bonus) block.bonus = {of.bonus, 1, rows.rows};
  block.step = of.step;
  block.momentum = of.momentum;
  return block;
}

/// The call on the block of `rows`, whatever rows it holds.
template <class T>
GradientCall<T> CallOn(const Options& options, const Sizes& sizes, const Memory& memory,
                       BackwardRows<T>& rows) {
  GradientCall<T> call;
  call.sizes = GradientSizesOf(options, sizes);
  call.place = memory.extent.place;
  const bool own_decay = options.shrink != Shrink::kNone || options.momentum;
  call.seen = options.separate_value_key() ? Seen::kUndecayed
              : own_decay                  ? Seen::kOwn
                                           : Seen::kDecayed;
  call.read_before = options.read_before;
  call.reset =
      options.decay == Decay::kScalar && (options.shrink == Shrink::kNone || options.momentum);
  call.in = BlockOf<const T, T>(options, rows, rows);
  call.d = BlockOf<T, T>(options, rows, rows.d);
  if (JoinsErasure(options)) call.d.erase = {};
  const bool scalar = call.sizes.decay == GradientDecay::kScalar;
  if (scalar) {
    call.in.decay = rows.decay;
    call.d.decay = rows.d.decay;
  } else {
    std::fill_n(rows.d.decay, rows.rows, T(0));
  }
  if (scalar && call.seen == Seen::kOwn) {
    call.in.erase_decay = rows.erase_decay;
    call.d.erase_decay = rows.d.erase_decay;
  } else {
    std::fill_n(rows.d.erase_decay, rows.rows, T(0));
  }
  const std::int64_t values = rows.value_stride;
  call.d_output = {rows.dy, values, rows.rows * values};
  call.ends = {rows.d_final, rows.d_initial, values, options.momentum ? rows.second(options) : 0};
  return call;
}

/// The last block of a memory's time slice; negative: it has none.
std::int64_t LastBlock(const Memory& memory) {
  return (memory.extent.to + kGradientBlock - 1) / kGradientBlock - 1;
}

/// What is fetched while a block is worked on: the inputs of the block `gathered` next, and the
/// gradients of the block `scattered` next, perhaps of another memory; negative: none.
template <class T>
Prefetcher PrefetcherOf(const Options& options, const Memory& memory, const GradientMemory& out,
                        const BackwardRows<T>& rows, std::int64_t gathered,
                        std::int64_t scattered) {
  const std::int64_t first = std::max(gathered, scattered) * kGradientBlock;
  Prefetcher prefetcher(std::min<std::int64_t>(kGradientBlock, memory.dims.rows - first));
  // Keys and values have a row for every step of a token, all else one for every token.
  auto add_rows = [&](const Rows& of, std::int64_t block, std::int64_t count) {
    if (block >= 0) prefetcher.Add(of, block * kGradientBlock, 0, count);
  };
  auto add = [&](const Rows& of, std::int64_t block, std::int64_t count) {
    if (block < 0) return;
    prefetcher.Add(of, memory.Token(block * kGradientBlock), 0, count, memory.dims.steps);
  };
  const std::int64_t keys = memory.dims.key_dim;
  auto add_channels = [&](const Operands<Rows>& of, std::int64_t block) {
    if (options.decay == Decay::kChannel) add(of.log_decay, block, keys);
    for (const Rows& row : {of.phase, of.erase_key, of.erase_gate}) add(row, block, keys);
  };
  add_rows(memory.inputs.k, gathered, memory.dims.input_dim);
  if (NeedsValues(options)) add_rows(memory.inputs.v, gathered, memory.dims.value_dim);
  add_channels(memory.inputs, gathered);
  add_rows(memory.inputs.step, gathered, 1);
  if (options.decay == Decay::kScalar) add(memory.inputs.log_decay, gathered, 1);
  // The memory before the block as so many rows, too.
  const DType type = DTypeOf<T>();
  const std::int64_t share = rows.state / kGradientBlock;
  add_rows({memory.saved.states, type, share}, gathered, share);
  add_rows({memory.saved.errors, type, rows.value_stride}, gathered, rows.value_stride);
  const std::int64_t outputs = rows.queries * rows.value_stride;
  add_rows({memory.saved.outputs, type, outputs}, gathered, outputs);
  add(memory.inputs.q, gathered, memory.dims.input_dim);
  add(memory.y, gathered, memory.dims.value_dim);
  if (!rows.streams.query) add(out.inputs.q, scattered, memory.dims.input_dim);
  if (!rows.streams.key) add_rows(out.inputs.k, scattered, memory.dims.input_dim);
  if (!rows.streams.value) add_rows(out.inputs.v, scattered, memory.dims.value_dim);
  add_channels(out.inputs, scattered);
  return prefetcher;
}

/// A decay that is given twice, though it is one: of what is erased, and of what stays.
template <class T>
void JoinDecays(const BackwardRows<T>& rows) {
  for (std::int64_t r = 0; r < rows.count; ++r) rows.d.decay[r] += rows.d.erase_decay[r];
}

/// A memory from its last block back to its first, in one time slice or several.
template <class T>
class BackwardPass {
 public:
  BackwardPass(const Options& options, const Memory& memory, const Sizes& sizes,
               const GradientMemory& out, BackwardRows<T>& rows)
      : options_(options), memory_(memory), out_(out), rows_(rows) {
    FindInPlace(options, memory, out, rows);
    call_ = CallOn(options, sizes, memory, rows);
    call_.stream_query = rows.streams.query;
    call_.stream_write = rows.streams.key && rows.in_place.d_key;
    call_.stream_value = rows.streams.value;
    if (rows.in_place.dy) call_.output_factor = rows.OutputFactor(options);
    call_.saved.errors = static_cast<const T*>(memory.saved.errors);
    call_.saved.last = States() + Blocks() * rows.state;
  }

  /// Behind the last row.
  void Begin() {
    GatherEnds(options_, memory_, out_, rows_);
    // What multiplies the rows of a block, and is not saved, comes from the blocks before.
    const bool passes = rows_.running.maxima != nullptr || options_.preconditioned;
    for (std::int64_t block = 0; passes && block < Blocks(); ++block) {
      GoTo(block);
      kernels_.gather(options_, memory_, false, false, rows_);
    }
    // Outputs do not depend on the maximum by which the memory is divided, so that it has no
    // gradient inside of the sequence. The final memory is divided by the final maximum: minus the
    // product of the memory and its gradient.
    T overlap = 0;
    if (options_.step == Step::kLogWeight && memory_.dims.rows > 0) call_.overlap = &overlap;
    if (options_.phase) std::fill_n(rows_.rotation.d_angle, rows_.key_stride / 2, T(0));
    SetRotation();
    RunGradient(GradientStage::kBegin, call_, rows_.gradient);
    TakeAngles();
    rows_.running.d_maximum -= overlap;
    call_.overlap = nullptr;
  }

  /// Block `block`; then comes block `following` of `next`, or none.
  void Block(std::int64_t block, const Memory& next, std::int64_t following) {
    GoTo(block);
    SetRotation();
    kernels_.gather(options_, memory_, NeedsValues(options_), true, rows_);
    if (!rows_.in_place.dy) kernels_.gather_outputs(options_, memory_, rows_);
    Prefetcher prefetcher = PrefetcherOf(options_, next, out_, rows_, following, block);
    call_.prefetcher = &prefetcher;
    RunGradient(GradientStage::kBlock, call_, rows_.gradient);
    if (call_.seen == Seen::kOwn && options_.shrink == Shrink::kNone) JoinDecays(rows_);
    kernels_.scatter(options_, memory_, out_, Side::kBoth, rows_);
    TakeAngles();
  }

  /// Before the first row.
  void End() {
    RunGradient(GradientStage::kEnd, call_, rows_.gradient);
    ScatterEnds(options_, memory_, out_, rows_);
  }

 private:
  const T* States() const { return static_cast<const T*>(memory_.saved.states); }
  std::int64_t Blocks() const { return (memory_.dims.rows + kGradientBlock - 1) / kGradientBlock; }

  void GoTo(std::int64_t block) {
    rows_.first = call_.first = block * kGradientBlock;
    rows_.count = call_.tokens =
        std::min<std::int64_t>(kGradientBlock, memory_.dims.rows - rows_.first);
    call_.saved.memory = States() + block * rows_.state;
    PointInPlace(options_, memory_, out_, rows_, call_);
  }

  void SetRotation() {
    if (!options_.phase || memory_.dims.rows == 0) return;
    call_.rotation = {rows_.rotation.frame, rows_.rotation.d_angle_before};
  }
  void TakeAngles() {
    if (call_.rotation.frame == nullptr) return;
    std::copy_n(rows_.rotation.d_angle_before, rows_.key_stride / 2, rows_.rotation.d_angle);
  }

  const Options& options_;
  const Memory& memory_;
  const GradientMemory& out_;
  BackwardRows<T>& rows_;
  const BackwardKernels<T> kernels_ = ChosenKernels<T>();
  GradientCall<T> call_;
};

}  // namespace

template <class T>
void DifferentiateMemory(const Options& options, const Memory& memory, const Memory& next,
                         const GradientMemory& out, const Sizes& sizes, BackwardRows<T>& rows) {
  if (!options.causal) return DifferentiateWhole(options, memory, out, rows);
  BackwardPass<T> pass(options, memory, sizes, out, rows);
  if (memory.extent.to == memory.dims.rows) pass.Begin();
  const std::int64_t first = memory.extent.from / kGradientBlock;
  for (std::int64_t block = LastBlock(memory); block >= first; --block) {
    const bool ends = block == first;
    pass.Block(block, ends && next.dims.rows > 0 ? next : memory,
               ends ? LastBlock(next) : block - 1);
  }
  if (memory.extent.from == 0) pass.End();
}

template void DifferentiateMemory(const Options&, const Memory&, const Memory&,
                                  const GradientMemory&, const Sizes&, BackwardRows<float>&);
template void DifferentiateMemory(const Options&, const Memory&, const Memory&,
                                  const GradientMemory&, const Sizes&, BackwardRows<double>&);

}  // namespace ttr::fast_weights
