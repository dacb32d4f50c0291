// The gradients of a matrix memory, of one group of columns. Compiled once for every target.

#if defined(TTR_SCAN_MATRIX_BACKWARD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_MATRIX_BACKWARD_INL_H_
#undef TTR_SCAN_MATRIX_BACKWARD_INL_H_
#else
#define TTR_SCAN_MATRIX_BACKWARD_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/scan/matrix/forward-inl.h"
#include "src/engines/scan/matrix/step-inl.h"
#include "src/simd/unit_length-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

template <int ROWS, bool BEFORE, class T>
HWY_INLINE void BackGroup(const Block<T>& block, const GradientBlock<T>& out, std::int64_t row) {
  ReplayRows<ROWS>(block, out, row);
  BackRows<ROWS, BEFORE>(block, out, row);
}

template <bool BEFORE, class T>
void BackBlock(const Block<T>& block, const GradientBlock<T>& out) {
  std::int64_t row = 0;
  for (; row + kGroupRows <= block.key_dim; row += kGroupRows) {
    BackGroup<kGroupRows, BEFORE>(block, out, row);
  }
  for (; row < block.key_dim; ++row) BackGroup<1, BEFORE>(block, out, row);
}

/// rows[token][key_dim] = the sums, over the lanes, as groups of key rows left them.
template <class T>
void SumLanes(const T* sums, std::int64_t tokens, std::int64_t key_dim, T* rows) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  const auto group = [&](std::int64_t row, std::int64_t count) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const T* from = sums + (row * kCheckpoint + t * count) * kLanes;
      T* to = rows + t * key_dim + row;
      for (std::int64_t r = 0; r < count; ++r) {
        to[r] = hn::GetLane(hn::SumOfLanes(d, hn::Load(d, from + r * kLanes)));
      }
    }
  };
  std::int64_t row = 0;
  for (; row + kGroupRows <= key_dim; row += kGroupRows) group(row, kGroupRows);
  for (; row < key_dim; ++row) group(row, 1);
}

/// Block by block of tokens, from the last to the first, each from the state before it.
template <class T>
class MatrixBackward {
 public:
  MatrixBackward(const MatrixTask& task, const MatrixGradientScratch<T>& scratch)
      : options_(task.options), memory_(task.memory), gradient_(task.gradient), s_(scratch) {}

