/// The switching autoregressive process of the paper's figure 2.
///
///   k_{t+1} = a_t k_t + noise eps_t,   a_t = first_decay for t < T/4, then second_decay,
///   eps_t ~ N(0, Sigma),               Sigma = (1 - rho) I + rho 1 1^T,
///   v_t = k_{t+1} / |k_{t+1}|,         q_t = k_{t+1},      t = 1 .. T.
///
/// One pass through a layer gives y_t = m_t(q_t), a forecast of v_{t+1}: the loss of token t is
/// |v_{t+1} - y_t|^2. The naive forecast of v_{t+1} is v_t.
///
/// The paper leaves Sigma and k_0 open. Here rho = 1/2, and the process starts from rest, k_0 = 0
/// (which is no token: the first key is k_1 = noise eps_0). It takes some ten tokens to reach the
/// spread of the first phase; kStationary draws k_0 from that spread,
/// N(0, noise^2 / (1 - first_decay^2) Sigma). The naive loss of the first quarter is then .23, and
/// .24 from rest; nothing else changes visibly.
///
/// Cost: T Dk normals. All arithmetic is in double and in one order: the same numbers everywhere.
#pragma once

#include <cstdint>
#include <vector>

namespace ttr::experiments {

enum class KeyStart { kRest, kStationary };

struct SwitchingProcess {
  std::int64_t tokens = 256;    // T >= 1
  std::int64_t key_dim = 64;    // Dk >= 1
  double first_decay = 0.9;     // |a| <= 1; below 1 with kStationary
  double second_decay = 0.999;  // |a| <= 1
  double noise = 0.02;          // > 0
  double rho = 0.5;             // -1 / (Dk - 1) <= rho <= 1, so that Sigma has a square root
  KeyStart start = KeyStart::kRest;
};

/// Row-major matrices of double.
struct RegressionData {
  std::int64_t tokens = 0;
  std::int64_t key_dim = 0;
  std::vector<double> keys;     // [T + 2, Dk]: k_1 .. k_{T+2}
  std::vector<double> k, q, v;  // [T, Dk]: what a layer reads
  std::vector<double> target;   // [T, Dk]: v_{t+1}, what y_t forecasts
};

/// Throws Error for an option outside the range above.
RegressionData MakeRegression(const SwitchingProcess& process, std::uint64_t seed);

}  // namespace ttr::experiments
