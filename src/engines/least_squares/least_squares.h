/// Least squares: a linear memory that solves its normal equations for every query.
///
///     A_t = g_t A_{t-1} + w_t k_t k_t^T,   B_t = g_t B_{t-1} + w_t k_t v_t^T
///     y_t = B_t^T x_t,   (A_t + R_t) x_t = scale q_t            (read before: those of t - 1)
///
/// R is nothing (a ridge, where there is one, is part of A and fades with it), a constant diagonal,
/// or one that grows with |A_t|_F.
///
/// The information form, A and B, is the whole state: an inverse updated from token to token (the
/// textbook recursion) loses its digits within some thousand tokens. Chunks of tokens share one
/// Cholesky factor A = U^T U of their start; what the tokens of the chunk add is a small system of
/// its own, whose leading blocks are the prefixes:
///
///     W = U^-T [K^T Q^T B]           whitened keys, queries and memory (K, V times sqrt(w / c))
///     S = I + Wk^T Wk = L L^T        L^-1 [V - Wk^T Wb, Wk^T Wq] = [E, P]
///     Y = Wq^T Wb + triu(P)^T E      every prefix exactly
///
/// so exact least squares costs about two delta rules. Where A is singular (no ridge, or one that
/// has faded) tokens are solved one by one by the minimum-norm solution. Under a ridge that does
/// not fade beside associations that do, every token has a system of its own: as many as a vector
/// has lanes are factored side by side.
///
/// Solvers that iterate take all queries of a chunk through each step together. A_t is never
/// formed: A_t x = c_t (A_0 x + K^T (K x)) + R_t x, with the keys up to t, is two products of
/// matrices for all of them. A query that has converged takes no part in the next. A preconditioner
/// may be one Cholesky factor for a chunk (iterative/chunk_factor-inl.h), or take the eigenvectors
/// of every A_t + R_t (linalg/eigensystems-inl.h), as Chebyshev takes the smallest eigenvalue where
/// a ridge fades. Status 2: a tolerance was missed, or A is singular along the way; 1: A = 0 has no
/// interval of eigenvalues. Source: Wang, Shi, Fox (2025), Vignettes 1 and 2; MesaNet 2506.05233
/// for the constant ridge.
///
/// The rooms: sequence/ takes a memory through its tokens (gathered chunks, running sums A and B);
/// exact/ solves a chunk, or systems side by side; iterative/ has one file a solver or
/// preconditioner, each with its slope; decode/ is the single token in place; gradient/ the way
/// back.
///
/// | argument   | shape          | dtype            | meaning                           |
/// |------------|----------------|------------------|-----------------------------------|
/// | q          | [B, T, Hq, D]  | input            | queries; absent: write only       |
/// | k          | [B, T, Hk, D]  | input            | keys                              |
/// | v          | [B, T, Hv, Dv] | input            | values; absent: read only         |
/// | log_decay  | [B, T, H]      | input            | log g <= 0; -inf forgets          |
/// | importance | [B, T, H]      | input            | w >= 0; absent: 1                 |
/// | ridge      | [H, D]         | float64          | diagonal of R, or of R / norm(A)  |
/// | a          | [N, H, D, D]   | float32, float64 | A, symmetric; read, then written  |
/// | b          | [N, H, D, Dv]  | as a             | B; read, then written             |
/// | factor     | [N, H, n]      | as a             | optional: of A, for single tokens |
/// | y          | [B, T, H', Dv] | input            | outputs, H' = max(H, Hq)          |
/// | status     | [B, T, H']     | int8             | written where not solved (0)      |
/// | iterations | [B, T, H']     | int64            | optional: of solvers that iterate |
/// | residual   | [B, T, H']     | float64          | optional: norm over that of q     |
///
/// input = float32, float64 or bfloat16. Any strides but a contiguous last axis. H memories; Hk, Hv
/// divide H, Hq divides it or is a multiple. N = B, or the number of sequences in cu_seqlens (B =
/// 1 then). Arithmetic is of the state's dtype; a singular A is solved in double.
///
/// Cost a token, m = chunk (64): 4 D^2 + 6 D Dv + m (3 D + 3 Dv) + (D^3 + m^3) / 3m flops; with a
/// system of its own D^3 / 3 + 5 D^2 + 6 D Dv; D^3 ten times for a singular A; a single token with
/// its factor 9 D^2 + 5 D Dv, 3 D^2 + 6 D Dv where a and b are deferred, without it as with a
/// system of its own. A step of an iteration takes 2 D^2 + 3 m D a query, m = 16; with the chunk's
/// factor twice that, m = 32, and D^3 / 3m + D^2 a token beside; with eigenvalues 2 D^3 more a
/// token, in double.
///
/// The caller has validated all of it. Forward does not throw, but for scratch that is too small.
/// Workers do not print or fail; results do not depend on their number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/engines/least_squares/iteration.h"
#include "ttr/executor.h"
#include "ttr/tensor.h"

