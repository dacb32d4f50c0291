// Gradients: which memory is done by whom, and the sums over the memories that share an input.

#include "src/engines/scan/gradient.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/engines/scan/gradient_kernel.h"
#include "src/engines/scan/work.h"
#include "src/parallel/claimed.h"
#include "src/parallel/workers.h"
#include "ttr/error.h"

namespace ttr::scan {
namespace {

/// Rows of tokens that one task sums.
constexpr std::int64_t kRowsATask = 64;

std::byte* At(const TensorView& view, std::int64_t offset) {
  return view.as<std::byte>() + offset * static_cast<std::int64_t>(SizeOf(view.dtype()));
}

GradientSizes SizesOf(const Work& work) {
  GradientSizes sizes{.sizes = work.sizes,
                      .heads = work.heads,
                      .value_heads = work.call.v.size(2),
                      .sequences = work.sequences,
                      .tokens = work.tokens,
                      .length = work.length,
                      .complex = work.call.state_im.defined()};
  sizes.sizes.value_dim = work.columns;
  return sizes;
}

std::size_t Rounded(std::size_t bytes) {
  return static_cast<std::size_t>(RoundUp(static_cast<std::int64_t>(bytes), kAlignment));
}

/// Of a worker: heads of vectors may lie next to each other.
template <class T>
std::size_t BytesOfWorker(const GradientSizes& of) {
  Sizes sizes = of.sizes;
  if (sizes.key_dim > 0) return Rounded(MatrixGradientScratch<T>(sizes, of.length, nullptr).bytes);
  sizes.value_dim *= of.heads;
  return Rounded(VectorGradientScratch<T>(sizes, of.length, of.complex, nullptr).bytes);
}

std::size_t BytesOfWorker(const GradientSizes& of) {
  return of.sizes.state == DType::kFloat64 ? BytesOfWorker<double>(of) : BytesOfWorker<float>(of);
}

std::int64_t GroupsOf(std::int64_t columns) { return (columns + kGroup - 1) / kGroup; }

/// Cuts a call into tasks.
void Divide(Work& work, int threads) {
  if (work.matrix) {
    work.part_columns = kGroup;
    work.parts = GroupsOf(work.columns);
  } else if (!work.shares_gates()) {
    work.Cut(threads);
    work.sizes.value_dim = std::min(work.columns, work.part_columns);
  }
}

/// Sums over a group of columns or over one of several memories, in the state's dtype:
/// [part][token of all][width].
class Parts {
 public:
  /// Takes its part of `memory`, if it is wanted.
  Parts(std::byte*& memory, bool wanted, DType dtype, std::int64_t parts, std::int64_t tokens,
        std::int64_t width)
      : memory_(wanted ? memory : nullptr), dtype_(dtype), tokens_(tokens), width_(width) {
    if (wanted) memory += Bytes(parts, tokens, width, dtype);
  }
  static std::size_t Bytes(std::int64_t parts, std::int64_t tokens, std::int64_t width,
                           DType dtype) {
    return Rounded(static_cast<std::size_t>(parts * tokens * width) * SizeOf(dtype));
  }

  explicit operator bool() const { return memory_ != nullptr; }
  std::int64_t stride() const { return tokens_ * width_; }
  std::byte* At(std::int64_t part, std::int64_t token, std::int64_t column = 0) const {
    if (memory_ == nullptr) return nullptr;
    return memory_ +
           ((part * tokens_ + token) * width_ + column) * static_cast<std::int64_t>(SizeOf(dtype_));
  }
  Rows RowsAt(std::int64_t part, std::int64_t token, std::int64_t column = 0) const {
    return {At(part, token, column), dtype_, width_};
  }

  /// row[i] = sum over parts first, first + step, ...
  void Sum(std::int64_t first, std::int64_t count, std::int64_t step, std::int64_t token,
           std::vector<double>& row) const {
    row.assign(static_cast<std::size_t>(width_), 0.0);
    for (std::int64_t p = 0; p < count; ++p) {
      const std::byte* data = At(first + p * step, token);
      for (std::int64_t i = 0; i < width_; ++i) {
        row[static_cast<std::size_t>(i)] += LoadElement(data, dtype_, i);
      }
    }
  }

