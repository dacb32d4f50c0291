// The gradients of a matrix memory, of one group of columns. Compiled once for every target.

#if defined(TTR_SCAN_GRADIENT_MATRIX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_SCAN_GRADIENT_MATRIX_INL_H_
#undef TTR_SCAN_GRADIENT_MATRIX_INL_H_
#else
#define TTR_SCAN_GRADIENT_MATRIX_INL_H_
#endif

#include <algorithm>
#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/scan/gradient_layout.h"
#include "src/engines/scan/matrix-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::scan {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// What a block of tokens on one vector of columns adds to the gradients; rows of the tokens are
/// block.stride apart.
template <class T>
struct GradientBlock {
  T* states;    // [token][row of a group][lanes]: before every token
  T* factors;   // the same of the decays; 0 where they forget
  const T* dy;  // [query][kBlockTokens][stride], scaled
  T *dv, *ddt;  // [token][stride]
  T *dk, *dq;   // [group of rows][token][row of it][lanes], dq with [query] in front
  T* da;        // [key_dim][lanes]
  T* dstate;    // [key_dim], dstate_stride apart
  std::int64_t dstate_stride;
};

/// Fills out.states and out.factors for ROWS key rows from `row` on.
template <int ROWS, class T>
HWY_INLINE void RememberRows(const Block<T>& block, const GradientBlock<T>& out, std::int64_t row) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  hn::Vec<decltype(d)> m[ROWS];
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    m[r] = hn::LoadU(d, block.state + (row + r) * block.state_stride);
  }
  for (std::int64_t t = 0; t < block.tokens; ++t) {
    const std::int64_t at = t * block.key_dim + row;
    const auto dt = hn::LoadU(d, block.dt + t * block.stride);
    const auto v = hn::LoadU(d, block.v + t * block.stride);
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      hn::Store(m[r], d, out.states + (t * ROWS + r) * kLanes);
      const auto decay = sn::RateDecay(d, dt, hn::Load(d, block.rates + (row + r) * kLanes));
      hn::Store(hn::IfThenZeroElse(decay.forgets, decay.factor), d,
                out.factors + (t * ROWS + r) * kLanes);
      m[r] = hn::MulAdd(hn::Set(d, block.k[at + r]), v, sn::Fade(decay, m[r]));
    }
  }
}

/// Where sums of token t and of the group that begins at `row` lie.
template <int ROWS>
constexpr std::int64_t SumsAt(std::int64_t t, std::int64_t row) {
  return row * kCheckpoint + t * ROWS;
}

/// sums[row] += a m[row], dm[row] += q[row] a: what an answer's gradient a does to its query and to
/// the memory that it was read from.
template <int ROWS, class D, class T = hn::TFromD<D>>
HWY_INLINE void BackAnswers(D d, const Block<T>& block, const GradientBlock<T>& out, std::int64_t t,
                            std::int64_t row, const hn::Vec<D> (&m)[ROWS], hn::Vec<D> (&dm)[ROWS]) {
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  for (std::int64_t query = 0; query < block.queries; ++query) {
    const std::int64_t at = query * kBlockTokens + t;
    const auto dy = hn::LoadU(d, out.dy + at * block.stride);
    const T* HWY_RESTRICT q = block.q + at * block.key_dim + row;
    T* HWY_RESTRICT dq =
        out.dq + (query * kCheckpoint * block.key_dim + SumsAt<ROWS>(t, row)) * kLanes;
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      hn::Store(hn::MulAdd(dy, m[r], hn::Load(d, dq + r * kLanes)), d, dq + r * kLanes);
      dm[r] = hn::MulAdd(hn::Set(d, q[r]), dy, dm[r]);
    }
  }
}

