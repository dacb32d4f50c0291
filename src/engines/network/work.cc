#include "src/engines/network/work.h"

namespace ttr::network {
namespace {

common::Sequences SequencesOf(const Call& call) {
  const TensorView& timed = call.v.defined() ? call.v : call.q;
  return {call.cu_seqlens, call.weights.w.front().size(0), timed.size(1), call.slots};
}

}  // namespace

Work::Work(const Options& o, const Call& c)
    : options(o), call(c), sequences(SequencesOf(c)), heads(c.weights.w.front().size(1), c.q) {
  const TensorView& first = call.weights.w.front();
  sizes.shape = {.depth = options.depth,
                 .key_dim = first.size(2),
                 .hidden = options.gated ? first.size(3) / 2 : first.size(3),
                 .value_dim = call.weights.w.back().size(3),
                 .bias = options.bias,
                 .gated = options.gated};
  sizes.heads = heads.memories;
  sizes.queries = heads.queries;
  sizes.tokens = sequences.longest();
  sizes.dtype = first.dtype();
}

Memory Work::MemoryOf(std::int64_t item) const {
  const auto task = common::Task::Of(item, heads.memories, 1);
  const common::Sequence sequence = sequences[task.sequence];
  const std::int64_t h = task.head;
  Memory m;
  m.call = &call;
  m.state_row = sequences.StateRow(task.sequence);
  m.head = h;
  m.tokens = sequence.tokens;
  m.queries = heads.queries;
  if (call.q.defined()) {
    m.q = common::HeadRowsOf(call.q, sequence, heads.QueryOf(h, call.q));
    m.y = common::HeadRowsOf(call.y, sequence, heads.OutputOf(h));
    m.status = common::HeadRowsOf(call.status, sequence, heads.OutputOf(h));
  }
  if (call.k.defined()) {
    m.k = common::RowsOf(call.k, sequence, heads.Of(h, call.k));
    m.v = common::RowsOf(call.v, sequence, heads.Of(h, call.v));
    m.step = common::RowsOf(call.step, sequence, h);
    m.momentum = common::RowsOf(call.momentum, sequence, h);
    m.weight_decay = common::RowsOf(call.weight_decay, sequence, h);
  }
  m.ln_weight = common::ConstantOf(call.ln_weight, h);
  m.ln_bias = common::ConstantOf(call.ln_bias, h);
  m.row_bias = common::ConstantOf(call.row_bias, h);
  if (call.position.defined()) {
    m.position = call.position.as<std::int64_t>() + m.state_row * call.position.stride(0) +
                 h * call.position.stride(1);
  }
  return m;
}

double FlopsPerToken(const Shape& shape) {
  double weights = 0;
  for (std::int64_t l = 0; l < shape.depth; ++l) {
    weights += static_cast<double>(shape.In(l)) * static_cast<double>(shape.Out(l));
  }
  return 8 * weights;
}

}  // namespace ttr::network
