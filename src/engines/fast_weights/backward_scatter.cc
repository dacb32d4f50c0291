// From the gradients of rows to those of inputs: backward_gather.cc in reverse, row by row from the
// last, because curvature and maximum of a row come from the row before.

#include <algorithm>
#include <cmath>

#include "src/engines/fast_weights/backward_rows.h"
#include "src/engines/fast_weights/row_io.h"
#include "src/engines/rows/features_kernel.h"

namespace ttr::fast_weights {
namespace {

constexpr std::int64_t kUnit = 16;

/// Through x / sqrt(|x|^2 + 1e-6), in place.
template <class T>
void ThroughUnitNorm(const T* x, std::int64_t count, T* dx) {
  T squares = static_cast<T>(1e-6), product = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    squares += x[i] * x[i];
    product += x[i] * dx[i];
  }
  const T norm = std::sqrt(squares);
  for (std::int64_t i = 0; i < count; ++i) dx[i] = (dx[i] - x[i] * (product / squares)) / norm;
}

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

template <class T>
class Scatter {
 public:
  Scatter(const Options& options, const Memory& memory, const GradientMemory& out,
          BackwardRows<T>& rows)
      : options_(options),
        memory_(memory),
        out_(out),
        rows_(rows),
        dim_(memory.key_dim),
        stride_(rows.key_stride) {
    const std::int64_t unit = RoundUp(memory.input_dim, kUnit);
    raw_ = rows.row;
    x_ = raw_ + unit;
    dx_ = x_ + unit;  // and the scratch of features behind it
    d_key_ = rows.row + 7 * unit + stride_;
    d_erase_ = d_key_ + stride_;
    extra_ = d_erase_ + stride_;
    if (memory.position) position_ = static_cast<std::int64_t>(ReadOne<double>(memory.position, 0));
  }

  void Run() {
    if (options_.preconditioned) {
      std::fill_n(rows_.d_curvature, stride_, T(0));
      if (out_.dcurvature) ReadRow(out_.dcurvature, 0, dim_, rows_.d_curvature);
    }
    if (options_.bonus) std::fill_n(rows_.d_bonus_row, stride_, T(0));
    FinalMaximum();
    for (std::int64_t r = rows_.rows - 1; r >= 0; --r) Row(r);
    State();
  }

 private:
  /// Are keys and queries read as they are?
  bool plain() const { return !options_.normalise_qk && options_.features.map == rows::Map::kNone; }
  bool stabilised() const { return options_.step == Step::kLogWeight; }

  /// Answers do not depend on the maximum by which the memory is divided, so that it has no
  /// gradient inside of the sequence. The final memory is divided by the final maximum: minus the
  /// product of the memory and its gradient.
  void FinalMaximum() {
    if (!stabilised()) return;
    if (out_.dmaximum) d_maximum_ = ReadOne<T>(out_.dmaximum, 0);
    if (rows_.rows == 0) return;
    for (std::int64_t d = 0; d < dim_; ++d) {
      for (std::int64_t c = 0; c < rows_.value_dim; ++c) {
        const std::int64_t at = d * rows_.value_stride + c;
        d_maximum_ -= rows_.d_final[at] * rows_.last[at];
      }
    }
  }

  void Row(std::int64_t r) {
    if (r >= kRowsAhead) {
      FetchRow(out_.k, r - kRowsAhead, memory_.input_dim);
      FetchRow(out_.v, r - kRowsAhead, memory_.value_dim);
      FetchRow(out_.q, memory_.Token(r - kRowsAhead), memory_.input_dim);
    }
    std::fill_n(d_key_, stride_, T(0));
    std::fill_n(d_erase_, stride_, T(0));
    for (std::int64_t q = 0; memory_.Reads(r) && q < rows_.queries; ++q) Query(r, q);
    Keys(r);
    WriteRow(rows_.d_value + r * rows_.value_stride, memory_.value_dim, out_.v, r, out_.add_v);
    Numbers(r);
    if (options_.by_channel()) ChannelDecay(r);
    if (options_.key != Key::kInput) return;
    if (plain()) return WriteRow(d_key_, dim_, out_.k, r, out_.add_k);
    ReadRow(memory_.k, r, memory_.input_dim, raw_);
    std::copy_n(raw_, memory_.input_dim, x_);
    Normalise(x_);
    ThroughFeatures(memory_.Token(r), d_key_);
    if (options_.normalise_qk) ThroughUnitNorm(raw_, memory_.input_dim, dx_);
    WriteRow(dx_, memory_.input_dim, out_.k, r, out_.add_k);
  }

