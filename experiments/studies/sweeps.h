/// Sweeps of Gauss and Seidel over the dual of a least-squares problem: what lies between the delta
/// rule and recursive least squares.
///
///     minimise  sum_i |v_i - M k_i|^2 / r_i + |M|_F^2
///     M = sum_i a_i k_i^T,   (K K^T + diag(r)) a = V
///
/// One forward sweep from a = 0 takes the pairs in their order, each against the memory that those
/// before it have made:
///
///     a_i <- a_i + (v_i - M k_i - r_i a_i) / (|k_i|^2 + r_i)
///
/// Its first sweep is a delta rule of step 1 / (|k_i|^2 + r_i): with r = 1/b Longhorn's,
/// b / (1 + b |k|^2); with r_i = 1/b - |k_i|^2 DeltaNet's, the constant b (b |k_i|^2 < 1). Further
/// sweeps must know what each pair has been given, a, where a delta rule keeps M alone. They
/// converge for every r > 0, whether or not a map fits all pairs, to
///
///     r_i = r:  rls{ridge: r};   else weighted_rls, importance 1 / r_i, ridge 1.
///
/// The first sweep over the first t pairs is the beginning of the first sweep over all: one pass
/// answers every prefix. The second already depends on t, so n > 1 sweeps of every prefix cost
/// O(n T^2): they are for looking at. (The factor of K K^T + diag(r) has that property, and is
/// exact.)
///
/// Source: Golub, Van Loan, "Matrix computations", section 11.2; Strohmer, Vershynin (2009) for
/// Kaczmarz, the case r = 0.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "experiments/studies/layers.h"

namespace ttr::experiments {

/// The pairs of `rows`, swept together.
class DualSweeps {
 public:
  /// `ridges`: r_i >= 0, one a pair. |k_i|^2 + r_i > 0.
  DualSweeps(const PairRows& rows, std::vector<double> ridges);

  /// One more sweep over the first `pairs` of them.
  void Sweep(std::int64_t pairs);
  void Sweep() { Sweep(static_cast<std::int64_t>(ridges_.size())); }

  /// M q for every row of q: [queries, value_dim].
  std::vector<double> Retrieve(std::span<const double> q) const;

 private:
  PairRows rows_;
  std::vector<double> ridges_;
  std::vector<double> a_;       // [pairs][value_dim]
  std::vector<double> memory_;  // M, [value_dim][key_dim]
};

/// r_i = 1/step - |k_i|^2, of which the first sweep is DeltaNet with this step.
std::vector<double> RidgesOfStep(const PairRows& rows, double step);

/// y_t of every token: `sweeps` sweeps from zero over pairs 1 .. t, then M q_t.
std::vector<double> SweepPrefixes(const PairRows& rows, const std::vector<double>& ridges,
                                  std::int64_t sweeps);

}  // namespace ttr::experiments
