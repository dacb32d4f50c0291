/// Gradients of memories with momentum, on gathered rows: one memory, one sequence.
///
/// The recurrence, T tokens, a memory M and its last update N [Dk, Dv], with row vectors r, w, q of
/// Dk and v, u, y of Dv numbers, the decays a and h and the momentum m numbers:
///
///     u_t  = b_t (v_t - h_t r_t M_{t-1})
///     N_t  = m_t N_{t-1} + w_t^T u_t
///     M_t  = a_t M_{t-1} + N_t
///     y_tq = q_tq M_t                              read before: q_tq M_{t-1}
///
/// Given dL/dy, dL/dM_T and dL/dN_T, finds the gradients of everything else:
///
///     input                            shape        gradient
///     write, erase                     [T][Dk]      d_write, d_erase
///     query                            [q][T][Dk]   d_query
///     value                            [T][Dv]      d_value
///     step                             [T]          d_step
///     decay, erase_decay, momentum     [T]          d_ of that name
///     initial, initial_second          [Dk][Dv]     d_ of that name
///
/// Rows are as gradient.h wants them; all gradients are wanted and overwritten, and rows of values
/// are written up to the next multiple of kMomentumColumns. Where h_t is 0 the past is forgotten:
/// nothing, NaN included, passes that border, and the gradients of the decays are 0 there. A last
/// update is no memory: it does not decay.
///
/// Value columns are independent of each other: a few at a time go through the sequence, forwards,
/// with both memories kept each kMomentumBlock tokens, and backwards block by block. Cost: some 34
/// Dk Dv flops a token. Scratch: those columns of both memories for each token of a block and for
/// each block. Nothing is allocated and nothing is thrown; the same call gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "src/engines/fast_weights/gradient.h"

namespace ttr::fast_weights {

/// Tokens between the memories that are kept.
inline constexpr int kMomentumBlock = 16;

/// Value columns that go through the sequence together.
inline constexpr int kMomentumColumns = 4;

struct MomentumSizes {
  std::int64_t tokens = 0;
  std::int64_t key_dim = 1;
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;
};

template <class T>
struct MomentumCall {
  MomentumSizes sizes;
  bool read_before = false;

  GradientRows<const T> write, query, value;
  GradientRows<const T> erase;
  const T* step = nullptr;
  const T* decay = nullptr;
  const T* erase_decay = nullptr;
  const T* momentum = nullptr;

  const T* initial = nullptr;
  const T* initial_second = nullptr;

  GradientRows<const T> d_output;  // [q][T][Dv]
  const T* d_final = nullptr;
  const T* d_final_second = nullptr;
  std::int64_t state_stride = 0;  // of all six memories

  GradientRows<T> d_write, d_query, d_value;
  GradientRows<T> d_erase;
  T* d_step = nullptr;
  T* d_decay = nullptr;
  T* d_erase_decay = nullptr;
  T* d_momentum = nullptr;
  T* d_initial = nullptr;
  T* d_initial_second = nullptr;
};

/// Bytes of scratch, which RunMomentumGradient wants aligned to 64.
template <class T>
std::size_t MomentumScratchBytes(const MomentumSizes& sizes);

void RunMomentumGradient(const MomentumCall<float>& call, std::byte* scratch);
void RunMomentumGradient(const MomentumCall<double>& call, std::byte* scratch);

}  // namespace ttr::fast_weights