  void Normalise(T* x) const {
    if (!options_.normalise_qk) return;
    T squares = static_cast<T>(1e-6);
    for (std::int64_t i = 0; i < memory_.input_dim; ++i) squares += x[i] * x[i];
    const T factor = 1 / std::sqrt(squares);
    for (std::int64_t i = 0; i < memory_.input_dim; ++i) x[i] *= factor;
  }

  /// dx_ = dL/dx from dL/dphi(x), x in x_.
  void ThroughFeatures(std::int64_t token, T* dphi) {
    if (options_.features.map == rows::Map::kNone) {
      std::copy_n(dphi, memory_.input_dim, dx_);
      return;
    }
    rows::FeatureTask task;
    task.x = {x_, DTypeOf<T>(), 0};
    task.y = {dphi, DTypeOf<T>(), 0};
    task.dx = {dx_, DTypeOf<T>(), 0};
    task.w = memory_.features_w;
    task.b = memory_.features_b;
    task.dw = out_.features_w;
    task.db = out_.features_b;
    task.tokens = 1;
    task.dim = memory_.input_dim;
    task.features = memory_.features;
    task.phi_dim = dim_;
    task.position = position_ + token;
    task.scratch = dx_ + RoundUp(memory_.input_dim, kUnit);
    rows::RunFeaturesGradient(DTypeOf<T>(), options_.features, task);
  }

  void Query(std::int64_t r, std::int64_t q) {
    const std::int64_t token = memory_.Token(r);
    T* const d_query = rows_.d_query + (q * rows_.rows + r) * stride_;
    if (options_.bonus) {
      const T* key = rows_.key + r * stride_;
      const T* query = rows_.query + (q * rows_.rows + r) * stride_;
      const T by = rows_.d_bonus[q * rows_.rows + r];
      ReadRow(memory_.bonus, 0, dim_, extra_);
      for (std::int64_t d = 0; d < dim_; ++d) {
        rows_.d_bonus_row[d] += by * key[d] * query[d];
        d_key_[d] += by * extra_[d] * query[d];
        d_query[d] += by * extra_[d] * key[d];
      }
    }
    for (std::int64_t d = 0; d < dim_; ++d) d_query[d] *= static_cast<T>(options_.scale);
    const T correction = static_cast<T>(options_.correction);
    if (plain() && correction == 0) return WriteQuery(d_query, token, q);
    ReadRow(QueryRows(memory_, q), token, memory_.input_dim, raw_);
    std::copy_n(raw_, memory_.input_dim, x_);
    Normalise(x_);
    if (correction != 0) {
      ReadRow(memory_.erase_key, token, memory_.input_dim, extra_);
      for (std::int64_t d = 0; d < memory_.input_dim; ++d) x_[d] -= correction * extra_[d];
    }
    ThroughFeatures(token, d_query);
    if (correction != 0) {
      for (std::int64_t d = 0; d < memory_.input_dim; ++d) d_erase_[d] -= correction * dx_[d];
    }
    if (options_.normalise_qk) ThroughUnitNorm(raw_, memory_.input_dim, dx_);
    WriteQuery(dx_, token, q);
  }

  void WriteQuery(const T* dx, std::int64_t token, std::int64_t q) const {
    if (!out_.q) return;
    Rows rows = out_.q;
    rows.data = static_cast<std::byte*>(rows.data) +
                q * out_.q_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
    WriteRow(dx, memory_.input_dim, rows, token, out_.add_q);
  }

