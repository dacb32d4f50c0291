// From the gradients of a block's rows to those of inputs: backward_gather-inl.h in reverse, row by
// row from the last, because curvature and maximum of a row come from the row before. Rows are
// padded with zeros to whole vectors, as are their gradients. Compiled once for every target.

#if defined(TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
#undef TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
#else
#define TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/engines/fast_weights/backward_gather-inl.h"
#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/backward_turn-inl.h"
#include "src/engines/rows/features_kernel.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// Derivatives of the step size by the input s and by n = |k|^2.
template <class T>
void StepSlopes(const Options& options, T s, T n, T step, T& by_s, T& by_n) {
  by_s = by_n = 0;
  switch (options.step) {
    case Step::kOne: return;
    case Step::kInput:
    case Step::kLogWeight: by_s = 1; return;
    case Step::kNlms: by_n = n == 0 ? T(0) : -step / (n + static_cast<T>(options.eps)); return;
    case Step::kLonghorn: {
      const T rest = 1 / (1 + s * n);
      by_s = rest * rest;
      by_n = -step * step;
      return;
    }
    case Step::kEfla: {
      const T rest = std::exp(-s * n);
      by_s = rest;
      // (s exp(-s n) - b) / n, by its series where the difference cancels
      const T x = s * n;
      by_n = std::abs(x) < static_cast<T>(1e-2) ? s * s * (x * (T(1) / 3 - x / 8) - T(0.5))
                                                : (s * rest - step) / n;
      return;
    }
  }
}

/// to = x + factor y (.) z, whole vectors; `to` may be x.
template <class T>
HWY_INLINE void AddProduct(const T* x, T factor, const T* y, const T* z, std::int64_t count,
                           T* to) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    const auto product =
        hn::Mul(hn::Mul(hn::Set(d, factor), hn::Load(d, y + i)), hn::Load(d, z + i));
    hn::Store(hn::Add(hn::Load(d, x + i), product), d, to + i);
  }
}