 private:
  std::byte* memory_;
  DType dtype_;
  std::int64_t tokens_, width_;
};

/// From the gradient of x / sqrt(|x|^2 + 1e-6) to that of x.
void BackNormalise(const TensorView& x, std::int64_t offset, std::vector<double>& gradient) {
  std::vector<double> unit(gradient.size());
  double sum = 1e-6;
  for (std::size_t i = 0; i < unit.size(); ++i) {
    unit[i] = LoadElement(x.data(), x.dtype(), offset + static_cast<std::int64_t>(i));
    sum += unit[i] * unit[i];
  }
  const double norm = std::sqrt(sum);
  double along = 0;
  for (std::size_t i = 0; i < unit.size(); ++i) {
    unit[i] /= norm;
    along += unit[i] * gradient[i];
  }
  for (std::size_t i = 0; i < unit.size(); ++i) {
    gradient[i] = (gradient[i] - along * unit[i]) / norm;
  }
}

std::int64_t OffsetOf(const TensorView& view, std::int64_t b, std::int64_t t, std::int64_t h) {
  return b * view.stride(0) + t * view.stride(1) + h * view.stride(2);
}

void StoreTo(const TensorView& view, std::int64_t offset, const std::vector<double>& row) {
  for (std::size_t i = 0; i < row.size(); ++i) {
    StoreElement(view.data(), view.dtype(), offset + static_cast<std::int64_t>(i), row[i]);
  }
}

/// One call on matrix memories.
class MatrixWork {
 public:
  /// `memory`: Bytes() of it.
  MatrixWork(const Work& work, const Gradients& gradients, std::byte* memory)
      : work_(work),
        gradients_(gradients),
        batch_(work.call.v.size(0)),
        tokens_(batch_ * work.length),
        shares_values_(work.call.v.size(2) < work.heads),
        dk_(memory, gradients.k.defined(), work.sizes.state, Tasks(), tokens_, work.sizes.key_dim),
        dq_(memory, gradients.q.defined(), work.sizes.state, Tasks() * work.sizes.queries, tokens_,
            work.sizes.key_dim),
        dv_(memory, gradients.v.defined() && shares_values_, work.sizes.state, work.heads, tokens_,
            work.columns),
        dimportance_(memory, gradients.importance.defined(), work.sizes.state, Tasks(), tokens_, 1),
        da_(memory, gradients.a.defined(), work.sizes.state, work.sequences * work.heads,
            work.columns, work.sizes.key_dim) {}

  static std::size_t Bytes(const GradientSizes& of) {
    const Sizes& sizes = of.sizes;
    const std::int64_t tasks = of.heads * GroupsOf(sizes.value_dim);
    const auto bytes = [&](std::int64_t parts, std::int64_t tokens, std::int64_t width) {
      return Parts::Bytes(parts, tokens, width, sizes.state);
    };
    return bytes(tasks, of.tokens, sizes.key_dim) +
           bytes(tasks * sizes.queries, of.tokens, sizes.key_dim) +
           (of.value_heads < of.heads ? bytes(of.heads, of.tokens, sizes.value_dim) : 0) +
           bytes(tasks, of.tokens, 1) +
           bytes(of.sequences * of.heads, sizes.value_dim, sizes.key_dim);
  }

