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
/// With momentum m_t, a number, there is a second memory N, the last update
/// (gradient_momentum-inl.h); the decay then is one number, h_t is given, and nothing else is
/// written:
///
///     N_t = m_t N_{t-1} + w_t^T u_t,   M_t = a_t M_{t-1} + N_t
///
/// Given dL/dy and dL/dM_T, finds the gradients of everything else:
///
///     input                            shape        gradient
///     erase, write, second_write       [T][Dk]      d_erase, d_write, d_second_write
///     query                            [p][T][Dk]   d_query
///     value, second_value              [T][Dv]      d_value, d_second_value
///     step (absent: 1)                 [T]          d_step
///     decay, erase_decay, momentum:    [T]          d_decay, d_erase_decay, d_momentum
///         numbers
///     gates: rows of decays >= 0       [T][Dk]      d_log_decay, of their logarithms
///     bonus (absent: 0)                [p][T]       d_bonus
///     initial (absent: 0)              [Dk][Dv]     d_initial; with momentum, two of each
///
/// Scales, norms, step rules and denominators are the caller's, who gathers the rows and takes the
/// gradients of rows further: a block of kGradientBlock tokens at a time (the last may be shorter),
/// so that what lies between stays in the caches. With blocks 0 .. n - 1 of the sequence:
///
///     kBegin                            takes the initial memory
///     kForward of block 0 .. n - 1      reads all but queries, d_output
///     kTurn                             takes dL/dM_T
///     of block n - 1 .. 0:
///       kReplay                         the same, and queries where answers are wanted: y
///       kBackward                       gives the gradients of the block's rows
///     kEnd                              gives the gradient of the initial memory
///
/// Where a forward pass of another kernel has kept them (sizes.kept), the memory before every
/// block, transposed as gradient_layout.h says, and the errors v - r M~ of all tokens are given:
/// there is no kForward.
///
/// Rows of Dk or Dv numbers begin at multiples of 64 bytes and are zero from there up to the next
/// multiple of 16 numbers; so are the rows that are returned. Gradients are overwritten; those of
/// step, decay, log-decay, bonus and the initial memory may be absent (null), those of rows that
/// are given may not, but for d_erase where the erasing rows are those that are written: d_write
/// then is the gradient of both. A forgotten channel (gate 0) has the gradient 0 there. Where
/// `reset` is set, a scalar decay of 0 (h_t, where it is given) is a border too: nothing, NaN
/// included, passes it backwards, and its own gradient is reported 0, which is a da of a gate in
/// the log domain. A last update is no memory: it does pass.
///
/// Cost: some 20 Dk Dv flops a token, 14 without an erasure; 14 and 10 of what was kept; with
/// momentum twice as many. The memory is recomputed from checkpoints, one each kGradientBlock
/// tokens: scratch is O(T Dv + T / kGradientBlock Dk Dv). Nothing is allocated and nothing is
/// thrown; the same call gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/layout.h"

namespace ttr::fast_weights {

enum class GradientPart { kBegin, kForward, kTurn, kReplay, kBackward, kEnd };

enum class GradientDecay { kNone, kScalar, kChannel };

enum class Seen { kDecayed, kUndecayed, kOwn };

struct GradientSizes {
  std::int64_t tokens = 0;  // of the longest sequence
  std::int64_t key_dim = 1;
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;
  bool erase = false;
  bool second_write = false;
  GradientDecay decay = GradientDecay::kNone;
  bool momentum = false;
  bool saved = false;  // memories and errors are given
  // Memories that take turns, and which of them this is.
  std::int64_t together = 1, place = 0;
};

/// Row t of a block and head p at data[p * head_stride + t * stride].
template <class T>
struct GradientRows {
  T* data = nullptr;
  std::int64_t stride = 0;
  std::int64_t head_stride = 0;
  explicit operator bool() const { return data != nullptr; }
};

template <class T>
struct GradientCall {
  GradientSizes sizes;
  std::int64_t first = 0;   // of the block, a multiple of kGradientBlock
  std::int64_t tokens = 0;  // of the block
  bool last = false;        // of its sequence
  Seen seen = Seen::kDecayed;
  bool read_before = false;
  bool reset = false;
  // Write d_query, d_write past the caches (not where channels decay)? d_value, d_second_value?
  bool stream_query = false, stream_write = false, stream_value = false;

  GradientRows<const T> erase, write, second_write, query, gates;
  GradientRows<const T> value;  // absent: 0, which only an erasing memory can do without
  GradientRows<const T> second_value;
  const T* step = nullptr;
  const T* decay = nullptr;
  const T* erase_decay = nullptr;
  const T* momentum = nullptr;
  GradientRows<const T> bonus;  // stride: between tokens, any

  GradientRows<T> answers;      // [p][T][Dv]; absent: not wanted
  Prefetcher* ahead = nullptr;  // rows to fetch while the memory is worked on
  T* overlap = nullptr;         // sum of M_T (.) dL/dM_T, of kTurn; wanted from kForward on
  // Channels d and d + Dk / 2 (x, y) that a block turns besides: behind its last token to cos x -
  // sin y, sin x + cos y, by cosines and, behind them, sines, Dk / 2 each. Dk a multiple of 32.
  const T* frame = nullptr;
  // [Dk / 2], channel d: the gradient of turning them, sum_v x_v dL/dy_v - y_v dL/dx_v, behind all
  // tokens (kTurn) or before the block (kBackward). Wanted from kForward on, with `frame`.
  T* turned = nullptr;

  const T* saved_memory = nullptr;  // before the block
  const T* saved_last = nullptr;    // M_T, where `overlap` or `turned` is wanted
  const T* saved_errors = nullptr;  // [T][Dv]: v - r M~, where an erasing memory keeps them

  const T* initial = nullptr;  // rows need no alignment and no padding
  std::int64_t initial_stride = 0;
  std::int64_t update = 0;  // from initial, d_final, d_initial to the same of N, with momentum

  GradientRows<const T> d_output;  // [p][T][Dv]
  T output_factor = 1;             // of all of d_output
  const T* d_final = nullptr;      // [Dk][Dv]; absent: 0
  std::int64_t d_final_stride = 0;

  GradientRows<T> d_erase, d_write, d_second_write, d_query, d_log_decay;
  GradientRows<T> d_value, d_second_value;
  T* d_step = nullptr;
  T* d_decay = nullptr;
  T* d_erase_decay = nullptr;
  T* d_momentum = nullptr;
  GradientRows<T> d_bonus;
  T* d_initial = nullptr;
  std::int64_t d_initial_stride = 0;
};

/// Bytes of scratch, which RunGradient wants aligned to 64.
template <class T>
std::size_t GradientScratchBytes(const GradientSizes& sizes);

void RunGradient(GradientPart part, const GradientCall<float>& call, std::byte* scratch);
void RunGradient(GradientPart part, const GradientCall<double>& call, std::byte* scratch);

}  // namespace ttr::fast_weights
