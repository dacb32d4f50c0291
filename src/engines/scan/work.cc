#include "src/engines/scan/work.h"

#include <algorithm>
#include <functional>

namespace ttr::scan {
namespace {

std::byte* ElementOf(const TensorView& view, std::int64_t offset) {
  if (!view.defined()) return nullptr;
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(SizeOf(view.dtype()));
}

/// Are the heads of a per-channel tensor next to each other (or absent)?
bool HeadsAdjoin(const TensorView& view) {
  if (!view.defined() || view.size(2) == 1) return true;
  return view.rank() == 4 && view.stride(2) == view.size(3);
}

}  // namespace

Rows RowsOf(const TensorView& view, std::int64_t batch, std::int64_t first, std::int64_t head,
            std::int64_t column) {
  if (!view.defined()) return {};
  const std::int64_t offset =
      batch * view.stride(0) + first * view.stride(1) + head * view.stride(2) + column;
  return {ElementOf(view, offset), view.dtype(), view.stride(1)};
}

Work::Work(const Options& o, const Call& c, std::span<const TensorView> others)
    : options(o), call(c), matrix(c.state.rank() == 4) {
  const TensorView& timed = call.v.defined() ? call.v : call.y;
  length = timed.size(1);
  tokens = call.cu_seqlens.empty() ? timed.size(0) * length : length;
  sequences = call.cu_seqlens.empty() ? call.state.size(0)
                                      : static_cast<std::int64_t>(call.cu_seqlens.size()) - 1;
  heads = call.state.size(1);
  columns = call.state.size(matrix ? 3 : 2);
  sizes.key_dim = matrix ? call.state.size(2) : 0;
  sizes.state = call.state.dtype();
  sizes.whole_rows = options.output_norm != OutputNorm::kNone;
  if (call.q.defined()) sizes.queries = std::max<std::int64_t>(1, call.q.size(2) / heads);
  if (!matrix) Merge(others);
  sizes.value_dim = part_columns = columns;
}

bool Work::shares_gates() const {
  return call.importance.defined() || (call.log_decay.defined() && call.log_decay.rank() == 3);
}

void Work::Merge(std::span<const TensorView> others) {
  if (heads == 1 || shares_gates() || sizes.whole_rows) return;
  if (std::adjacent_find(call.decay_factors.begin(), call.decay_factors.end(),
                         std::not_equal_to<>()) != call.decay_factors.end()) {
    return;
  }
  for (const TensorView* view : {&call.v, &call.v_im, &call.log_decay, &call.phase, &call.y}) {
    if (!HeadsAdjoin(*view)) return;
  }
  if (!std::all_of(others.begin(), others.end(), HeadsAdjoin)) return;
  for (const TensorView* state : {&call.state, &call.state_im}) {
    if (state->defined() && state->stride(1) != state->size(2)) return;
  }
  columns *= heads;
  heads = 1;
}

void Work::Cut(int threads) {
  const std::int64_t memories = sequences * heads;
  if (memories == 0 || memories >= threads || sizes.whole_rows) return;
  // A line of a matrix's columns is much work; of a vector's channels it is little beside its rows.
  const auto bytes = matrix ? static_cast<std::int64_t>(kAlignment) : kStripBytes;
  const std::int64_t unit = bytes / static_cast<std::int64_t>(SizeOf(sizes.state));
  const std::int64_t units = (columns + unit - 1) / unit;
  const std::int64_t wanted = std::min<std::int64_t>(units, (threads + memories - 1) / memories);
  part_columns = (units + wanted - 1) / wanted * unit;
  parts = (columns + part_columns - 1) / part_columns;
}

Sequence Work::SequenceOf(std::int64_t n) const {
  if (call.cu_seqlens.empty()) return {n, 0, length};
  const auto i = static_cast<std::size_t>(n);
  return {0, call.cu_seqlens[i], call.cu_seqlens[i + 1] - call.cu_seqlens[i]};
}

Vector Work::VectorOf(std::int64_t task) const {
  const std::int64_t memory = task / parts;
  const std::int64_t column = (task - memory * parts) * part_columns;
  const std::int64_t n = memory / heads;
  const std::int64_t h = memory - n * heads;
  const Sequence sequence = SequenceOf(n);
  const auto rows = [&](const TensorView& view) {
    return RowsOf(view, sequence.batch, sequence.first, h, column);
  };
  Vector m;
  if (call.v.defined()) {
    m.v = rows(call.v);
    m.v_im = rows(call.v_im);
    m.phase = rows(call.phase);
    const bool one_gate = call.log_decay.defined() && call.log_decay.rank() == 3;
    if (one_gate) {
      m.gate = RowsOf(call.log_decay, sequence.batch, sequence.first, h);
    } else {
      m.log_decay = rows(call.log_decay);
    }
    m.importance = RowsOf(call.importance, sequence.batch, sequence.first, h);
    if (!call.decay_factors.empty()) {
      m.decay_factor = call.decay_factors[static_cast<std::size_t>(h)];
    }
  }
  m.y = rows(call.y);
  const auto state_of = [&](const TensorView& state) -> void* {
    if (!state.defined()) return nullptr;
    return ElementOf(state, n * state.stride(0) + h * state.stride(1) + column);
  };
  m.re = state_of(call.state);
  m.im = state_of(call.state_im);
  if (!call.saved.empty()) {
    m.saved_re = SavedAt(sequence, h * columns + column, false);
    m.saved_im = m.im != nullptr ? SavedAt(sequence, h * columns + column, true) : nullptr;
    m.saved_stride = NumbersOfState();
  }
  m.tokens = sequence.tokens;
  m.channels = std::min(part_columns, columns - column);
  return m;
}

SavedHeader Work::Note() const {
  const std::int64_t width = NumbersOfState();
  return {.numbers = {tokens, sequences, width, sizes.key_dim, call.state_im.defined() ? 1 : 0,
                      static_cast<std::int64_t>(sizes.state), length}};
}

std::int64_t Work::NumbersOfState() const {
  return heads * std::max<std::int64_t>(1, sizes.key_dim) * columns;
}

std::byte* Work::SavedAt(const Sequence& sequence, std::int64_t number, bool imaginary) const {
  const std::int64_t first = sequence.batch * length + sequence.first;
  const std::int64_t states = SavedStates(first) + (imaginary ? SavedStates(tokens) : 0);
  return SavedHeader::Behind(call.saved) +
         (states * NumbersOfState() + number) * static_cast<std::int64_t>(SizeOf(sizes.state));
}

Matrix Work::MatrixOf(std::int64_t task) const {
  const std::int64_t memory = task / parts;
  const std::int64_t column = (task - memory * parts) * part_columns;
  const std::int64_t n = memory / heads;
  const std::int64_t h = memory - n * heads;
  const Sequence sequence = SequenceOf(n);
  const auto rows = [&](const TensorView& view, std::int64_t head, std::int64_t first) {
    return RowsOf(view, sequence.batch, sequence.first, head, first);
  };
  Matrix m;
  if (call.k.defined()) {
    m.k = rows(call.k, HeadOf(h, call.k), 0);
    m.v = rows(call.v, HeadOf(h, call.v), column);
    m.dt = rows(call.dt, h, column);
    m.importance = rows(call.importance, h, 0);
    m.a = {ElementOf(call.a, h * call.a.stride(0) + column * call.a.stride(1)), call.a.dtype(),
           call.a.stride(1)};
  }
  if (call.q.defined()) {
    m.q = rows(call.q, sizes.queries > 1 ? h * sizes.queries : HeadOf(h, call.q), 0);
    m.y = rows(call.y, h * sizes.queries, column);
    m.q_head_stride = call.q.stride(2);
    m.y_head_stride = call.y.stride(2);
  }
  m.state = ElementOf(call.state, n * call.state.stride(0) + h * call.state.stride(1) + column);
  m.state_stride = call.state.stride(2);
  if (!call.saved.empty()) {
    m.saved = SavedAt(sequence, h * sizes.key_dim * columns + column, false);
    m.saved_stride = NumbersOfState();
    m.saved_row_stride = columns;
  }
  m.tokens = sequence.tokens;
  m.key_dim = sizes.key_dim;
  m.columns = std::min(part_columns, columns - column);
  m.queries = sizes.queries;
  return m;
}

}  // namespace ttr::scan