  void Keys(std::int64_t r) {
    const std::int64_t token = memory_.Token(r);
    const T* const key = rows_.key + r * stride_;
    const T* const d_write = rows_.d_write + r * stride_;
    const T* const d_erase = rows_.d_erase != nullptr ? rows_.d_erase + r * stride_ : nullptr;
    switch (options_.erase) {
      case Erase::kKey:
        if (options_.preconditioned) {
          Precondition(r, key, d_write, d_erase);
          break;
        }
        for (std::int64_t d = 0; d < dim_; ++d) d_key_[d] += d_write[d];
        for (std::int64_t d = 0; d_erase != nullptr && d < dim_; ++d) d_key_[d] += d_erase[d];
        break;
      case Erase::kEraseKey:
        for (std::int64_t d = 0; d < dim_; ++d) {
          d_key_[d] += d_write[d];
          d_erase_[d] += d_erase[d];
        }
        break;
      case Erase::kGatedKey:
        ReadRow(memory_.erase_gate, token, dim_, extra_);
        for (std::int64_t d = 0; d < dim_; ++d) {
          d_key_[d] += d_write[d] + d_erase[d] * extra_[d];
          extra_[d] = d_erase[d] * key[d];
        }
        WriteRow(extra_, dim_, out_.erase_gate, token, false);
        break;
      case Erase::kApart: {
        const T* const erase = rows_.erase + r * stride_;
        const T* const d_second = rows_.d_second + r * stride_;
        ReadRow(memory_.erase_gate, token, dim_, extra_);
        for (std::int64_t d = 0; d < dim_; ++d) {
          d_key_[d] += d_second[d];
          d_erase_[d] += d_erase[d] + d_write[d] * extra_[d];
          extra_[d] = d_write[d] * erase[d];
        }
        WriteRow(extra_, dim_, out_.erase_gate, token, false);
        break;
      }
    }
    WriteRow(d_erase_, dim_, out_.erase_key, token, false);
  }

  /// w = k (.) m(D), D = decay D' + weight k (.) k.
  void Precondition(std::int64_t r, const T* key, const T* d_write, const T* d_erase) {
    constexpr double kLogBase = 0.405465108108164381978;  // log 1.5
    const T weight = memory_.importance ? ReadOne<T>(memory_.importance, r) : T(1);
    const T* const curvature = rows_.curvature + (r + 1) * stride_;
    T by_weight = 0;
    for (std::int64_t d = 0; d < dim_; ++d) {
      const T shifted = curvature[d] + static_cast<T>(1e-6);
      const T l = std::log(shifted) - static_cast<T>(options_.curvature_centre);
      const T size = 1 + std::abs(l);
      const T m = std::exp(static_cast<T>(-kLogBase) * l / size);
      const T slope = -m * static_cast<T>(kLogBase) / (size * size * shifted);
      const T by_curvature = rows_.d_curvature[d] + d_write[d] * key[d] * slope;
      d_key_[d] += d_write[d] * m + d_erase[d] + 2 * weight * key[d] * by_curvature;
      by_weight += by_curvature * key[d] * key[d];
      rows_.d_curvature[d] = static_cast<T>(options_.curvature_decay) * by_curvature;
    }
    if (out_.importance) WriteOne(by_weight, out_.importance, r);
  }

  void Numbers(std::int64_t r) {
    const std::int64_t token = memory_.Token(r);
    const T decay = rows_.erase_decay[r];
    T d_step = rows_.d_step[r];
    T d_decay = rows_.d_decay[r];
    if (options_.shrink != Shrink::kNone) {
      const T kept = 1 - rows_.shrinkage[r];
      const T d_kept = decay * d_decay;
      const bool coupled = options_.shrink == Shrink::kCoupled;
      if (coupled) d_step -= ReadOne<T>(memory_.weight_decay, token) * d_kept;
      if (out_.weight_decay) {
        WriteOne(coupled ? -rows_.step[r] * d_kept : -d_kept, out_.weight_decay, token);
      }
      d_decay = kept * d_decay + rows_.d_erase_decay[r];
    }
    T d_log_decay = decay == 0 ? T(0) : decay * d_decay;
    if (stabilised()) {
      T d_weight = rows_.step[r] == 0 ? T(0) : rows_.step[r] * d_step;
      if (r == 0) d_first_ = d_log_decay + rows_.d_first_maximum;
      if (rows_.kept[r]) {
        d_log_decay += d_maximum_;
      } else {
        d_weight += d_maximum_;
        d_maximum_ = 0;
      }
      if (out_.step) WriteOne(d_weight, out_.step, r);
    } else {
      const T* const key = rows_.key + r * stride_;
      T n = 0, by_s, by_n;
      for (std::int64_t d = 0; d < dim_; ++d) n += key[d] * key[d];
      StepSlopes(options_, memory_.step ? ReadOne<T>(memory_.step, r) : T(0), n, rows_.step[r],
                 by_s, by_n);
      if (by_n != 0) {
        for (std::int64_t d = 0; d < dim_; ++d) d_key_[d] += 2 * d_step * by_n * key[d];
      }
      if (out_.step) WriteOne(d_step * by_s, out_.step, r);
    }
    if (options_.momentum && out_.momentum) WriteOne(rows_.d_momentum[r], out_.momentum, token);
    const bool gated = options_.decay == Decay::kScalar && !options_.by_channel();
    if (gated && memory_.Starts(r) && out_.log_decay) WriteOne(d_log_decay, out_.log_decay, token);
  }

