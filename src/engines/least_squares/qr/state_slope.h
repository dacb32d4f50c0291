/// From gradients of a triangle to those of the sums that it stands for, and back: plain C++.
#pragma once

#include <cstdint>

#include "src/engines/least_squares/qr/scratch.h"

namespace ttr::least_squares {

/// The map between (D, L, W, rss) and (A, B, S = sum w v^2), L^T = U:
///
///     A = U D U^T,   B = U D W,   rss = S - diag(W^T D W)
///
/// By W = D^-1 U^-1 B and U^-1 dU = triu(U^-1 dA U^-T, 1) D^-1, with a bar for dL/d.,
///
///     Bbar = L^-1 D^-1 (Wbar - 2 rssbar D W),   Ubar -= Bbar (D W)^T
///     Dbar -= (Wbar - 2 rssbar D W) W / D + rssbar W^2, summed over values
///     Abar = L^-1 (triu(L Ubar D^-1, 1) + Dbar) L^-T
///
/// O(D^2 (D + Dv)). A channel that nothing has excited, D_i = 0, passes nothing on.
struct StateSlope {
  const Triangle& triangle;
  std::int64_t stride;
  double *f, *g, *c;    // Abar + Abar^T and Bbar, rows of `stride`; Sbar = rssbar
  double *by_r, *by_w;  // Dbar, below it Lbar; Wbar: rows of key_dim, value_dim
  double* room;         // key_dim rows of key_dim

  /// by_r, by_w (which are overwritten) and c into f and g. Returns the product of all with the
  /// state, which is that of Abar, Bbar and Sbar with their sums.
  double ToSums(const double* rss) const;
  /// f, g and c into by_r and by_w.
  void FromSums() const;
};

}  // namespace ttr::least_squares
