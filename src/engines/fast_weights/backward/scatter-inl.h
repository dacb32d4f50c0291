// From the gradients of a block's rows to those of inputs: gather-inl.h in reverse, row by
// row from the last, because curvature and maximum of a row come from the row before. Rows are
// padded with zeros to whole vectors, as are their gradients. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
#undef TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
#else
#define TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/backward/gather-inl.h"
#include "src/engines/fast_weights/backward/inputs-inl.h"
#include "src/engines/fast_weights/backward/rotation-inl.h"
#include "src/engines/fast_weights/backward/rows.h"
#include "src/engines/fast_weights/operands/erase_rules-inl.h"
#include "src/engines/fast_weights/operands/key_rules-inl.h"
#include "src/engines/fast_weights/operands/step_rules-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

template <class T>
class Scatter {
 public:
  Scatter(const Options& options, const Memory& memory, const GradientMemory& out, Side side,
          BackwardRows<T>& rows)
      : options_(options),
        memory_(memory),
        out_(out),
        side_(side),
        rows_(rows),
        dim_(memory.dims.key_dim),
        stride_(rows.key_stride),
        input_(options, memory, out, rows.key_stride, rows.row),
        extra_(input_.end()),
        sum_(extra_ + stride_) {}

  void Run() {
    for (std::int64_t r = rows_.count - 1; r >= 0; --r) Row(r);
  }

 private:
  /// Writes a row, or adds it to what is there; nothing where there are no rows.
  void Write(T* from, std::int64_t count, const Rows& to, std::int64_t t, bool add = false) {
    if (!to) return;
    if (add) {
      LoadRow(to, t, 0, count, sum_);
      for (std::int64_t i = 0; i < count; ++i) sum_[i] += from[i];
      from = sum_;
    }
    if (to.dtype == DTypeOf<T>()) {
      return Copy(from, count, static_cast<T*>(to.data) + t * to.stride);
    }
    StoreRow(from, t, 0, count, to);
  }
  void WriteOne(T x, const Rows& to, std::int64_t t) { Write(&x, 1, to, t); }

  void ReadPadded(const Rows& from, std::int64_t t, T* to) {
    LoadRow(from, t, 0, dim_, to);
    Pad(to, dim_, stride_);
  }

  void Queries(std::int64_t r, std::int64_t row, std::int64_t token) {
    if (side_ == Side::kWrites || !memory_.Reads(row) || rows_.in_place.d_query) return;
    for (std::int64_t q = 0; q < rows_.queries; ++q) Query(r, token, q);
  }

  void Row(std::int64_t r) {
    const std::int64_t row = rows_.first + r, token = memory_.Token(row);
    if (side_ == Side::kQueries) return Queries(r, row, token);
    if (options_.rotates()) RotateRowBack(options_.read_before, r, rows_);
    // The key's gradient, collected where that of the first of its roles stands.
    d_key_ = (options_.separate_value_key() ? rows_.d.key : rows_.d.write) + r * stride_;
    if (options_.erase == Erase::kEraseKey || options_.separate_value_key()) {
      d_erased_ = rows_.d.erase + r * stride_;
    }
    Keys(r, token);
    Queries(r, row, token);
    if (d_erased_ != nullptr) Write(d_erased_, dim_, out_.inputs.erase_key, token);
    if (!rows_.in_place.d_value) {
      Write(rows_.d.value + r * rows_.value_stride, memory_.dims.value_dim, out_.inputs.v, row,
            out_.add_v);
    }
    Numbers(r, token);
    if (options_.by_channel()) ChannelDecay(r, token);
    if (options_.key != Key::kInput || rows_.in_place.d_key) return;
    T* const dx = input_.plain() ? d_key_ : input_.From(memory_.inputs.k, row, token, d_key_, {});
    if (rows_.streams.key) {
      return CopyPast(dx, memory_.dims.input_dim,
                      static_cast<T*>(out_.inputs.k.data) + row * out_.inputs.k.stride);
    }
    Write(dx, memory_.dims.input_dim, out_.inputs.k, row, out_.add_k);
  }

  void Query(std::int64_t r, std::int64_t token, std::int64_t q) {
    T* const d_query = rows_.d.query + (q * rows_.rows + r) * stride_;
    if (options_.bonus) {
      const T* key = rows_.key + r * stride_;
      const T* query = rows_.query + (q * rows_.rows + r) * stride_;
      const T by = rows_.d.bonus[q * rows_.rows + r];
      ReadPadded(memory_.inputs.bonus, 0, extra_);
      AddProduct(rows_.d_bonus_row, by, key, query, stride_, rows_.d_bonus_row);
      AddProduct(d_key_, by, extra_, query, stride_, d_key_);
      AddProduct(d_query, by, extra_, key, stride_, d_query);
    }
    if (options_.scale != 1 && !rows_.folds_scale)
      MultiplyBy(d_query, stride_, static_cast<T>(options_.scale));
    const T correction = static_cast<T>(options_.correction);
    T* dx = d_query;
    // Features learn from queries, too.
    if (!input_.plain() || correction != 0) {
      dx = input_.From(QueryRows(memory_, q), token, token, d_query,
                       {correction, rows_.erase + r * stride_, d_erased_});
    }
    if (!out_.inputs.q) return;
    Rows to = out_.inputs.q;
    to.data = static_cast<std::byte*>(to.data) +
              q * out_.q_head_stride * static_cast<std::int64_t>(SizeOf(to.dtype));
    Write(dx, memory_.dims.input_dim, to, token, out_.add_q);
  }

