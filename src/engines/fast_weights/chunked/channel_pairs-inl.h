// The pairs of a chunk's rows where the decay is a number a channel. Compiled once for every
// target.
//
// Key j is carried along: p_j = D_ij (.) w_j at row i, so that every pair has the exact product of
// the decays between, without quotients, and at the end p_j is what the memory is written with. The
// keys of a few channels stay in registers through all rows of the chunk. A row's products with
// them are summed over the channels vector by vector, and the lanes of all pairs at once: sums of
// pairs are in order of rows, i or i + 1 of them for row i.

#if defined(TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_PAIRS_INL_H_
#undef TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_PAIRS_INL_H_
#else
#define TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_PAIRS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/engines/fast_weights/operands/gather-inl.h"
#include "src/engines/fast_weights/scratch.h"
#include "src/linalg/tile-inl.h"
#include "src/simd/lane_sums-inl.h"
#include "src/simd/unroll.h"

HWY_BEFORE_NAMESPACE();
namespace ttr::fast_weights {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace ln = ttr::linalg::HWY_NAMESPACE;
namespace sn = ttr::simd::HWY_NAMESPACE;

/// The keys that a chunk carries from row to row.
enum class Carried {
  kKeys,       // keys
  kUndecayed,  // keys, where an erasure sees the memory before its row's decay
  kComplex,    // the planes of complex keys, which decays rotate
};

/// One row a token of a chunk, row i at [i stride].
template <class T>
struct PairRows {
  const T* data;
  std::int64_t stride;
};

/// Rows x_i that read, of `count` heads `head_stride` apart, and what becomes of them.
template <class T>
struct PairReads {
  std::int64_t count;
  PairRows<T> rows;
  std::int64_t head_stride;
  T* decayed;  // c_i (.) x_i, as they meet the memory; rows as those of the call. Null: not wanted
  T* imaginary;  // kComplex: -im(c_i) (.) x_i
  std::int64_t decayed_stride;
  T* sums;  // [kPairs]: x_i . p_j by lanes
};

template <class T>
struct PairCall {
  std::int64_t rows;
  std::int64_t stride;  // of rows that are written, and of those that follow
  const T* factors;     // rows of decays
  const T* cosines;     // kComplex
  const T* sines;
  PairRows<T> keys;
  T* carried;            // rows: p_j behind the chunk
  T* imaginary_carried;  // their imaginary parts
  T* decay;              // one row: c_n
  T* rotated;            // its imaginary part
  PairReads<T> erase, queries;
  bool reads[kChunk];  // do its queries read this row?
};

/// The first pair of a row that has so many.
constexpr int FirstPair(int count) { return count * (count - 1) / 2; }

/// sums[j] += x_i . p_j, j < COUNT, of NV vectors of channels from `at` on; the FIRST of all: =.
template <Carried CARRY, int I, int COUNT, bool FIRST, int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void ReadPairs(D d, const PairReads<T>& reads, std::int64_t stride, std::int64_t at,
                          const hn::Vec<D> (&keys)[kChunk][NV], const hn::Vec<D> (&decay)[NV],
                          const hn::Vec<D> (&rotated)[NV]) {
  if (reads.count == 0) return;  // there may be no rows
  constexpr std::int64_t kLanes = hn::MaxLanes(D());
  const T* row = reads.rows.data + I * reads.rows.stride + at;
  std::int64_t to = I * stride + at;
  T* HWY_RESTRICT sums = reads.sums + FirstPair(COUNT) * kLanes;
  for (std::int64_t q = 0; q < reads.count; ++q) {
    hn::Vec<D> x[NV];
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) x[n] = hn::LoadU(d, row + n * kLanes);
    TTR_UNROLL
    for (int j = 0; j < COUNT; ++j) {
      auto sum = FIRST ? hn::Mul(x[0], keys[j][0])
                       : hn::MulAdd(x[0], keys[j][0], hn::Load(d, sums + j * kLanes));
      TTR_UNROLL
      for (int n = 1; n < NV; ++n) sum = hn::MulAdd(x[n], keys[j][n], sum);
      hn::Store(sum, d, sums + j * kLanes);
    }
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      if (reads.decayed == nullptr) break;
      hn::Store(hn::Mul(x[n], decay[n]), d, reads.decayed + to + n * kLanes);
      if constexpr (CARRY == Carried::kComplex) {
        hn::Store(hn::Neg(hn::Mul(x[n], rotated[n])), d, reads.imaginary + to + n * kLanes);
      }
    }
    row += reads.head_stride;
    to += reads.decayed_stride;
    sums += kPairs * kLanes;
  }
}