  void Run() {
    const std::int64_t blocks = BlocksOf(memory_.tokens);
    std::fill_n(s_.da, StateSize(), T(0));
    if (blocks > 0) {
      LoadRates(memory_, 0, memory_.columns, f_);
      if (memory_.saved.data == nullptr) FindStates(blocks);
      T* const dstate = static_cast<T*>(gradient_.dstate.data);
      CopyState(dstate, gradient_.dstate.row_stride, s_.dstate);
      for (std::int64_t b = blocks - 1; b >= 0; --b) Back(b);
      for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
        std::copy_n(s_.dstate + row * Stride(), memory_.columns,
                    dstate + row * gradient_.dstate.row_stride);
      }
    }
    StoreRates();
  }

 private:
  static constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  static constexpr std::int64_t kStrip = MatrixScratch<T>::kStrip;
  static constexpr std::int64_t kRow = MatrixScratch<T>::kRow;

  std::int64_t Stride() const { return s_.columns; }
  std::int64_t StateSize() const { return memory_.key_dim * s_.columns; }
  std::int64_t Tokens(std::int64_t b) const {
    return std::min(kCheckpoint, memory_.tokens - b * kCheckpoint);
  }

  /// Copies a state. Columns beyond the last become zeros, so that they add nothing to sums over
  /// columns.
  void CopyState(const void* from, std::int64_t row_stride, T* to) const {
    for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
      T* const target = to + row * Stride();
      std::copy_n(static_cast<const T*>(from) + row * row_stride, memory_.columns, target);
      std::fill(target + memory_.columns, target + Stride(), T(0));
    }
  }

  /// Finds the states before all blocks, by a forward pass.
  void FindStates(std::int64_t blocks) const {
    CopyState(memory_.state.data, memory_.state.row_stride, s_.saved);
    for (std::int64_t b = 0; b + 1 < blocks; ++b) {
      T* const next = s_.saved + (b + 1) * StateSize();
      std::copy_n(next - StateSize(), StateSize(), next);
      Advance(b, next);
    }
  }

  /// The state before block b.
  T* Before(std::int64_t b) const {
    if (memory_.saved.data == nullptr) return s_.saved + b * StateSize();
    const MatrixStates& from = b == 0 ? memory_.state : memory_.saved;
    const std::int64_t at = b == 0 ? 0 : (b - 1) * from.stride;
    CopyState(static_cast<const T*>(from.data) + at, from.row_stride, s_.saved);
    return s_.saved;
  }

  Block<T> BlockOf(std::int64_t b, std::int64_t queries) const {
    Block<T> block{};
    block.tokens = Tokens(b);
    block.key_dim = memory_.key_dim;
    block.queries = queries;
    block.k = f_.k;
    block.q = f_.q;
    block.stride = kRow;
    block.state_stride = Stride();
    block.scale = static_cast<T>(options_.scale);
    return block;
  }

  /// Calls visit(first, count) for all strips of columns, the last first, with their values and
  /// time steps loaded and zeros beyond the last column.
  template <class Visit>
  HWY_INLINE void ForStrips(std::int64_t b, const Visit& visit) const {
    const std::int64_t last = (memory_.columns - 1) / kStrip * kStrip;
    for (std::int64_t first = last; first >= 0; first -= kStrip) {
      const std::int64_t count = std::min(kStrip, memory_.columns - first);
      LoadStrip(memory_, b * kCheckpoint, Tokens(b), first, count, f_);
      for (std::int64_t t = 0; t < Tokens(b); ++t) {
        ClearTail(f_.v + t * kRow, count);
        ClearTail(f_.dt + t * kRow, count);
      }
      visit(first, count);
    }
  }
  static void ClearTail(T* row, std::int64_t count) {
    std::fill(row + count, row + RoundUp(count, kLanes), T(0));
  }

  void PointTo(std::int64_t first, std::int64_t c, T* state, Block<T>& block) const {
    block.v = f_.v + c;
    block.dt = f_.dt + c;
    block.rates = f_.rates + (first + c) * memory_.key_dim;
    block.state = state + first + c;
  }

  void Advance(std::int64_t b, T* state) const {
    LoadTokens(options_, memory_, b * kCheckpoint, Tokens(b), f_);
    Block<T> block = BlockOf(b, 0);
    ForStrips(b, [&](std::int64_t first, std::int64_t count) {
      for (std::int64_t c = 0; c < count; c += kLanes) {
        PointTo(first, c, state, block);
        ScanBlock<true, false>(block, 1);
      }
    });
  }

  void LoadOutputGradients(std::int64_t b, std::int64_t first, std::int64_t count) const {
    for (std::int64_t query = 0; query < memory_.queries; ++query) {
      const Rows rows = gradient_.dy.Of(query);
      for (std::int64_t t = 0; t < Tokens(b); ++t) {
        T* const row = s_.dy + (query * kBlockTokens + t) * kRow;
        sn::LoadRow(rows, b * kCheckpoint + t, first, count, row);
        sn::Multiply(row, count, static_cast<T>(options_.scale));
        ClearTail(row, count);
      }
    }
  }

  void Back(std::int64_t b) const {
    const std::int64_t tokens = Tokens(b), sums = kCheckpoint * memory_.key_dim * kLanes;
    LoadTokens(options_, memory_, b * kCheckpoint, tokens, f_);
    std::fill_n(s_.dk, sums, T(0));
    std::fill_n(s_.dq, memory_.queries * sums, T(0));
    std::fill_n(s_.dimportance, tokens, T(0));
    Block<T> block = BlockOf(b, memory_.queries);
    GradientBlock<T> out{};
    out.states = s_.states;
    out.factors = s_.factors;
    out.dk = s_.dk;
    out.dq = s_.dq;
    out.dstate_stride = Stride();
    T* const before = Before(b);
    ForStrips(b, [&](std::int64_t first, std::int64_t count) {
      LoadOutputGradients(b, first, count);
      std::fill_n(s_.dv, tokens * kRow, T(0));
      std::fill_n(s_.ddt, tokens * kRow, T(0));
      // The last vector is the first: behind it lanes without a column are cleared, in which an
      // infinite key times 0 is NaN.
      for (std::int64_t c = (count - 1) / kLanes * kLanes; c >= 0; c -= kLanes) {
        PointTo(first, c, before, block);
        out.dy = s_.dy + c;
        out.dv = s_.dv + c;
        out.ddt = s_.ddt + c;
        out.da = s_.da + (first + c) * memory_.key_dim;
        out.dstate = s_.dstate + first + c;
        if (options_.read_before) {
          BackBlock<true>(block, out);
        } else {
          BackBlock<false>(block, out);
        }
        if (c + kLanes > count) {
          ClearLanes(count - c, s_.dk, sums);
          ClearLanes(count - c, s_.dq, memory_.queries * sums);
        }
      }
      StoreColumns(b, first, count);
    });
    StoreTokens(b);
  }

  /// Zeros in the lanes from `first` on of so many numbers.
  static void ClearLanes(std::int64_t first, T* sums, std::int64_t numbers) {
    for (T* vector = sums; vector < sums + numbers; vector += kLanes) {
      std::fill(vector + first, vector + kLanes, T(0));
    }
  }

  /// Stores the gradients of values and time steps; adds up that of the importance.
  void StoreColumns(std::int64_t b, std::int64_t first, std::int64_t count) const {
    const std::int64_t begin = b * kCheckpoint;
    for (std::int64_t t = 0; t < Tokens(b); ++t) {
      T* const dv = s_.dv + t * kRow;
      if (gradient_.dimportance) {
        T* const v = f_.v + t * kRow;
        sn::LoadRow(memory_.v, begin + t, first, count, v);
        for (std::int64_t c = 0; c < count; ++c) s_.dimportance[t] += dv[c] * v[c];
      }
      if (gradient_.dv) {
        if (memory_.importance) sn::Multiply(dv, count, f_.weights[t]);
        sn::StoreRow(dv, begin + t, first, count, gradient_.dv);
      }
      if (gradient_.ddt) {
        sn::StoreRow(s_.ddt + t * kRow, begin + t, first, count, gradient_.ddt);
      }
    }
  }

  /// Stores the gradients that are sums over all columns.
  void StoreTokens(std::int64_t b) const {
    const std::int64_t tokens = Tokens(b), dim = memory_.key_dim, begin = b * kCheckpoint;
    if (gradient_.dk != nullptr) {
      SumLanes(s_.dk, tokens, dim, static_cast<T*>(gradient_.dk) + begin * dim);
    }
    for (std::int64_t query = 0; gradient_.dq != nullptr && query < memory_.queries; ++query) {
      SumLanes(s_.dq + query * kCheckpoint * dim * kLanes, tokens, dim,
               static_cast<T*>(gradient_.dq) + query * gradient_.dq_stride + begin * dim);
    }
    for (std::int64_t t = 0; gradient_.dimportance && t < tokens; ++t) {
      sn::StoreRow(s_.dimportance + t, begin + t, 0, 1, gradient_.dimportance);
    }
  }

  /// The sums are of d(dt a) dt, and dt was in the unit of RateDecay.
  void StoreRates() const {
    if (gradient_.da == nullptr) return;
    T* const da = static_cast<T*>(gradient_.da);
    for (std::int64_t c = 0; c < memory_.columns; ++c) {
      const T* const from = s_.da + c / kLanes * kLanes * memory_.key_dim + c % kLanes;
      for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
        da[c * memory_.key_dim + row] = from[row * kLanes] * static_cast<T>(1 / sn::kRateUnit<T>);
      }
    }
  }

  const Options& options_;
  const Matrix& memory_;
  const MatrixGradient& gradient_;
  const MatrixGradientScratch<T>& s_;
  const MatrixScratch<T>& f_ = s_.forward;
};

/// The gradient of a row that other tasks have shares of, from their total: by way of the unit
/// length of the input, if there is one, to where it belongs. `room`: two rows.
inline void StoreTotal(const Rows& input, const Rows& gradient, std::int64_t count, double* total,
                       double* room) {
  if (input) {
    double* const x = room + count;
    sn::LoadRow(input, 0, 0, count, x);
    sn::UnitGradientOf<double>(count, x, 1, sn::kUnitEps, total, room, total);
  }
  sn::StoreRow(static_cast<const double*>(total), 0, 0, count, gradient);
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_MATRIX_BACKWARD_INL_H_