template <int ROWS, bool BEFORE, class T>
HWY_INLINE void BackRows(const Block<T>& block, const GradientBlock<T>& out, std::int64_t row) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  hn::Vec<decltype(d)> dm[ROWS], da[ROWS];
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    dm[r] = hn::LoadU(d, out.dstate + (row + r) * out.dstate_stride);
    da[r] = hn::Load(d, out.da + (row + r) * kLanes);
  }
  for (std::int64_t t = block.tokens - 1; t >= 0; --t) {
    const T* HWY_RESTRICT k = block.k + t * block.key_dim + row;
    const T* HWY_RESTRICT states = out.states + t * ROWS * kLanes;
    const T* HWY_RESTRICT factors = out.factors + t * ROWS * kLanes;
    T* HWY_RESTRICT dk = out.dk + SumsAt<ROWS>(t, row) * kLanes;
    const auto dt = hn::LoadU(d, block.dt + t * block.stride);
    const auto v = hn::LoadU(d, block.v + t * block.stride);
    auto dv = hn::LoadU(d, out.dv + t * block.stride);
    auto ddt = hn::LoadU(d, out.ddt + t * block.stride);
    hn::Vec<decltype(d)> saved[ROWS], now[ROWS];
    sn::Decay<hn::ScalableTag<T>> decays[ROWS];
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      const auto factor = hn::Load(d, factors + r * kLanes);
      decays[r] = {factor, hn::Eq(factor, hn::Zero(d))};
      saved[r] = sn::Fade(decays[r], hn::Load(d, states + r * kLanes));
      if constexpr (!BEFORE) now[r] = hn::MulAdd(hn::Set(d, k[r]), v, saved[r]);
    }
    if constexpr (!BEFORE) BackAnswers<ROWS>(d, block, out, t, row, now, dm);
    TTR_UNROLL
    for (int r = 0; r < ROWS; ++r) {
      dv = hn::MulAdd(hn::Set(d, k[r]), dm[r], dv);
      hn::Store(hn::MulAdd(v, dm[r], hn::Load(d, dk + r * kLanes)), d, dk + r * kLanes);
      const auto dx = hn::IfThenZeroElse(decays[r].forgets, hn::Mul(saved[r], dm[r]));
      // Where everything is forgotten the rate may be infinite.
      const auto rate = hn::Load(d, block.rates + (row + r) * kLanes);
      ddt = hn::Add(ddt, hn::IfThenZeroElse(decays[r].forgets, hn::Mul(dx, rate)));
      da[r] = hn::Add(da[r], hn::IfThenZeroElse(decays[r].forgets, hn::Mul(dx, dt)));
      dm[r] = sn::Fade(decays[r], dm[r]);
    }
    if constexpr (BEFORE) {
      TTR_UNROLL
      for (int r = 0; r < ROWS; ++r) now[r] = hn::Load(d, states + r * kLanes);
      BackAnswers<ROWS>(d, block, out, t, row, now, dm);
    }
    hn::StoreU(dv, d, out.dv + t * block.stride);
    hn::StoreU(ddt, d, out.ddt + t * block.stride);
  }
  TTR_UNROLL
  for (int r = 0; r < ROWS; ++r) {
    hn::StoreU(dm[r], d, out.dstate + (row + r) * out.dstate_stride);
    hn::Store(da[r], d, out.da + (row + r) * kLanes);
  }
}