  /// From the gradients of the keys that write and erase to d_key_ and d_erased_.
  void Keys(std::int64_t r, std::int64_t token) {
    const T* const key = rows_.key + r * stride_;
    const T* const d_write = rows_.d.write + r * stride_;
    T* const d_erase = rows_.d.erase != nullptr ? rows_.d.erase + r * stride_ : nullptr;
    if (options_.preconditioned) {
      const T weight =
          memory_.inputs.importance ? LoadOne<T>(memory_.inputs.importance, token) : T(1);
      const PreconditionRows<T> rows{key, rows_.running.curvature + (r + 1) * stride_, d_erase,
                                     d_key_, rows_.running.d_curvature};
      WriteOne(PreconditionGradient(options_, weight, rows, stride_), out_.inputs.importance,
               token);
      return;
    }
    const auto write = [&](T* from, std::int64_t count, Rows Operands<Rows>::* of)
                           HWY_ATTR { Write(from, count, out_.inputs.*of, token); };
    WithEraseRule(options_.erase, [&](auto rule) HWY_ATTR {
      rule.Gradients(TokenInputs<T>{memory_, token, stride_},
                     EraseGradients<T>{key, rows_.erase + r * stride_, d_write, d_key_, d_erase},
                     extra_, write);
    });
  }

  /// The gradients of a row's numbers, but for decays of channels.
  void Numbers(std::int64_t r, std::int64_t token) {
    const std::int64_t row = rows_.first + r;
    const T decay = rows_.erase_decay[r];
    T d_step = rows_.d.step[r];
    T d_decay = rows_.d.decay[r];
    if (options_.shrink != Shrink::kNone) {
      const bool coupled = options_.shrink == Shrink::kCoupled;
      const T lambda = LoadOne<T>(memory_.inputs.weight_decay, token);
      const T factor = 1 - (coupled ? rows_.step[r] * lambda : lambda);
      const T d_factor = decay * d_decay;
      if (coupled) d_step -= lambda * d_factor;
      WriteOne(coupled ? -rows_.step[r] * d_factor : -d_factor, out_.inputs.weight_decay, token);
      d_decay = factor * d_decay + rows_.d.erase_decay[r];
    }
    // Not causal d_decay is that of its logarithm.
    T d_log_decay = decay == 0 ? T(0) : (options_.causal ? decay : T(1)) * d_decay;
    if (options_.step == Step::kLogWeight) {
      LogWeight(r, d_step, d_log_decay);
    } else {
      StepSize(r, d_step);
    }
    if (options_.momentum) WriteOne(rows_.d.momentum[r], out_.inputs.momentum, token);
    const bool gated = options_.decay == Decay::kScalar && !options_.by_channel();
    if (gated && memory_.Starts(row)) WriteOne(d_log_decay, out_.inputs.log_decay, token);
  }

  /// A weight under a running maximum.
  void LogWeight(std::int64_t r, T d_step, T& d_log_decay) {
    RunningArrays<T>& running = rows_.running;
    T d_weight = rows_.step[r] == 0 ? T(0) : rows_.step[r] * d_step;
    if (rows_.first + r == 0) running.d_first_maximum += d_log_decay;
    if (running.from_past[r] != 0) {
      d_log_decay += running.d_maximum;
    } else {
      d_weight += running.d_maximum;
      running.d_maximum = 0;
    }
    WriteOne(d_weight, out_.inputs.step, rows_.first + r);
  }

  void StepSize(std::int64_t r, T d_step) {
    if (options_.step == Step::kOne) return;
    const std::int64_t row = rows_.first + r;
    T by_s = d_step;
    if (options_.step_reads_norm()) {
      const T* const key = rows_.key + r * stride_;
      const StepSlopes<T> slopes =
          SlopesOfStep(options_, memory_.inputs.step ? LoadOne<T>(memory_.inputs.step, row) : T(0),
                       Dot(key, key, stride_), rows_.step[r]);
      if (slopes.by_n != 0) AddMultiple(2 * d_step * slopes.by_n, key, stride_, d_key_);
      by_s *= slopes.by_s;
    }
    WriteOne(by_s, out_.inputs.step, row);
  }

  void ChannelDecay(std::int64_t r, std::int64_t token) {
    if (options_.phase) Write(rows_.d_phase + r * stride_, dim_, out_.inputs.phase, token);
    if (!memory_.Starts(rows_.first + r) || !out_.inputs.log_decay) return;
    T* const d_log_decay = rows_.d.gates + r * stride_;
    if (options_.decay == Decay::kScalar) {
      T sum = 0;
      for (std::int64_t i = 0; i < dim_; ++i) sum += d_log_decay[i];
      return WriteOne(sum, out_.inputs.log_decay, token);
    }
    if (options_.key != Key::kInput) {
      AddComplementGradient(options_.key, rows_.key + r * stride_, rows_.gates + r * stride_,
                            d_key_, stride_, d_log_decay);
    }
    Write(d_log_decay, dim_, out_.inputs.log_decay, token);
  }

  const Options& options_;
  const Memory& memory_;
  const GradientMemory& out_;
  Side side_;
  BackwardRows<T>& rows_;
  std::int64_t dim_, stride_;
  InputGradient<T> input_;
  T *extra_, *sum_;
  T* d_key_ = nullptr;     // of the row's key, in the block
  T* d_erased_ = nullptr;  // of its erase_key; null where there is none
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