/// x += factor y, whole vectors.
template <class T>
HWY_INLINE void AddMultiple(T factor, const T* y, std::int64_t count, T* x) {
  const hn::ScalableTag<T> d;
  for (std::int64_t i = 0; i < count; i += static_cast<std::int64_t>(hn::Lanes(d))) {
    hn::Store(hn::MulAdd(hn::Set(d, factor), hn::Load(d, y + i), hn::Load(d, x + i)), d, x + i);
  }
}

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
        dim_(memory.key_dim),
        stride_(rows.key_stride),
        input_stride_(RoundUp(memory.input_dim, kUnit)) {
    raw_ = rows.row;
    x_ = raw_ + input_stride_;
    dx_ = x_ + input_stride_;  // and the scratch of features behind it
    extra_ = dx_ + 3 * input_stride_ + stride_;
    sum_ = extra_ + stride_;
    if (memory.position) position_ = static_cast<std::int64_t>(LoadOne<double>(memory.position, 0));
  }

  void Run() {
    for (std::int64_t r = rows_.count - 1; r >= 0; --r) Row(r);
  }

 private:
  static constexpr std::int64_t kUnit = 16;
  using D = hn::ScalableTag<T>;

  bool maps() const { return options_.features.map != rows::Map::kNone; }
  /// Are keys and queries read as they are?
  bool plain() const { return !options_.normalise_qk && !maps(); }
  bool stabilised() const { return options_.step == Step::kLogWeight; }

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
    if (side_ == Side::kWrites || !memory_.Reads(row) || rows_.d_query_lies) return;
    for (std::int64_t q = 0; q < rows_.queries; ++q) Query(r, token, q);
  }

  void Row(std::int64_t r) {
    const std::int64_t row = rows_.first + r, token = memory_.Token(row);
    if (side_ == Side::kQueries) return Queries(r, row, token);
    if (options_.rotates()) UnturnRow(options_.read_before, r, rows_);
    // The key's gradient, collected where that of the first of its roles stands.
    d_key_ = (options_.separate_value_key() ? rows_.d_second : rows_.d_write) + r * stride_;
    if (options_.erase == Erase::kEraseKey || options_.separate_value_key()) {
      d_erased_ = rows_.d_erase + r * stride_;
    }
    Keys(r, token);
    Queries(r, row, token);
    if (d_erased_ != nullptr) Write(d_erased_, dim_, out_.erase_key, token);
    if (!rows_.d_value_lies) {
      Write(rows_.d_value + r * rows_.value_stride, memory_.value_dim, out_.v, row, out_.add_v);
    }
    Numbers(r, token);
    if (options_.by_channel()) ChannelDecay(r, token);
    if (options_.key != Key::kInput || rows_.d_key_lies) return;
    T* const dx = plain() ? d_key_ : ThroughInput(memory_.k, row, r, d_key_, T(0));
    if (rows_.streams_key) {
      return CopyPast(dx, memory_.input_dim, static_cast<T*>(out_.k.data) + row * out_.k.stride);
    }
    Write(dx, memory_.input_dim, out_.k, row, out_.add_k);
  }

  /// dL/dx of a row of keys or queries, of the block's row r, from dL/dphi. Where a query is
  /// corrected, by -correction e, dL/de is added to.
  T* ThroughInput(const Rows& input, std::int64_t row, std::int64_t r, T* dphi, T correction) {
    const std::int64_t dim = memory_.input_dim;
    LoadRow(input, row, 0, dim, raw_);
    Pad(raw_, dim, input_stride_);
    const T factor = options_.normalise_qk ? static_cast<T>(sn::UnitFactor(raw_, dim)) : T(1);
    T* dx = dphi;
    if (maps()) {
      for (std::int64_t i = 0; i < dim; ++i) x_[i] = factor * raw_[i];
      if (correction != 0) SubtractMultiple(correction, rows_.erase + r * stride_, dim, x_);
      ThroughFeatures(memory_.Token(rows_.first + r), dphi);
      Pad(dx_, dim, input_stride_);
      dx = dx_;
    }
    if (correction != 0) SubtractMultiple<T>(correction, dx, dim, d_erased_);
    if (options_.normalise_qk) {
      // x / sqrt(|x|^2 + 1e-6)
      const T along = Dot(raw_, dx, input_stride_) * factor * factor;
      const D d;
      for (std::int64_t i = 0; i < input_stride_; i += static_cast<std::int64_t>(hn::Lanes(d))) {
        const auto rest =
            hn::NegMulAdd(hn::Set(d, along), hn::Load(d, raw_ + i), hn::Load(d, dx + i));
        hn::Store(hn::Mul(hn::Set(d, factor), rest), d, dx_ + i);
      }
      dx = dx_;
    }
    return dx;
  }

  void ThroughFeatures(std::int64_t token, T* dphi) {
    rows::FeatureTask task;
    task.x = {x_, DTypeOf<T>(), 0};
    task.y = {dphi, DTypeOf<T>(), 0};
    task.dx = {dx_, DTypeOf<T>(), 0};
    task.w = memory_.features_w.data;
    task.b = memory_.features_b.data;
    task.dw = out_.features_w.data;
    task.db = out_.features_b.data;
    task.tokens = 1;
    task.dim = memory_.input_dim;
    task.features = memory_.features;
    task.phi_dim = memory_.feature_dim;
    task.position = position_ + token;
    task.scratch = dx_ + input_stride_;
    rows::RunFeaturesGradient(DTypeOf<T>(), options_.features, task);
  }

  void Query(std::int64_t r, std::int64_t token, std::int64_t q) {
    T* const d_query = rows_.d_query + (q * rows_.rows + r) * stride_;
    if (options_.bonus) {
      const T* key = rows_.key + r * stride_;
      const T* query = rows_.query + (q * rows_.rows + r) * stride_;
      const T by = rows_.d_bonus[q * rows_.rows + r];
      ReadPadded(memory_.bonus, 0, extra_);
      AddProduct(rows_.d_bonus_row, by, key, query, stride_, rows_.d_bonus_row);
      AddProduct(d_key_, by, extra_, query, stride_, d_key_);
      AddProduct(d_query, by, extra_, key, stride_, d_query);
    }
    if (options_.scale != 1 && !rows_.folds_scale)
      MultiplyBy(d_query, stride_, static_cast<T>(options_.scale));
    const T correction = static_cast<T>(options_.correction);
    T* dx = d_query;
    // Features learn from queries, too.
    if (!plain() || correction != 0) {
      dx = ThroughInput(QueryRows(memory_, q), token, r, d_query, correction);
    }
    if (!out_.q) return;
    Rows to = out_.q;
    to.data = static_cast<std::byte*>(to.data) +
              q * out_.q_head_stride * static_cast<std::int64_t>(SizeOf(to.dtype));
    Write(dx, memory_.input_dim, to, token, out_.add_q);
  }

  /// From the gradients of the keys that write and erase to d_key_ and d_erased_.
  void Keys(std::int64_t r, std::int64_t token) {
    const T* const key = rows_.key + r * stride_;
    const T* const d_write = rows_.d_write + r * stride_;
    T* const d_erase = rows_.d_erase != nullptr ? rows_.d_erase + r * stride_ : nullptr;
    switch (options_.erase) {
      case Erase::kKey:
        if (options_.preconditioned) {
          Precondition(r, token, key, d_erase);
        } else if (d_erase != nullptr) {
          AddMultiple(T(1), d_erase, stride_, d_key_);
        }
        return;
      case Erase::kEraseKey: return;
      case Erase::kGatedKey:
        ReadPadded(memory_.erase_gate, token, extra_);
        AddProduct(d_key_, T(1), d_erase, extra_, stride_, d_key_);
        MultiplyRows(d_erase, key, stride_, extra_);
        return Write(extra_, dim_, out_.erase_gate, token);
      case Erase::kSeparateValueKey:
        ReadPadded(memory_.erase_gate, token, extra_);
        AddProduct(d_erase, T(1), d_write, extra_, stride_, d_erase);
        MultiplyRows(d_write, rows_.erase + r * stride_, stride_, extra_);
        return Write(extra_, dim_, out_.erase_gate, token);
    }
  }

  /// w = k (.) m(D), D = decay D' + weight k (.) k; PreconditionRow in operands/keys-inl.h. From
  /// dL/dw in d_key_.
  void Precondition(std::int64_t r, std::int64_t token, const T* key, const T* d_erase) {
    const D d;
    const T weight = memory_.importance ? LoadOne<T>(memory_.importance, token) : T(1);
    const T* const curvature = rows_.curvature + (r + 1) * stride_;
    const auto base = hn::Set(d, static_cast<T>(-0.405465108108164381978));  // -log 1.5
    const auto one = hn::Set(d, T(1));
    auto by_weight = hn::Zero(d);
    for (std::int64_t i = 0; i < stride_; i += static_cast<std::int64_t>(hn::Lanes(d))) {
      const auto k = hn::Load(d, key + i);
      const auto shifted = hn::Add(hn::Load(d, curvature + i), hn::Set(d, static_cast<T>(1e-6)));
      const auto l =
          hn::Sub(hn::Log(d, shifted), hn::Set(d, static_cast<T>(options_.curvature_centre)));
      const auto size = hn::Add(one, hn::Abs(l));
      const auto m = hn::Exp(d, hn::Mul(base, hn::Div(l, size)));
      const auto slope = hn::Div(hn::Mul(m, base), hn::Mul(hn::Mul(size, size), shifted));
      const auto d_write = hn::Load(d, d_key_ + i);
      const auto by_curvature =
          hn::MulAdd(hn::Mul(d_write, k), slope, hn::Load(d, rows_.d_curvature + i));
      const auto d_key = hn::MulAdd(d_write, m, hn::Load(d, d_erase + i));
      const auto twice = hn::Mul(hn::Set(d, 2 * weight), hn::Mul(k, by_curvature));
      hn::Store(hn::Add(d_key, twice), d, d_key_ + i);
      by_weight = hn::MulAdd(by_curvature, hn::Mul(k, k), by_weight);
      const auto decay = hn::Set(d, static_cast<T>(options_.curvature_decay));
      hn::Store(hn::Mul(decay, by_curvature), d, rows_.d_curvature + i);
    }
    WriteOne(hn::GetLane(hn::SumOfLanes(d, by_weight)), out_.importance, token);
  }

  void Numbers(std::int64_t r, std::int64_t token) {
    const std::int64_t row = rows_.first + r;
    const T decay = rows_.erase_decay[r];
    T d_step = rows_.d_step[r];
    T d_decay = rows_.d_decay[r];
    if (options_.shrink != Shrink::kNone) {
      const bool coupled = options_.shrink == Shrink::kCoupled;
      const T lambda = LoadOne<T>(memory_.weight_decay, token);
      const T saved = 1 - (coupled ? rows_.step[r] * lambda : lambda);
      const T d_saved = decay * d_decay;
      if (coupled) d_step -= lambda * d_saved;
      WriteOne(coupled ? -rows_.step[r] * d_saved : -d_saved, out_.weight_decay, token);
      d_decay = saved * d_decay + rows_.d_erase_decay[r];
    }
    // Not causal d_decay is that of its logarithm.
    T d_log_decay = decay == 0 ? T(0) : (options_.causal ? decay : T(1)) * d_decay;
    if (stabilised()) {
      T d_weight = rows_.step[r] == 0 ? T(0) : rows_.step[r] * d_step;
      if (row == 0) rows_.d_first_maximum += d_log_decay;
      if (rows_.saved[r] != 0) {
        d_log_decay += rows_.d_maximum;
      } else {
        d_weight += rows_.d_maximum;
        rows_.d_maximum = 0;
      }
      WriteOne(d_weight, out_.step, row);
    } else if (options_.step == Step::kInput) {
      WriteOne(d_step, out_.step, row);
    } else if (options_.step != Step::kOne) {
      const T* const key = rows_.key + r * stride_;
      T by_s, by_n;
      StepSlopes(options_, memory_.step ? LoadOne<T>(memory_.step, row) : T(0),
                 Dot(key, key, stride_), rows_.step[r], by_s, by_n);
      if (by_n != 0) AddMultiple(2 * d_step * by_n, key, stride_, d_key_);
      WriteOne(d_step * by_s, out_.step, row);
    }
    if (options_.momentum) WriteOne(rows_.d_momentum[r], out_.momentum, token);
    const bool gated = options_.decay == Decay::kScalar && !options_.by_channel();
    if (gated && memory_.Starts(row)) WriteOne(d_log_decay, out_.log_decay, token);
  }

  void ChannelDecay(std::int64_t r, std::int64_t token) {
    if (options_.phase) Write(rows_.d_phase + r * stride_, dim_, out_.phase, token);
    if (!memory_.Starts(rows_.first + r) || !out_.log_decay) return;
    T* const d_log_decay = rows_.d_log_decay + r * stride_;
    if (options_.decay == Decay::kScalar) {
      T sum = 0;
      for (std::int64_t i = 0; i < dim_; ++i) sum += d_log_decay[i];
      return WriteOne(sum, out_.log_decay, token);
    }
    if (options_.key != Key::kInput) {
      // 1 - e^x has the slope -e^x; sqrt(1 - e^2x) has -e^2x over itself
      const D d;
      for (std::int64_t i = 0; i < stride_; i += static_cast<std::int64_t>(hn::Lanes(d))) {
        auto slope = hn::Load(d, rows_.gates + r * stride_ + i);
        if (options_.key == Key::kRootComplement) {
          const auto key = hn::Load(d, rows_.key + r * stride_ + i);
          const auto some = hn::Gt(key, hn::Zero(d));
          const auto divisor = hn::IfThenElse(some, key, hn::Set(d, T(1)));
          slope = hn::IfThenElseZero(some, hn::Div(hn::Mul(slope, slope), divisor));
        }
        const auto sum =
            hn::NegMulAdd(hn::Load(d, d_key_ + i), slope, hn::Load(d, d_log_decay + i));
        hn::Store(sum, d, d_log_decay + i);
      }
    }
    Write(d_log_decay, dim_, out_.log_decay, token);
  }

  const Options& options_;
  const Memory& memory_;
  const GradientMemory& out_;
  Side side_;
  BackwardRows<T>& rows_;
  std::int64_t dim_, stride_, input_stride_;
  T *raw_, *x_, *dx_;  // an input row, as it is and as features meet it, and its gradient
  T *extra_, *sum_;
  T* d_key_ = nullptr;     // of the row's key, in the block
  T* d_erased_ = nullptr;  // of its erase_key; null where there is none
  std::int64_t position_ = 0;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_BACKWARD_SCATTER_INL_H_