template <int ROWS, bool BEFORE, class T>
HWY_INLINE void BackGroup(const Block<T>& block, const GradientBlock<T>& out, std::int64_t row) {
  RememberRows<ROWS>(block, out, row);
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

template <class T>
class MatrixBackward {
 public:
  MatrixBackward(const Options& options, const Matrix& memory, const MatrixGradient& gradient,
                 const MatrixScratch<T>& forward, const MatrixGradientScratch<T>& scratch)
      : options_(options), memory_(memory), gradient_(gradient), f_(forward), s_(scratch) {}

  void Run() {
    const std::int64_t blocks = Checkpoints(memory_.tokens);
    std::fill(s_.da, s_.da + StateSize(), T(0));
    if (blocks == 0) return StoreRates();
    LoadRates(memory_, 0, memory_.columns, f_);
    CopyState(static_cast<const T*>(memory_.state), memory_.state_stride, s_.saved, Stride());
    for (std::int64_t b = 0; memory_.saved == nullptr && b + 1 < blocks; ++b) {
      T* next = s_.saved + (b + 1) * StateSize();
      std::copy(next - StateSize(), next, next);
      Advance(b, next);
    }
    T* dstate = static_cast<T*>(gradient_.dstate);
    CopyState(dstate, gradient_.dstate_stride, s_.dstate, Stride());
    for (std::int64_t b = blocks - 1; b >= 0; --b) Back(b);
    for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
      const T* from = s_.dstate + row * Stride();
      std::copy(from, from + memory_.columns, dstate + row * gradient_.dstate_stride);
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

  /// With zeros in the columns beyond the last, so that they add nothing to sums over columns.
  void CopyState(const T* from, std::int64_t from_stride, T* to, std::int64_t to_stride) const {
    for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
      const T* source = from + row * from_stride;
      T* target = to + row * to_stride;
      std::copy(source, source + memory_.columns, target);
      std::fill(target + memory_.columns, target + to_stride, T(0));
    }
  }

  Block<T> BlockOf(std::int64_t b) const {
    Block<T> block{};
    block.tokens = Tokens(b);
    block.key_dim = memory_.key_dim;
    block.queries = 0;
    block.k = f_.k;
    block.q = f_.q;
    block.stride = kRow;
    block.state_stride = Stride();
    block.scale = static_cast<T>(options_.scale);
    return block;
  }

  /// The state before block b.
  T* Before(std::int64_t b) const {
    if (memory_.saved == nullptr) return s_.saved + b * StateSize();
    const bool first = b == 0;
    CopyState(first ? static_cast<const T*>(memory_.state)
                    : static_cast<const T*>(memory_.saved) + (b - 1) * memory_.saved_stride,
              first ? memory_.state_stride : memory_.saved_row_stride, s_.saved, Stride());
    return s_.saved;
  }

  /// Values and time steps of a strip, with zeros beyond the last column.
  void LoadColumns(std::int64_t b, std::int64_t first) {
    const std::int64_t count = std::min(kStrip, memory_.columns - first);
    LoadStrip(memory_, b * kCheckpoint, Tokens(b), first, count, f_);
    const std::int64_t filled = RoundUp(count, kLanes);
    for (std::int64_t t = 0; t < Tokens(b); ++t) {
      std::fill(f_.v + t * kRow + count, f_.v + t * kRow + filled, T(0));
      std::fill(f_.dt + t * kRow + count, f_.dt + t * kRow + filled, T(0));
    }
  }

  void Advance(std::int64_t b, T* state) {
    LoadTokens(options_, memory_, b * kCheckpoint, Tokens(b), f_);
    Block<T> block = BlockOf(b);
    for (std::int64_t first = 0; first < memory_.columns; first += kStrip) {
      LoadColumns(b, first);
      const std::int64_t count = std::min(kStrip, memory_.columns - first);
      for (std::int64_t c = 0; c < count; c += kLanes) {
        block.v = f_.v + c;
        block.dt = f_.dt + c;
        block.rates = f_.rates + (first + c) * memory_.key_dim;
        block.state = state + first + c;
        ScanBlock<true, false>(block, 1);
      }
    }
  }

  void LoadAnswers(std::int64_t b, std::int64_t first, std::int64_t count) {
    for (std::int64_t query = 0; query < memory_.queries; ++query) {
      Rows rows = gradient_.dy;
      rows.data = static_cast<std::byte*>(rows.data) +
                  query * gradient_.dy_head_stride * static_cast<std::int64_t>(SizeOf(rows.dtype));
      for (std::int64_t t = 0; t < Tokens(b); ++t) {
        T* row = s_.dy + (query * kBlockTokens + t) * kRow;
        sn::LoadRow(rows, b * kCheckpoint + t, first, count, row);
        sn::Multiply(row, count, static_cast<T>(options_.scale));
        std::fill(row + count, row + RoundUp(count, kLanes), T(0));
      }
    }
  }

  /// The gradients of values and time steps leave; that of the importance gathers.
  void StoreColumns(std::int64_t b, std::int64_t first, std::int64_t count) {
    const std::int64_t begin = b * kCheckpoint;
    for (std::int64_t t = 0; t < Tokens(b); ++t) {
      T* dv = s_.dv + t * kRow;
      if (gradient_.dimportance) {
        T* v = f_.v + t * kRow;
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

  void Back(std::int64_t b) {
    const std::int64_t begin = b * kCheckpoint;
    const std::int64_t tokens = Tokens(b);
    const std::int64_t query_keys = kCheckpoint * memory_.key_dim;
    LoadTokens(options_, memory_, begin, tokens, f_);
    std::fill(s_.dk, s_.dk + query_keys * kLanes, T(0));
    std::fill(s_.dq, s_.dq + memory_.queries * query_keys * kLanes, T(0));
    std::fill(s_.dimportance, s_.dimportance + tokens, T(0));
    Block<T> block = BlockOf(b);
    block.queries = memory_.queries;
    T* const before = Before(b);
    GradientBlock<T> out{};
    out.states = s_.states;
    out.factors = s_.factors;
    out.dk = s_.dk;
    out.dq = s_.dq;
    out.dstate_stride = Stride();
    for (std::int64_t first = 0; first < memory_.columns; first += kStrip) {
      const std::int64_t count = std::min(kStrip, memory_.columns - first);
      LoadColumns(b, first);
      LoadAnswers(b, first, count);
      std::fill(s_.dv, s_.dv + tokens * kRow, T(0));
      std::fill(s_.ddt, s_.ddt + tokens * kRow, T(0));
      for (std::int64_t c = 0; c < count; c += kLanes) {
        const std::int64_t column = first + c;
        block.v = f_.v + c;
        block.dt = f_.dt + c;
        block.rates = f_.rates + column * memory_.key_dim;
        block.state = before + column;
        out.dy = s_.dy + c;
        out.dv = s_.dv + c;
        out.ddt = s_.ddt + c;
        out.da = s_.da + column * memory_.key_dim;
        out.dstate = s_.dstate + column;
        if (options_.read_before) {
          BackBlock<true>(block, out);
        } else {
          BackBlock<false>(block, out);
        }
      }
      StoreColumns(b, first, count);
    }
    if (gradient_.dk != nullptr) {
      SumLanes(s_.dk, tokens, memory_.key_dim,
               static_cast<T*>(gradient_.dk) + begin * memory_.key_dim);
    }
    for (std::int64_t query = 0; gradient_.dq != nullptr && query < memory_.queries; ++query) {
      SumLanes(
          s_.dq + query * query_keys * kLanes, tokens, memory_.key_dim,
          static_cast<T*>(gradient_.dq) + query * gradient_.dq_stride + begin * memory_.key_dim);
    }
    for (std::int64_t t = 0; gradient_.dimportance && t < tokens; ++t) {
      sn::StoreRow(s_.dimportance + t, begin + t, 0, 1, gradient_.dimportance);
    }
  }

  /// The sums are of d(dt a) dt, and dt was in the unit of RateDecay.
  void StoreRates() {
    if (gradient_.da == nullptr) return;
    T* da = static_cast<T*>(gradient_.da);
    for (std::int64_t c = 0; c < memory_.columns; ++c) {
      const T* from = s_.da + c / kLanes * kLanes * memory_.key_dim + c % kLanes;
      for (std::int64_t row = 0; row < memory_.key_dim; ++row) {
        da[c * memory_.key_dim + row] = from[row * kLanes] * static_cast<T>(1 / sn::kRateUnit<T>);
      }
    }
  }

  const Options& options_;
  const Matrix& memory_;
  const MatrixGradient& gradient_;
  const MatrixScratch<T>& f_;
  const MatrixGradientScratch<T>& s_;
};

}  // namespace HWY_NAMESPACE
}  // namespace ttr::scan
HWY_AFTER_NAMESPACE();

#endif  // TTR_SCAN_GRADIENT_MATRIX_INL_H_