namespace ttr::least_squares {

enum class Ridge : std::uint8_t {
  kInState,   ///< R = 0
  kConstant,  ///< R = diag(ridge)
  kRelative,  ///< R = |A|_F diag(ridge)
};

struct Options {
  Ridge ridge = Ridge::kInState;
  bool fades = false;  ///< is there any decay?
  bool read_before = false;
  bool causal = true;  ///< false: every query reads the memory of the whole sequence
  double scale = 1;    ///< multiplies q
  /// Is the state a triangle into which rows are rotated? Then a holds L, D on its diagonal, and b
  /// holds W: A = L^T D L, B = L^T D W; rss is the least sum of squares
  bool rotates = false;
  Iteration iteration{};

  bool iterates() const { return iteration.solver != Solver::kExact; }
  /// Can a factor of A be updated from token to token?
  bool has_step_factor() const {
    return !iterates() && !rotates && causal &&
           (ridge == Ridge::kInState || (ridge == Ridge::kConstant && !fades));
  }
  /// Can a factor stand for A and B?
  bool can_defer() const { return has_step_factor() && ridge == Ridge::kInState; }
  /// Does an iteration need the eigenvalues of every token's system?
  bool needs_spectra() const {
    return iteration.preconditioner == Preconditioner::kLowRank ||
           (iteration.solver == Solver::kChebyshev && ridge == Ridge::kInState && fades);
  }
  /// Do gradients pass through |A|_F?
  bool depends_on_norm() const { return ridge == Ridge::kRelative || iteration.relative; }
  bool descends() const { return iteration.solver == Solver::kGradient; }
  /// Does every token have a system of its own, which no chunk shares?
  bool own_systems() const {
    return !iterates() && !rotates && ridge != Ridge::kInState &&
           (fades || ridge == Ridge::kRelative);
  }
};

struct Call {
  TensorView q{}, k{}, v{};
  TensorView log_decay{}, importance{};
  std::span<const double> decay_factors{};     ///< [H], in (0, 1]: a constant decay
  std::span<const std::int64_t> cu_seqlens{};  ///< [N + 1], in tokens; empty: not packed
  std::span<const std::int64_t> slots{};       ///< [N] rows of a, b and factor; empty: 0 .. N - 1
  TensorView step{};                           ///< [B, T, H, steps], where options.iteration.given
  TensorView momentum{};                       ///< [B, T, H], where options.iteration.momentum
  TensorView ridge{};
  TensorView a{}, b{};
  TensorView rss{};  ///< [N, H, Dv], as b: where options.rotates
  TensorView
      factor{};  ///< zeros at first; only where options.has_step_factor(), only read without v
  /// Only the factor is written: a and b are stale until Flush(). A single token, only where
  /// options.can_defer().
  bool deferred = false;
  TensorView y{};
  TensorView status{};
  TensorView iterations{};  ///< optional: int64 [B, T, H'], what each right-hand side took
  TensorView residual{};  ///< optional: float64 [B, T, H'], |q - (A + R) x| / |q| of what iterates
};

/// What scratch depends on.
struct Sizes {
  std::int64_t tokens = 0;  ///< of the longest sequence
  std::int64_t key_dim = 1;
  std::int64_t value_dim = 1;
  std::int64_t queries = 1;  ///< query heads that read one memory: max(1, Hq / H)
  DType state = DType::kFloat32;
};

/// Bytes of scratch that Forward needs with this many threads.
std::size_t ScratchBytes(const Options& options, const Sizes& sizes, int threads);

/// Numbers of Call::factor for one memory. It holds for the very bits of A and of the ridge, which
/// are compared: these may change in between. `deferred`: B is in it, too, and nothing compared.
std::int64_t FactorNumbers(const Sizes& sizes, bool deferred);

/// Writes the a and b of deferred calls, and zeros to their factor.
void Flush(const Call& call, Executor& executor);

/// Writes every token and gives its outputs; the state is left as after the last. `scratch` (any
/// alignment) holds ScratchBytes() at least, or is empty, and then it is allocated.
void Forward(const Options& options, const Call& call, Executor& executor,
             std::span<std::byte> scratch = {});

/// The SIMD target that the kernels themselves report they were compiled for, as chosen now.
const char* KernelTarget();

}  // namespace ttr::least_squares
