/// Gradients of least squares by the implicit function: nothing is differentiated through a solve.
///
/// With z_t = (A_t + R)^-1 B_t dy_t, one more solve with the factor that finds x_t,
///
///     dL/dq_t = scale z_t,   dL/dA_t = -z_t x_t^T,   dL/dB_t = x_t dy_t^T
///
/// and these, summed over all later t as the weights say, meet the keys and values of each token:
///
///     F_i = sum_{t >= i} prod g (-z_t x_t^T),   G_i = sum_{t >= i} prod g x_t dy_t^T
///     dL/dk_i = w_i ((F_i + F_i^T) k_i + G_i v_i),   dL/dv_i = w_i G_i^T k_i
///     dL/dw_i = k_i^T F_i k_i + k_i^T G_i v_i
///     dL/dlog g_t = <F, A> + <G, B> of the past at t
///
/// The solution of least norm, where A is singular, moves within the range of A, too:
/// dL/dA_t = -z_t x_t^T + (A^+ z_t)((I - A A^+) scale q_t)^T. Forward through the sequence for x
/// and z, then backward for F and G, both chunk by chunk.
///
/// Conjugate gradients and Chebyshev's iteration: the same formulas, the gradient of the converged
/// problem (with the chunk's factor: solved exactly). z takes as many steps, or goes to the same
/// tolerance, as x. It is not that of the steps that were taken, and where few are, it errs as much
/// as their output does.
///
/// Gradient descent: exactly that of its n steps x_i = x_{i-1} + eta e_i, e_i = P (q - A x_{i-1}).
/// They are linear in q and their adjoint is the same recurrence from u = B dy. With its steps
/// z_i = z_{i-1} + eta f_i, and D keeping the blocks whose inverses P is made of,
///
///     dL/dq = scale z_n,   dL/dB = x_n dy^T
///     dL/dA = -eta sum_{0 < i < n} f_{n-i} x_i^T - eta sum_{0 < i <= n} D(f_{n+1-i} e_i^T)
///
/// Steps of sizes of their own, eta_i: z takes them in reverse order, eta_{i+1} stands before
/// f_{n-i} x_i^T, and dL/d eta_i = f_{n+1-i} . e_i. With a momentum m, e_i = q - A x_{i-1} + m
/// e_{i-1} and f_i likewise, the adjoint is still the same recurrence, and dL/dm = eta sum_{1 < i
/// <= n} f_{n+1-i} . e_{i-1}.
///
/// n - 1 pairs for F (D at the most: their sum has no more), and blocks that stay blocks. The
/// inverse of a singular block moves within its range, too: D((P z_n)(scale q - D(A) P scale q)^T)
/// more. A P of low rank moves by eigenvalues instead (LowRankSlope): a pair for each of
/// its vectors, and one.
///
/// Gradients have the shapes of what they are gradients of, float32, float64 or bfloat16, and are
/// overwritten; absent ones are not computed. There are H heads of k and v and max(H, Hq) of q:
/// the caller adds up those of shared heads. A log_decay of -inf has gradient 0. The gradient of a
/// is symmetric.
///
/// A ridge relative to |A|_F: with s_t = ridge . diag(dL/dR_t) = -sum_i ridge_i x_i z_i,
///
///     dL/dA_t = -z_t x_t^T + s_t A_t / |A_t|_F,   dL/dridge_i = -sum_t |A_t|_F x_i z_i
///
/// where no A_t is formed either: gradient/norm_slope-inl.h.
///
/// Where options.rotates, a and b are D, L and W, and so are their gradients: x and z are solved by
/// the triangle, token by token, and A and B are nowhere formed (qr/gradient-inl.h).
///
/// Cost: some 32 D^2 + 16 D Dv flops a token (D^3 / 3 more with systems of their own, 4 n D^2 for n
/// steps of an iteration, some 9 D^3 with all eigenvectors); scratch of O(T D) for every thread,
/// O(min(n + rank, D) T D) for gradient descent. The number of threads changes no bit.
#pragma once

#include <cstddef>
#include <span>

#include "src/engines/least_squares/least_squares.h"

namespace ttr::least_squares {

struct Gradients {
  TensorView q{}, k{}, v{};
  TensorView log_decay{}, importance{}, step{}, momentum{};
  TensorView ridge{};          ///< [N, H, D] float64, of the constant ridge in every sequence
  TensorView a{}, b{}, rss{};  ///< of the initial state
};

struct BackwardCall {
  Call forward{};  ///< a and b as they were at the start, not written; y and status are not used
  TensorView dy{};
  TensorView da{}, db{}, drss{};  ///< of the final state; absent: 0
  Gradients gradients{};
};

std::size_t BackwardScratchBytes(const Options& options, const Sizes& sizes, int threads);

/// `scratch` as for Forward.
void Backward(const Options& options, const BackwardCall& call, Executor& executor,
              std::span<std::byte> scratch = {});

}  // namespace ttr::least_squares