/// Rows I .. of a chunk, on NV vectors of channels from `at` on.
template <Carried CARRY, int I, bool BEFORE, bool FIRST, int NV, class D, class T = hn::TFromD<D>>
HWY_INLINE void CarryRows(D d, const PairCall<T>& call, std::int64_t at,
                          hn::Vec<D> (&keys)[kChunk][NV], hn::Vec<D> (&imaginary)[kChunk][NV],
                          hn::Vec<D> (&decay)[NV], hn::Vec<D> (&rotated)[NV]) {
  if constexpr (I < kChunk) {
    if (I >= call.rows) return;
    constexpr std::int64_t kLanes = hn::MaxLanes(D());
    constexpr int kSeen = BEFORE ? I : I + 1;
    auto read = [&]() HWY_ATTR {
      if (!call.reads[I]) return;
      ReadPairs<CARRY, I, kSeen, FIRST>(d, call.queries, call.stride, at, keys, decay, rotated);
    };
    auto erase = [&]() HWY_ATTR {
      ReadPairs<CARRY, I, I, FIRST>(d, call.erase, call.stride, at, keys, decay, rotated);
    };
    if constexpr (CARRY == Carried::kUndecayed) erase();
    if constexpr (BEFORE) read();
    TTR_UNROLL
    for (int n = 0; n < NV; ++n) {
      const std::int64_t from = I * call.stride + at + n * kLanes;
      const auto factor = hn::Load(d, call.factors + from);
      if constexpr (CARRY == Carried::kComplex) {
        const auto cosine = hn::Mul(factor, hn::Load(d, call.cosines + from));
        const auto sine = hn::Mul(factor, hn::Load(d, call.sines + from));
        auto rotate = [&](hn::Vec<D>& re, hn::Vec<D>& im) HWY_ATTR {
          const auto x = re;
          re = hn::NegMulAdd(sine, im, hn::Mul(cosine, x));
          im = hn::MulAdd(sine, x, hn::Mul(cosine, im));
        };
        TTR_UNROLL
        for (int j = 0; j < I; ++j) rotate(keys[j][n], imaginary[j][n]);
        rotate(decay[n], rotated[n]);
      } else {
        TTR_UNROLL
        for (int j = 0; j < I; ++j) keys[j][n] = hn::Mul(factor, keys[j][n]);
        decay[n] = hn::Mul(factor, decay[n]);
      }
      const std::int64_t key = at + n * kLanes;
      keys[I][n] = hn::LoadU(d, call.keys.data + I * call.keys.stride + key);
    }
    if constexpr (CARRY == Carried::kKeys) erase();
    if constexpr (!BEFORE) read();
    CarryRows<CARRY, I + 1, BEFORE, FIRST>(d, call, at, keys, imaginary, decay, rotated);
  }
}

/// A chunk on NV vectors of channels.
template <Carried CARRY, bool BEFORE, bool FIRST, int NV, class T>
HWY_NOINLINE void CarryChannels(const PairCall<T>& call, std::int64_t at) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  hn::Vec<decltype(d)> keys[kChunk][NV], imaginary[kChunk][NV], decay[NV], rotated[NV];
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    decay[n] = hn::Set(d, T(1));
    rotated[n] = hn::Zero(d);
    TTR_UNROLL
    for (int j = 0; j < kChunk; ++j) keys[j][n] = imaginary[j][n] = hn::Zero(d);
  }
  CarryRows<CARRY, 0, BEFORE, FIRST>(d, call, at, keys, imaginary, decay, rotated);
  TTR_UNROLL
  for (int n = 0; n < NV; ++n) {
    const std::int64_t to = at + n * kLanes;
    hn::Store(decay[n], d, call.decay + to);
    if constexpr (CARRY == Carried::kComplex) hn::Store(rotated[n], d, call.rotated + to);
    TTR_UNROLL
    for (int j = 0; j < kChunk; ++j) {
      hn::Store(keys[j][n], d, call.carried + j * call.stride + to);
      if constexpr (CARRY == Carried::kComplex) {
        hn::Store(imaginary[j][n], d, call.imaginary_carried + j * call.stride + to);
      }
    }
  }
}

/// All channels.
template <Carried CARRY, bool BEFORE, class T>
void CarryAll(const PairCall<T>& call) {
  constexpr std::int64_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  // Keys fill the registers.
  constexpr int kNV = CARRY != Carried::kComplex && ln::kTileRows == kChunk ? 2 : 1;
  std::int64_t at = 0;
  if (call.stride < kNV * kLanes) {
    CarryChannels<CARRY, BEFORE, true, 1>(call, at);
    at += kLanes;
  } else {
    CarryChannels<CARRY, BEFORE, true, kNV>(call, at);
    at += kNV * kLanes;
  }
  for (; at + kNV * kLanes <= call.stride; at += kNV * kLanes) {
    CarryChannels<CARRY, BEFORE, false, kNV>(call, at);
  }
  for (; at < call.stride; at += kLanes) CarryChannels<CARRY, BEFORE, false, 1>(call, at);
}

template <Carried CARRY, class T>
void CarryPairs(const PairCall<T>& call, bool before) {
  before ? CarryAll<CARRY, true>(call) : CarryAll<CARRY, false>(call);
}

/// The lanes of so many pairs' sums become their products, which then stand where the sums began.
template <class T>
HWY_INLINE void SumPairs(std::int64_t pairs, T* sums) {
  const hn::ScalableTag<T> d;
  constexpr std::int64_t kLanes = hn::MaxLanes(d);
  for (std::int64_t pair = 0; pair < pairs; pair += kLanes) {
    hn::StoreU(sn::SumVectors<kLanes>(d, sums + pair * kLanes), d, sums + pair);
  }
}

/// out[i kChunk + j] = factor products[i, j], j < i or j <= i with the diagonal; what follows
/// is undefined.
template <class T>
HWY_INLINE void UnfoldPairs(const T* products, bool diagonal, T factor, T* out) {
  const ChunkTag<T> d;
  for (int i = 0; i < kChunk; ++i, out += kChunk) {
    const T* const row = products + FirstPair(diagonal ? i + 1 : i);
    for (std::size_t j = 0; j < kChunk; j += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(hn::Set(d, factor), hn::LoadU(d, row + j)), d, out + j);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ttr::fast_weights
HWY_AFTER_NAMESPACE();

#endif  // TTR_FAST_WEIGHTS_CHUNKED_CHANNEL_PAIRS_INL_H_