  void ChannelDecay(std::int64_t r) {
    const std::int64_t token = memory_.Token(r);
    if (options_.phase) WriteRow(rows_.d_phase + r * stride_, dim_, out_.phase, token, false);
    if (!memory_.Starts(r) || !out_.log_decay) return;
    T* const d_log_decay = rows_.d_log_decay + r * stride_;
    if (options_.decay == Decay::kScalar) {
      T sum = 0;
      for (std::int64_t d = 0; d < dim_; ++d) sum += d_log_decay[d];
      WriteOne(sum, out_.log_decay, token);
      return;
    }
    if (options_.key != Key::kInput) {
      // 1 - e^x has the slope -e^x; sqrt(1 - e^2x) has -e^2x over itself
      const bool root = options_.key == Key::kRootComplement;
      const T* const key = rows_.key + r * stride_;
      const T* const log_decay = rows_.log_decay + r * stride_;
      for (std::int64_t d = 0; d < dim_; ++d) {
        const T factor = std::exp((root ? 2 : 1) * log_decay[d]);
        const T slope = !root ? -factor : key[d] > 0 ? -factor / key[d] : T(0);
        d_log_decay[d] += d_key_[d] * slope;
      }
    }
    WriteRow(d_log_decay, dim_, out_.log_decay, token, false);
  }

  void State() {
    for (std::int64_t d = 0; d < dim_; ++d) {
      const std::int64_t at = d * rows_.value_stride;
      WriteRow(rows_.d_initial + at, memory_.value_dim, out_.state, d, false);
      if (!options_.paired()) continue;
      WriteRow(rows_.d_initial_second + at, memory_.value_dim, out_.second, d, false);
    }
    if (out_.sum) {
      for (std::int64_t d = 0; d < dim_; ++d) {
        extra_[d] = rows_.d_initial[d * rows_.value_stride + memory_.value_dim];
      }
      WriteRow(extra_, dim_, out_.sum, 0, false);
    }
    if (out_.curvature) WriteRow(rows_.d_curvature, dim_, out_.curvature, 0, false);
    if (out_.maximum) {
      const T first = rows_.maxima[0];
      const bool finite = std::isfinite(first);
      WriteOne(finite ? d_first_ + d_maximum_ : T(0), out_.maximum, 0);
    }
    if (out_.bonus) WriteRow(rows_.d_bonus_row, dim_, out_.bonus, 0, out_.add_constants);
  }

  const Options& options_;
  const Memory& memory_;
  const GradientMemory& out_;
  BackwardRows<T>& rows_;
  std::int64_t dim_, stride_;
  T *raw_, *x_, *dx_;  // an input row, as it is and normalised, and its gradient
  T *d_key_, *d_erase_, *extra_;
  T d_maximum_ = 0, d_first_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace

template <class T>
void ScatterGradients(const Options& options, const Memory& memory, const GradientMemory& gradients,
                      BackwardRows<T>& rows) {
  Scatter<T>(options, memory, gradients, rows).Run();
}

template void ScatterGradients(const Options&, const Memory&, const GradientMemory&,
                               BackwardRows<float>&);
template void ScatterGradients(const Options&, const Memory&, const GradientMemory&,
                               BackwardRows<double>&);

}  // namespace ttr::fast_weights