  MatrixGradient Of(std::int64_t task, const TensorView& dy, const TensorView& dstate) const {
    const std::int64_t memory = task / work_.parts;
    const std::int64_t part = task - memory * work_.parts;
    const std::int64_t column = part * work_.part_columns;
    const std::int64_t n = memory / work_.heads;
    const std::int64_t h = memory - n * work_.heads;
    const Sequence sequence = work_.SequenceOf(n);
    const std::int64_t token = sequence.batch * work_.length + sequence.first;
    const std::int64_t index = h * work_.parts + part;
    const auto rows = [&](const TensorView& view, std::int64_t head) {
      return RowsOf(view, sequence.batch, sequence.first, head, column);
    };
    MatrixGradient g;
    g.dy = rows(dy, h * work_.sizes.queries);
    g.dy_head_stride = dy.stride(2);
    g.dv = shares_values_ ? dv_.RowsAt(h, token, column) : rows(gradients_.v, h);
    g.ddt = rows(gradients_.dt, h);
    g.dimportance = dimportance_.RowsAt(index, token);
    g.dk = dk_.At(index, token);
    g.dq = dq_.At(index * work_.sizes.queries, token);
    g.dq_stride = dq_.stride();
    g.da = da_.At(memory, column);
    g.dstate = At(dstate, n * dstate.stride(0) + h * dstate.stride(1) + column);
    g.dstate_stride = dstate.stride(2);
    return g;
  }

  /// Sums of the rows begin .. end of all tokens.
  void SumTokens(std::int64_t begin, std::int64_t end) const {
    std::vector<double> row;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t b = i / work_.length;
      const std::int64_t t = i - b * work_.length;
      SumHeads(dk_, gradients_.k, work_.call.k, i, b, t, row);
      if (work_.sizes.queries > 1) {
        SumQueries(i, b, t, row);
      } else {
        SumHeads(dq_, gradients_.q, work_.call.q, i, b, t, row);
      }
      for (std::int64_t h = 0; dv_ && h < gradients_.v.size(2); ++h) {
        const std::int64_t memories = work_.heads / gradients_.v.size(2);
        dv_.Sum(h * memories, memories, 1, i, row);
        StoreTo(gradients_.v, OffsetOf(gradients_.v, b, t, h), row);
      }
      for (std::int64_t h = 0; dimportance_ && h < work_.heads; ++h) {
        dimportance_.Sum(h * work_.parts, work_.parts, 1, i, row);
        StoreTo(gradients_.importance, OffsetOf(gradients_.importance, b, t, h), row);
      }
    }
  }

  std::int64_t tokens() const { return tokens_; }

  void SumRates() const {
    std::vector<double> row;
    for (std::int64_t h = 0; da_ && h < work_.heads; ++h) {
      for (std::int64_t c = 0; c < work_.columns; ++c) {
        da_.Sum(h, work_.sequences, work_.heads, c, row);
        StoreTo(gradients_.a, h * gradients_.a.stride(0) + c * gradients_.a.stride(1), row);
      }
    }
  }

 private:
  std::int64_t Tasks() const { return work_.heads * work_.parts; }

  /// Keys or queries of heads that several memories read.
  void SumHeads(const Parts& parts, const TensorView& gradient, const TensorView& input,
                std::int64_t i, std::int64_t b, std::int64_t t, std::vector<double>& row) const {
    if (!parts) return;
    const std::int64_t count = work_.heads / gradient.size(2) * work_.parts;
    for (std::int64_t h = 0; h < gradient.size(2); ++h) {
      parts.Sum(h * count, count, 1, i, row);
      if (work_.options.normalise_qk) BackNormalise(input, OffsetOf(input, b, t, h), row);
      StoreTo(gradient, OffsetOf(gradient, b, t, h), row);
    }
  }

  /// Several queries read one memory.
  void SumQueries(std::int64_t i, std::int64_t b, std::int64_t t, std::vector<double>& row) const {
    if (!dq_) return;
    const std::int64_t queries = work_.sizes.queries;
    for (std::int64_t j = 0; j < gradients_.q.size(2); ++j) {
      const std::int64_t h = j / queries;
      dq_.Sum(h * work_.parts * queries + j - h * queries, work_.parts, queries, i, row);
      const TensorView& q = work_.call.q;
      if (work_.options.normalise_qk) BackNormalise(q, OffsetOf(q, b, t, j), row);
      StoreTo(gradients_.q, OffsetOf(gradients_.q, b, t, j), row);
    }
  }

