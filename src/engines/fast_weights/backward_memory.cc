// The backward pass of one memory, block by block: gather, gradients of rows, scatter.

#include <algorithm>
#include <cmath>

#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/backward_whole.h"
#include "src/engines/fast_weights/row_io.h"

namespace ttr::fast_weights {
namespace {

template <class T>
GradientRows<T> RowsAt(T* data, std::int64_t stride, std::int64_t head_stride = 0) {
  return {data, stride, head_stride};
}

template <class T>
GradientRows<const T> InputAt(const T* data, std::int64_t stride, std::int64_t head_stride = 0) {
  return {data, stride, head_stride};
}

/// What is there before the first row, and behind the last.
template <class T>
void GatherEnds(const Options& options, const Memory& memory, const GradientMemory& out,
                BackwardRows<T>& rows) {
  ReadMemory(memory, memory.state, memory.sum, rows, rows.initial);
  ReadMemory(memory, out.final.state, out.final.sum, rows, rows.d_final);
  if (options.paired()) {
    const std::int64_t part = rows.second(options);
    // Channels beyond the last, too, are turned.
    for (T* to : {rows.initial, rows.d_final}) {
      for (const std::int64_t first : {std::int64_t{0}, part}) {
        std::fill(to + first + memory.key_dim * rows.value_stride, to + first + part, T(0));
      }
    }
    ReadMemory(memory, memory.second, {}, rows, rows.initial + part);
    ReadMemory(memory, out.final.second, {}, rows, rows.d_final + part);
  }
  if (options.phase) std::fill_n(rows.turned, rows.key_stride / 2, T(0));
  if (rows.maxima != nullptr) {
    rows.block_maxima[0] = memory.maximum ? ReadOne<double>(memory.maximum, 0) : 0;
    rows.d_maximum = out.final.maximum ? ReadOne<T>(out.final.maximum, 0) : T(0);
  }
  if (options.preconditioned) {
    ReadPadded(memory.curvature, 0, memory.key_dim, rows.key_stride, rows.block_curvatures);
    std::fill_n(rows.d_curvature, rows.key_stride, T(0));
    if (out.final.curvature) ReadRow(out.final.curvature, 0, memory.key_dim, rows.d_curvature);
  }
  if (options.bonus) std::fill_n(rows.d_bonus_row, rows.key_stride, T(0));
}

/// The gradients of what is there before the first row, and of constants.
template <class T>
void ScatterEnds(const Options& options, const Memory& memory, const GradientMemory& out,
                 const BackwardRows<T>& rows) {
  const std::int64_t stride = rows.value_stride;
  for (std::int64_t d = 0; d < memory.key_dim; ++d) {
    WriteRow(rows.d_initial + d * stride, memory.value_dim, out.state, d, false);
    if (!options.paired()) continue;
    const T* const second = rows.d_initial + rows.second(options);
    WriteRow(second + d * stride, memory.value_dim, out.second, d, false);
  }
  for (std::int64_t d = 0; out.sum && d < memory.key_dim; ++d) {
    rows.row[d] = rows.d_initial[d * stride + memory.value_dim];
  }
  WriteRow(rows.row, memory.key_dim, out.sum, 0, false);
  if (out.curvature) WriteRow(rows.d_curvature, memory.key_dim, out.curvature, 0, false);
  if (out.maximum) {
    const bool finite = std::isfinite(rows.block_maxima[0]);
    WriteOne(finite ? rows.d_first_maximum + rows.d_maximum : T(0), out.maximum, 0);
  }
  if (out.bonus) WriteRow(rows.d_bonus_row, memory.key_dim, out.bonus, 0, out.add_constants);
}

/// The call on the block of `rows`, whatever rows it holds.
template <class T>
GradientCall<T> CallOn(const Options& options, const Sizes& sizes, const BackwardRows<T>& rows) {
  const std::int64_t keys = rows.key_stride, values = rows.value_stride;
  const bool apart = options.separate_value_key();
  GradientCall<T> call;
  call.sizes = GradientSizesOf(options, sizes);
  const bool own_decay = options.shrink != Shrink::kNone || options.momentum;
  call.seen = apart ? Seen::kUndecayed : own_decay ? Seen::kOwn : Seen::kDecayed;
  call.read_before = options.read_before;
  call.reset =
      options.decay == Decay::kScalar && (options.shrink == Shrink::kNone || options.momentum);
  call.write = InputAt(rows.write, keys);
  call.d_write = RowsAt(rows.d_write, keys);
  if (options.erases()) {
    call.erase = InputAt(rows.erase, keys);
    if (!JoinsErasure(options)) call.d_erase = RowsAt(rows.d_erase, keys);
  }
  if (apart) {
    call.second_write = InputAt(rows.key, keys);
    call.second_value = InputAt(rows.value, values);
    call.d_second_write = RowsAt(rows.d_second, keys);
    call.d_second_value = RowsAt(rows.d_value, values);
  } else {
    call.value = InputAt(rows.value, values);
    call.d_value = RowsAt(rows.d_value, values);
  }
  call.query = InputAt(rows.query, keys, rows.rows * keys);
  call.d_query = RowsAt(rows.d_query, keys, rows.rows * keys);
  call.step = rows.step;
  call.d_step = rows.d_step;
  if (call.sizes.decay == GradientDecay::kChannel) {
    call.gates = InputAt(rows.gates, keys);
    call.d_log_decay = RowsAt(rows.d_log_decay, keys);
  } else if (call.sizes.decay == GradientDecay::kScalar) {
    call.decay = rows.decay;
    call.d_decay = rows.d_decay;
    if (call.seen == Seen::kOwn) {
      call.erase_decay = rows.erase_decay;
      call.d_erase_decay = rows.d_erase_decay;
    }
  }
  if (options.momentum) {
    call.momentum = rows.momentum;
    call.d_momentum = rows.d_momentum;
    call.update = rows.second(options);
  }
  if (call.seen != Seen::kOwn) std::fill_n(rows.d_erase_decay, rows.rows, T(0));
  if (call.sizes.decay != GradientDecay::kScalar) std::fill_n(rows.d_decay, rows.rows, T(0));
  if (options.bonus) {
    call.bonus = InputAt(rows.bonus, 1, rows.rows);
    call.d_bonus = RowsAt(rows.d_bonus, 1, rows.rows);
  }
  if (rows.y != nullptr) call.answers = RowsAt(rows.y, values, rows.rows * values);
  call.initial = rows.initial;
  call.d_output = InputAt(rows.dy, values, rows.rows * values);
  call.d_final = rows.d_final;
  call.d_initial = rows.d_initial;
  call.initial_stride = call.d_final_stride = call.d_initial_stride = values;
  return call;
}

/// Bytes of a gradient of all heads from which on it is written past the caches: sooner than
/// answers, for it is not what is read next.
constexpr std::int64_t kUncachedGradient = std::int64_t{1} << 21;

/// Can rows of `width` numbers be read or written by the gradient's kernels where they lie?
template <class T>
bool Lies(const Rows& rows, std::int64_t width) {
  constexpr std::int64_t kUnit = 16;
  return rows && rows.dtype == DTypeOf<T>() && width % kUnit == 0 && rows.stride % kUnit == 0 &&
         reinterpret_cast<std::uintptr_t>(rows.data) % kAlignment == 0;
}

template <class T>
void FindRows(const Options& options, const Memory& memory, const GradientMemory& out,
              BackwardRows<T>& rows) {
  const std::int64_t values = memory.value_dim, keys = memory.key_dim;
  const bool wide = rows.value_dim > values;  // by the value 1
  rows.keys_lie = RowsAreInputs<T>(options, memory) && !options.bonus && !options.by_channel() &&
                  !options.normalise_qk && (options.scale == 1 || rows.folds_scale) &&
                  Lies<T>(memory.k, keys) && Lies<T>(memory.q, keys) &&
                  Lies<T>({memory.q.data, memory.q.dtype, memory.q_head_stride}, keys);
  rows.value_lies = !wide && Lies<T>(memory.v, values);
  rows.d_value_lies = !wide && !out.add_v && Lies<T>(out.v, values);
  const bool plain = options.features.map == rows::Map::kNone && !options.intercept &&
                     !options.normalise_qk && (options.scale == 1 || rows.folds_scale) &&
                     options.correction == 0 && !options.bonus && options.steps == 1;
  rows.dy_lies = !options.transforms_outputs() && options.steps == 1 && Lies<T>(memory.y, values) &&
                 Lies<T>({memory.y.data, memory.y.dtype, memory.y_head_stride}, values);
  const bool own_step = options.step != Step::kOne && options.step != Step::kInput &&
                        options.step != Step::kLogWeight;
  rows.d_key_lies = plain && !own_step && !options.by_channel() && options.key == Key::kInput &&
                    options.erase == Erase::kKey && !options.preconditioned && !out.add_k &&
                    Lies<T>(out.k, keys);
  rows.d_query_lies = plain && !options.phase && !out.add_q && Lies<T>(out.q, keys) &&
                      Lies<T>({out.q.data, out.q.dtype, out.q_head_stride}, keys);
  // What no cache holds until it is read again is not brought there to be written.
  const auto large = [&](const Rows& of) {
    return simd::PastCaches<T>(of, memory.rows, kUncachedGradient);
  };
  rows.streams_value = rows.d_value_lies && large(out.v);
  rows.streams_query = rows.d_query_lies && !options.by_channel() && large(out.q);
  rows.streams_key = !out.add_k && Lies<T>(out.k, memory.input_dim) && large(out.k);
}

/// The last block of a memory's turn; negative: it has none.
std::int64_t LastBlock(const Memory& memory) {
  return (memory.to + kGradientBlock - 1) / kGradientBlock - 1;
}

/// An erasing memory has its errors, and does not ask for its values again.
bool ReplaysValues(const Options& options) {
  return !options.erases() || options.separate_value_key();
}

/// What is wanted of the block `gathered` of a memory when it is gathered, and of another block,
/// perhaps of another memory, when it is scattered; negative: none.
template <class T>
Prefetcher AheadOf(const Options& options, const Memory& memory, const GradientMemory& out,
                   const BackwardRows<T>& rows, std::int64_t gathered, std::int64_t scattered,
                   bool reads) {
  const std::int64_t first = std::max(gathered, scattered) * kGradientBlock;
  Prefetcher ahead(std::min<std::int64_t>(kGradientBlock, memory.rows - first));
  // Keys and values have a row for every step of a token, all else one for every token.
  auto add_rows = [&](const Rows& of, std::int64_t block, std::int64_t count) {
    if (block >= 0) ahead.Add(of, block * kGradientBlock, 0, count);
  };
  auto add = [&](const Rows& of, std::int64_t block, std::int64_t count) {
    if (block >= 0) {
      ahead.Add(of, memory.Token(block * kGradientBlock), 0, count, memory.steps);
    }
  };
  add_rows(memory.k, gathered, memory.input_dim);
  if (!reads || ReplaysValues(options)) add_rows(memory.v, gathered, memory.value_dim);
  if (options.decay == Decay::kChannel) add(memory.log_decay, gathered, memory.key_dim);
  add(memory.phase, gathered, memory.key_dim);
  add(memory.erase_key, gathered, memory.key_dim);
  add(memory.erase_gate, gathered, memory.key_dim);
  add_rows(memory.step, gathered, 1);
  if (options.decay == Decay::kScalar) add(memory.log_decay, gathered, 1);
  if (!reads) return ahead;
  if (memory.saved_states != nullptr && gathered >= 0) {
    // The memory before the block as so many rows, too.
    const std::int64_t values = rows.value_stride, share = rows.state / kGradientBlock;
    ahead.Add({memory.saved_states, DTypeOf<T>(), share}, gathered * kGradientBlock, 0, share);
    if (memory.saved_errors != nullptr)
      add_rows({memory.saved_errors, DTypeOf<T>(), values}, gathered, values);
    const std::int64_t answers = rows.queries * values;
    if (memory.saved_outputs != nullptr)
      add_rows({memory.saved_outputs, DTypeOf<T>(), answers}, gathered, answers);
  }
  add(memory.q, gathered, memory.input_dim);
  add(memory.y, gathered, memory.value_dim);
  if (!rows.streams_query) add(out.q, scattered, memory.input_dim);
  if (!rows.streams_key) add_rows(out.k, scattered, memory.input_dim);
  if (!rows.streams_value) add_rows(out.v, scattered, memory.value_dim);
  if (options.decay == Decay::kChannel) add(out.log_decay, scattered, memory.key_dim);
  add(out.phase, scattered, memory.key_dim);
  add(out.erase_key, scattered, memory.key_dim);
  add(out.erase_gate, scattered, memory.key_dim);
  return ahead;
}

/// A decay that is given twice, though it is one: of all that is erased and kept.
template <class T>
void JoinDecays(const BackwardRows<T>& rows) {
  for (std::int64_t r = 0; r < rows.count; ++r) rows.d_decay[r] += rows.d_erase_decay[r];
}

/// The turn of a memory, from its last block back to its first; `next` has the turn after it.
template <class T>
void Differentiate(const Options& options, const Memory& memory, const Memory& next,
                   const Sizes& sizes, const GradientMemory& out, BackwardRows<T>& rows) {
  GradientCall<T> call = CallOn(options, sizes, rows);
  call.sizes.place = memory.place;
  const std::int64_t blocks = (memory.rows + kGradientBlock - 1) / kGradientBlock;
  FindRows(options, memory, out, rows);
  call.stream_query = rows.streams_query;
  call.stream_write = rows.streams_key && rows.d_key_lies;
  if (rows.dy_lies) call.output_factor = rows.OutputFactor(options);
  call.stream_value = rows.streams_value;
  const bool saved = sizes.saved;
  const T* const memories = static_cast<const T*>(memory.saved_states);
  if (saved) {
    call.saved_errors = static_cast<const T*>(memory.saved_errors);
    call.saved_last = memories + blocks * rows.state;
  }
  GradientRows<const T>& value = options.separate_value_key() ? call.second_value : call.value;
  GradientRows<T>& d_value = options.separate_value_key() ? call.d_second_value : call.d_value;
  auto go_to = [&](std::int64_t block) {
    rows.first = call.first = block * kGradientBlock;
    rows.count = call.tokens = std::min<std::int64_t>(kGradientBlock, memory.rows - rows.first);
    call.last = block == blocks - 1;
    if (saved) call.saved_memory = memories + block * rows.state;
    const std::int64_t first = rows.first;
    auto input = [&](const Rows& of, std::int64_t head_stride = 0) {
      return InputAt(static_cast<const T*>(of.data) + first * of.stride, of.stride, head_stride);
    };
    if (rows.keys_lie) {
      call.write = input(memory.k);
      if (options.erases()) call.erase = call.write;
      call.query = input(memory.q, memory.q_head_stride);
    }
    if (rows.value_lies) value = input(memory.v);
    if (rows.d_value_lies) {
      d_value = RowsAt(static_cast<T*>(out.v.data) + first * out.v.stride, out.v.stride);
    }
    if (rows.d_query_lies) {
      call.d_query = RowsAt(static_cast<T*>(out.q.data) + first * out.q.stride, out.q.stride,
                            out.q_head_stride);
    }
    if (rows.d_key_lies) {
      call.d_write = RowsAt(static_cast<T*>(out.k.data) + first * out.k.stride, out.k.stride);
    }
    if (rows.dy_lies) call.d_output = input(memory.y, memory.y_head_stride);
  };
  // Answers do not depend on the maximum by which the memory is divided, so that it has no gradient
  // inside of the sequence. The final memory is divided by the final maximum: minus the product of
  // the memory and its gradient.
  T overlap = 0;
  if (options.step == Step::kLogWeight && memory.rows > 0) call.overlap = &overlap;
  if (options.phase && memory.rows > 0) {
    call.frame = rows.frame;
    call.turned = rows.turned_before;
  }
  const bool begins = memory.to == memory.rows;
  if (begins) RunGradient(GradientPart::kBegin, call, rows.gradient);
  // What a row keeps for the next one but the memory is kept by the rows' own pass.
  const bool passes = !saved || rows.maxima != nullptr || options.preconditioned;
  for (std::int64_t block = 0; begins && passes && block < blocks; ++block) {
    go_to(block);
    GatherBlock(options, memory, !saved, !saved && call.last, rows);
    if (saved) continue;
    Prefetcher ahead = AheadOf(options, memory, out, rows, call.last ? -1 : block + 1, -1, false);
    call.ahead = &ahead;
    RunGradient(GradientPart::kForward, call, rows.gradient);
  }
  auto take_turned = [&] {
    if (call.turned != nullptr) std::copy_n(rows.turned_before, rows.key_stride / 2, rows.turned);
  };
  if (begins) {
    RunGradient(GradientPart::kTurn, call, rows.gradient);
    take_turned();
  }
  rows.d_maximum -= overlap;
  const std::int64_t first = memory.from / kGradientBlock;
  for (std::int64_t block = LastBlock(memory); block >= first; --block) {
    go_to(block);
    if (saved || !call.last) GatherBlock(options, memory, ReplaysValues(options), true, rows);
    const bool ends = block == first;
    Prefetcher ahead = AheadOf(options, ends && next.rows > 0 ? next : memory, out, rows,
                               ends ? LastBlock(next) : block - 1, block, true);
    call.ahead = &ahead;
    RunGradient(GradientPart::kReplay, call, rows.gradient);
    if (!rows.dy_lies) GatherOutputGradients(options, memory, rows);
    RunGradient(GradientPart::kBackward, call, rows.gradient);
    if (call.seen == Seen::kOwn && options.shrink == Shrink::kNone) JoinDecays(rows);
    ScatterBlock(options, memory, out, Side::kBoth, rows);
    take_turned();
  }
  if (memory.from == 0) RunGradient(GradientPart::kEnd, call, rows.gradient);
}

}  // namespace

template <class T>
void DifferentiateMemory(const Options& options, const Memory& memory, const Memory& next,
                         const GradientMemory& out, const Sizes& sizes, BackwardRows<T>& rows) {
  if (!options.causal) return DifferentiateWhole(options, memory, out, rows);
  if (memory.to == memory.rows) GatherEnds(options, memory, out, rows);
  Differentiate(options, memory, next, sizes, out, rows);
  if (memory.from == 0) ScatterEnds(options, memory, out, rows);
}

template void DifferentiateMemory(const Options&, const Memory&, const Memory&,
                                  const GradientMemory&, const Sizes&, BackwardRows<float>&);
template void DifferentiateMemory(const Options&, const Memory&, const Memory&,
                                  const GradientMemory&, const Sizes&, BackwardRows<double>&);

}  // namespace ttr::fast_weights
