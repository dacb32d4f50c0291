/// Gradients of the memories of this engine, on gathered rows: one memory, one sequence.
///
/// The recurrence, T tokens, M [Dk, Dv], with row vectors r, w, w', q of Dk and v, v', u, y of Dv
/// numbers:
///
///     M~_t = h_t (.) M_{t-1}                       what the erasure sees
///     u_t  = b_t (v_t - r_t M~_t)                  erase;  otherwise u_t = b_t v_t
///     M_t  = a_t (.) M_{t-1} + w_t^T u_t + w'_t^T v'_t
///     y_tp = q_tp M_t + o_tp x_t                   read before: q_tp M_{t-1} + o_tp x_t
///
/// where x is v' of a second write, otherwise v, and o the bonus. The decay a_t is one number, or
/// one for each row of M, and
///
///     Seen::kDecayed    h_t = a_t      the delta family
///     Seen::kUndecayed  h_t = 1        RWKV-7
///     Seen::kOwn        h_t is given   weight decay; GradientDecay::kScalar only
///
/// With momentum m_t, a number, there is a second memory N, the last update (momentum-inl.h); the
/// decay then is one number, h_t is given, and nothing else is written:
///
///     N_t = m_t N_{t-1} + w_t^T u_t,   M_t = a_t M_{t-1} + N_t
///
/// Given dL/dy and dL/dM_T, finds the gradients of everything else:
///
///     rows and numbers of `in`         shape        gradient in `d`
///     erase, write, second_write       [T][Dk]      the same
///     query                            [p][T][Dk]   the same
///     value, second_value              [T][Dv]      the same
///     step (absent: 1)                 [T]          the same
///     decay, erase_decay, momentum:    [T]          the same
///         numbers
///     gates: rows of decays >= 0       [T][Dk]      of their logarithms
///     bonus (absent: 0)                [p][T]       the same
///
/// Scales, norms, step rules and denominators are the caller's, who gathers the rows and takes the
/// gradients of rows further: a block of kGradientBlock tokens at a time (the last may be shorter),
/// so that the block's arrays stay in the caches:
///
///     kBegin                            takes dL/dM_T
///     kBlock of block n - 1 .. 0        gives the gradients of the block's rows
///     kEnd                              gives the gradient of the initial memory
///
/// The forward pass has saved the memory before every block and the errors v - r M~ of every token
/// (saved.h).
///
/// Rows of Dk or Dv numbers begin at multiples of 64 bytes and are zero from there up to the next
/// multiple of 16 numbers; so are the rows that are returned. Gradients are overwritten; those of
/// step, decay, gates, bonus and the initial memory may be absent (null), those of rows that are
/// given may not, but for d.erase where the erasing rows are those that are written: d.write then
/// is the gradient of both. A forgotten channel (gate 0) has the gradient 0 there. Where `reset` is
/// set, a scalar decay of 0 (h_t, where it is given) is a border too: nothing, NaN included, passes
/// it backwards, and its own gradient is reported 0, which is a da of a gate in the log domain. A
/// last update is no memory: it does pass.
///
/// Cost: some 14 Dk Dv flops a token, 10 without an erasure; with momentum twice as many. The
/// memories within a block are recomputed. Nothing is allocated and nothing is thrown; the same
/// call gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

enum class GradientStage { kBegin, kBlock, kEnd };

enum class GradientDecay { kNone, kScalar, kChannel };

enum class Seen { kDecayed, kUndecayed, kOwn };

/// What scratch depends on.
struct GradientSizes {
  std::int64_t key_dim = 1;
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;
  bool erase = false;
  bool second_write = false;
  GradientDecay decay = GradientDecay::kNone;
  bool momentum = false;
  std::int64_t interleaved = 1;  // memories that are differentiated in time slices
};

/// Row t of a block and head p at data[p * head_stride + t * stride].
template <class T>
struct GradientRows {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t head_stride = 0;
  explicit operator bool() const { return data != nullptr; }
};

/// The rows and numbers of a block's tokens, or their gradients.
template <class T>
struct BlockRows {
  GradientRows<T> erase, write, second_write, query, gates;
  GradientRows<T> value;  // absent: 0, which only an erasing memory can do without
  GradientRows<T> second_value;
  GradientRows<T> bonus;  // stride: between tokens, any
  T* step = nullptr;
  T* decay = nullptr;
  T* erase_decay = nullptr;
  T* momentum = nullptr;
};

/// What a forward pass has saved (saved.h).
template <class T>
struct SavedBlock {
  const T* memory = nullptr;  // before the block
  const T* last = nullptr;    // M_T, where `overlap` or a rotation is asked for
  const T* errors = nullptr;  // [T][Dv], of an erasing memory
};

/// Gradients of the memories at a sequence's ends, [Dk][Dv]; their rows need no alignment and no
/// padding.
template <class T>
struct EndGradients {
  const T* final = nullptr;  // absent: 0
  T* initial = nullptr;
  std::int64_t stride = 0;
  std::int64_t update = 0;  // from the gradients of M to those of N, with momentum
};

/// Channels d and d + Dk / 2 (x, y) are one complex channel, which leaves the frame of a block
/// behind the block's last token: x, y become cos x - sin y, sin x + cos y. Dk is a multiple of 32.
template <class T>
struct FrameRotation {
  const T* frame = nullptr;  // cosines and, behind them, sines, Dk / 2 each; null: no rotation
  // [Dk / 2], channel d: the gradient of rotating them, sum_v x_v dL/dy_v - y_v dL/dx_v, behind all
  // tokens (kBegin) or before the block (kBlock).
  T* d_angle = nullptr;
};

template <class T>
struct GradientCall {
  GradientSizes sizes;
  Seen seen = Seen::kDecayed;
  bool read_before = false;
  bool reset = false;
  std::int64_t place = 0;   // of the memory among those that are interleaved
  std::int64_t first = 0;   // of the block, a multiple of kGradientBlock
  std::int64_t tokens = 0;  // of the block

  BlockRows<const T> in;
  BlockRows<T> d;
  GradientRows<const T> d_output;  // [p][T][Dv]
  T output_factor = 1;             // of all of d_output
  // Write d.query, d.write past the caches (not where channels decay)? d.value, d.second_value?
  bool stream_query = false, stream_write = false, stream_value = false;

  SavedBlock<T> saved;
  EndGradients<T> ends;
  FrameRotation<T> rotation;
  T* overlap = nullptr;              // sum of M_T (.) dL/dM_T, of kBegin
  Prefetcher* prefetcher = nullptr;  // rows to fetch while the memory is worked on
};

/// Bytes of scratch, which RunGradient wants aligned to 64.
template <class T>
std::size_t GradientScratchBytes(const GradientSizes& sizes);

void RunGradient(GradientStage stage, const GradientCall<float>& call, std::byte* scratch);
void RunGradient(GradientStage stage, const GradientCall<double>& call, std::byte* scratch);

}  // namespace ttr::fast_weights