  const Work& work_;
  const Gradients& gradients_;
  std::int64_t batch_, tokens_;
  bool shares_values_;
  Parts dk_, dq_, dv_, dimportance_, da_;
};

VectorGradient VectorGradientOf(const Work& work, const Gradients& gradients, std::int64_t task,
                                const TensorView& dstate, const TensorView& dstate_im) {
  const std::int64_t memory = task / work.parts;
  const std::int64_t column = (task - memory * work.parts) * work.part_columns;
  const std::int64_t n = memory / work.heads;
  const std::int64_t h = memory - n * work.heads;
  const Sequence sequence = work.SequenceOf(n);
  const auto rows = [&](const TensorView& view, std::int64_t from) {
    return RowsOf(view, sequence.batch, sequence.first, h, from);
  };
  VectorGradient g;
  g.dy = rows(work.call.y, column);
  g.dv = rows(gradients.v, column);
  g.dv_im = rows(gradients.v_im, column);
  g.dphase = rows(gradients.phase, column);
  const bool one_gate = gradients.log_decay.defined() && gradients.log_decay.rank() == 3;
  (one_gate ? g.dgate : g.dlog_decay) = rows(gradients.log_decay, one_gate ? 0 : column);
  g.dimportance = rows(gradients.importance, 0);
  const auto state_of = [&](const TensorView& state) {
    return At(state, n * state.stride(0) + h * state.stride(1) + column);
  };
  g.dre = state_of(dstate);
  if (dstate_im.defined()) g.dim = state_of(dstate_im);
  return g;
}

}  // namespace

void Backward(const Options& options, const Call& call, const TensorView& dy,
              const TensorView& dstate, const TensorView& dstate_im, const Gradients& gradients,
              Executor& executor, std::span<std::byte> scratch) {
  Call with_dy = call;
  with_dy.y = dy;
  const TensorView others[] = {gradients.v, gradients.v_im, gradients.log_decay, gradients.phase};
  Work work(options, with_dy, others);
  if (!call.saved.empty() && !work.Note().StandsIn(call.saved)) {
    throw Error("Backward", "kept", "what Forward left there for the same inputs",
                "something else");
  }
  if (work.heads * work.columns == 0) return;
  const GradientSizes sizes = SizesOf(work);
  Divide(work, executor.threads());
  const int workers = static_cast<int>(std::min<std::int64_t>(executor.threads(), work.tasks()));
  const Claimed claimed("scan", scratch, BackwardScratchBytes(sizes, workers));
  const std::size_t bytes = BytesOfWorker(sizes);
  const auto own = [&](int worker) {
    return claimed.start() + static_cast<std::size_t>(worker) * bytes;
  };
  if (!work.matrix) {
    RunOnWorkers(executor, workers, work.tasks(), [&](std::int64_t task, int worker) {
      BackScanVector(options, work.VectorOf(task),
                     VectorGradientOf(work, gradients, task, dstate, dstate_im), work.sizes,
                     own(worker));
    });
    return;
  }
  const MatrixWork sums(work, gradients, own(workers));
  RunOnWorkers(executor, workers, work.tasks(), [&](std::int64_t task, int worker) {
    BackScanMatrix(options, work.MatrixOf(task), sums.Of(task, dy, dstate), work.sizes,
                   own(worker));
  });
  const std::int64_t items = (sums.tokens() + kRowsATask - 1) / kRowsATask;
  const int summers = static_cast<int>(std::min<std::int64_t>(executor.threads(), items));
  RunOnWorkers(executor, summers, items, [&](std::int64_t item, int) {
    sums.SumTokens(item * kRowsATask, std::min((item + 1) * kRowsATask, sums.tokens()));
  });
  sums.SumRates();
}

std::size_t BackwardScratchBytes(const GradientSizes& sizes, int threads) {
  const std::size_t sums = sizes.sizes.key_dim > 0 ? MatrixWork::Bytes(sizes) : 0;
  return static_cast<std::size_t>(threads) * BytesOfWorker(sizes) + sums + kAlignment;
}

}  // namespace ttr::scan
