#include "src/engines/scan/work.h"

#include <algorithm>
#include <functional>

#include "src/engines/common/row_views.h"

namespace ttr::scan {
namespace {

using common::Sequence;
using common::Task;

/// Are the heads of a per-channel tensor next to each other (or absent)?
bool HeadsAdjoin(const TensorView& view) {
  if (!view.defined() || view.size(2) == 1) return true;
  return view.rank() == 4 && view.stride(2) == view.size(3);
}

common::Sequences SequencesOf(const Call& call) {
  const TensorView& timed = call.v.defined() ? call.v : call.y;
  return {call.cu_seqlens, call.state.size(0), timed.size(1), call.slots};
}

}  // namespace

Work::Work(const Options& o, const Call& c, std::span<const TensorView> others)
    : options(o),
      call(c),
      matrix(c.state.rank() == 4),
      sequences(SequencesOf(c)),
      heads(c.state.size(1), c.q),
      columns{.columns = c.state.size(matrix ? 3 : 2)} {
  sizes.key_dim = matrix ? call.state.size(2) : 0;
  sizes.queries = heads.queries;
  sizes.state = call.state.dtype();
  sizes.whole_rows = options.output_norm != OutputNorm::kNone;
  if (!matrix && HeadsAreOneVector(others)) {
    columns = {.columns = columns.columns * heads.memories};
    heads.memories = 1;
  }
  sizes.value_dim = columns.columns;
  saved = {.memory = call.saved,
           .width = entries(),
           .tokens = sequences.tokens(),
           .dtype = sizes.state,
           .complex = call.state_im.defined()};
}

std::int64_t Work::entries() const {
  return heads.memories * std::max<std::int64_t>(1, sizes.key_dim) * columns.columns;
}

bool Work::shares_gates() const {
  return call.importance.defined() || (call.log_decay.defined() && call.log_decay.rank() == 3);
}

bool Work::HeadsAreOneVector(std::span<const TensorView> others) const {
  if (heads.memories == 1 || shares_gates() || sizes.whole_rows) return false;
  const auto factors = call.decay_factors;
  if (std::adjacent_find(factors.begin(), factors.end(), std::not_equal_to<>()) != factors.end()) {
    return false;
  }
  for (const TensorView* view : {&call.v, &call.v_im, &call.log_decay, &call.phase, &call.y}) {
    if (!HeadsAdjoin(*view)) return false;
  }
  if (!std::all_of(others.begin(), others.end(), HeadsAdjoin)) return false;
  for (const TensorView* state : {&call.state, &call.state_im}) {
    if (state->defined() && state->stride(1) != state->size(2)) return false;
  }
  return true;
}

void Work::Cut(int threads) {
  if (sizes.whole_rows) return;
  // A line of a matrix's columns is much work; of a vector's channels it is little beside its rows.
  const std::int64_t bytes = matrix ? common::kLineBytes : kStripBytes;
  columns.Cut(memories(), threads, bytes / static_cast<std::int64_t>(SizeOf(sizes.state)));
}

Vector Work::VectorOf(std::int64_t item) const {
  Vector m;
  WithTask(*this, item, [&](const Task& task, const Sequence& sequence, std::int64_t column) {
    const std::int64_t h = task.head;
    const auto rows = [&](const TensorView& view, std::int64_t first) {
      return common::RowsOf(view, sequence, h, first);
    };
    if (call.v.defined()) {
      m.v = rows(call.v, column);
      m.v_im = rows(call.v_im, column);
      m.phase = rows(call.phase, column);
      const bool one_gate = call.log_decay.defined() && call.log_decay.rank() == 3;
      (one_gate ? m.gate : m.log_decay) = rows(call.log_decay, one_gate ? 0 : column);
      m.importance = rows(call.importance, 0);
      if (!call.decay_factors.empty()) {
        m.decay_factor = call.decay_factors[static_cast<std::size_t>(h)];
      }
    }
    m.y = rows(call.y, column);
    m.state.re = common::StateOf(call.state, sequences.StateRow(task.sequence), h, column).data;
    m.state.im = common::StateOf(call.state_im, sequences.StateRow(task.sequence), h, column).data;
    const std::int64_t first = sequences.Place(sequence), at = h * columns.columns + column;
    m.saved.re = saved.At(first, at, false);
    if (saved.complex) m.saved.im = saved.At(first, at, true);
    m.saved.stride = saved.width;
    m.tokens = sequence.tokens;
    m.channels = columns.Columns(task.part);
  });
  return m;
}

Matrix Work::MatrixOf(std::int64_t item) const {
  Matrix m;
  WithTask(*this, item, [&](const Task& task, const Sequence& sequence, std::int64_t column) {
    const std::int64_t h = task.head;
    const auto rows = [&](const TensorView& view, std::int64_t head, std::int64_t first) {
      return common::RowsOf(view, sequence, head, first);
    };
    if (call.k.defined()) {
      m.k = rows(call.k, heads.Of(h, call.k), 0);
      m.v = rows(call.v, heads.Of(h, call.v), column);
      m.dt = rows(call.dt, h, column);
      m.importance = rows(call.importance, h, 0);
      m.a = common::ConstantOf(call.a, h, column);
    }
    if (call.q.defined()) {
      m.q = common::HeadRowsOf(call.q, sequence, heads.QueryOf(h, call.q));
      m.y = common::HeadRowsOf(call.y, sequence, heads.OutputOf(h), column);
    }
    const Rows state = common::StateOf(call.state, sequences.StateRow(task.sequence), h, column);
    m.state = {state.data, state.stride};
    m.saved = {
        saved.At(sequences.Place(sequence), h * sizes.key_dim * columns.columns + column, false),
        columns.columns, saved.width};
    m.tokens = sequence.tokens;
    m.key_dim = sizes.key_dim;
    m.columns = columns.Columns(task.part);
    m.queries = sizes.queries;
  });
  return m;
}

}  // namespace ttr::scan
