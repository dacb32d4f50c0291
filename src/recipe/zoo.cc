// Every named layer: one entry each, in the order of docs/layers.md.
//
// Legend: M = M_t in R^{Dv x Dk}, M' = M_{t-1}, k, v, q column vectors of token t, (.)
// element-wise, g = exp(log_decay), b = step, w = importance, y = M q unless said otherwise.
#include "ttr/zoo.h"

namespace ttr {
namespace {

constexpr ZooEntry kZoo[] = {
    // Least squares, A taken as the identity: one full-batch gradient step.
    {"linear_attention", "uniform | linear | gradient", "Linear attention",
     "Katharopoulos 2020, arXiv 2006.16236", "M = M' + v k^T"},
    {"retnet", "decay(retention) | linear | gradient", "RetNet", "arXiv 2307.08621",
     "M = g_h M' + v k^T, g_h = 1 - 2^(-5-h) for memory h = 0, 1, ..."},
    {"gla", "decay(channel) | linear | gradient", "Gated linear attention", "arXiv 2312.06635",
     "M = M' diag(g) + v k^T"},
    {"gateloop", "decay(channel, phase) | linear | gradient", "GateLoop", "arXiv 2311.01927",
     "M = M' diag(g e^{i phase}) + v k^T, y = Re(M q)"},
    {"hgrn2", "decay(channel) x importance(complement) | linear | gradient", "HGRN2",
     "arXiv 2404.07904", "M = M' diag(g) + v (1 - g)^T; reads no k"},
    {"rwkv6", "decay(channel) | linear | gradient | reading(read: before, bonus: true)", "RWKV-6",
     "arXiv 2404.05892", "y = (M' + v (bonus (.) k)^T) q; then M = M' diag(g) + v k^T"},
    {"mlstm",
     "decay(scalar) x importance(log) | linear | gradient | reading(normalise_sum: stabilised, "
     "scale: rsqrt_dk)",
     "mLSTM (xLSTM)", "arXiv 2405.04517",
     "m = max(log g + m', i), f = exp(log g + m' - m), j = exp(i - m), i = log_importance; "
     "M = f M' + j v k^T, n = f n' + j k; y = M q / max(|n^T q|, exp(-m)), q scaled by Dk^-1/2"},
    {"mamba", "decay(matrix) | linear | gradient", "Mamba (S6)", "arXiv 2312.00752",
     "M[c,n] = exp(dt_c a_cn) M'[c,n] + v_c k_n; v = dt x, k = B, q = C"},
    {"mamba2", "decay(scalar) | linear | gradient", "Mamba-2 (SSD), simple GLA", "arXiv 2405.21060",
     "M = g M' + v k^T; v = dt x, k = B, q = C"},
    {"lru", "decay(channel, phase) x importance(root_complement) | constant | gradient", "LRU",
     "arXiv 2303.06349",
     "h = lambda (.) h' + sqrt(1 - |lambda|^2) (.) v, lambda = g e^{i phase}; y = Re(h)"},
    {"hgrn", "decay(channel) x importance(complement) | constant | gradient", "HGRN",
     "arXiv 2311.04823", "h = g (.) h' + (1 - g) (.) v; y = h"},
    {"rg_lru", "decay(channel) x importance(root_complement) | constant | gradient",
     "RG-LRU (Griffin)", "arXiv 2402.19427", "h = g (.) h' + sqrt(1 - g^2) (.) v; y = h"},

    // Least squares by stochastic gradient descent, one pair at a time.
    {"deltanet", "uniform | linear | sgd", "DeltaNet, LMS",
     "arXiv 2102.11174, 2406.06484; Widrow and Hoff 1960", "M = M' + b (v - M' k) k^T"},
    {"nlms", "uniform | linear | sgd(step: nlms)", "Normalised LMS, Kaczmarz",
     "classic; arXiv 2605.08587",
     "M = M' + eta / (|k|^2 + eps) (v - M' k) k^T; a zero key writes nothing"},
    {"longhorn", "uniform | linear | sgd(step: longhorn)", "Longhorn (exact form)",
     "arXiv 2407.14207", "M = M' + b / (1 + b |k|^2) (v - M' k) k^T"},
    {"efla", "uniform | linear | sgd(step: efla)", "EFLA", "arXiv 2512.12602",
     "M = M' + (1 - exp(-b |k|^2)) / |k|^2 (v - M' k) k^T"},
    {"leaky_lms", "uniform | linear | sgd(weight_decay: coupled)",
     "Leaky LMS: SGD with weight decay", "Test-time regression 2025, Vignette 3",
     "M = (1 - b lambda) M' + b (v - M' k) k^T, lambda = weight_decay; the error is of M'"},
    {"decoupled_lms", "uniform | linear | sgd(weight_decay: decoupled)",
     "LMS with decoupled weight decay", "Test-time regression 2025, Vignette 3",
     "M = (1 - lambda) M' + b (v - M' k) k^T, lambda = weight_decay"},
    {"gated_deltanet", "decay(scalar) | linear | sgd", "Gated DeltaNet", "arXiv 2412.06464",
     "M~ = g M'; M = M~ + b (v - M~ k) k^T"},
    {"kda", "decay(channel) | linear | sgd", "Kimi delta attention", "arXiv 2510.26692",
     "M~ = M' diag(g); M = M~ + b (v - M~ k) k^T"},
    {"comba", "decay(scalar) | linear | sgd(erase: erase_key) | reading(correction: 0.02)", "Comba",
     "arXiv 2506.02475",
     "M~ = g M'; M = M~ + b (v - M~ p) k^T, p = erase_key; y = M (q - correction p)"},
    {"gated_deltanet2", "decay(channel) | linear | sgd(step: one, erase: gated_key)",
     "Gated DeltaNet-2", "arXiv 2605.22791",
     "M~ = M' diag(g); M = M~ + (v - M~ (erase_gate (.) k)) k^T; v is gated outside"},
    {"delta_product", "decay(scalar) | linear | sgd(steps: 2)", "DeltaProduct", "arXiv 2502.10297",
     "M_0 = g M'; M_j = M_{j-1} + b_j (v_j - M_{j-1} k_j) k_j^T, j = 1..steps; read after the "
     "last"},
    {"erase_then_delta", "decay(channel) | linear | sgd(steps: 2)", "Erase-then-Delta (EDA)",
     "arXiv 2606.26560",
     "M_0 = M' diag(g); M_1 = M_0 - b_1 M_0 e e^T: the first pair of a token is (e, 0), its key an "
     "address that is cleared; M = M_1 + b_2 (v - M_1 k) k^T"},
    {"rwkv7", "decay(channel) | linear | sgd(step: one, erase: undecayed)", "RWKV-7",
     "arXiv 2503.14456",
     "M = M' (diag(g) - kappa (a (.) kappa)^T) + v k^T, kappa = erase_key, a = erase_gate"},
    {"preconditioned_deltanet", "importance(input) | linear | sgd(preconditioner: diagonal)",
     "Preconditioned DeltaNet", "arXiv 2604.21100",
     "D = curvature_decay D' + w k (.) k, D_0 = 0; l = log(D + 1e-6) - curvature_centre; "
     "M = M' + b (v - M' k) (k (.) 1.5^(-l / (1 + |l|)))^T"},
    {"preconditioned_gated_deltanet",
     "decay(scalar) x importance(input) | linear | sgd(preconditioner: diagonal, curvature_centre: "
     "-0.2)",
     "Preconditioned Gated DeltaNet (PGDN)", "arXiv 2604.21100",
     "D and m(D) as in preconditioned_deltanet, without a fading of D by g; M~ = g M'; "
     "M = M~ + b (v - M~ k) (k (.) m(D))^T"},
    {"preconditioned_kda",
     "decay(channel) x importance(input) | linear | sgd(preconditioner: diagonal, "
     "curvature_centre: -0.2)",
     "Preconditioned KDA (PKDA)", "arXiv 2604.21100",
     "as preconditioned_gated_deltanet, of M~ = M' diag(g)"},
    {"low_rank_rls", "uniform | linear | sgd(step: one, preconditioner: low_rank, ridge: 1)",
     "Low-rank recursive least squares", "Test-time regression 2025, Vignette 3, future work",
     "C = U'^T U' + k k^T; M = M' + (v - M' k) ((C + ridge I)^-1 k)^T; U^T U = the `rank` "
     "largest eigenpairs of C, U_0 = 0: rls for rank >= Dk, longhorn where nothing is kept"},
    {"affine_projection",
     "uniform | linear | sgd(steps: 8, step: one, preconditioner: low_rank, curvature_decay: 0, "
     "ridge: 0.01)",
     "Affine projection", "Ozeki and Umeda 1984",
     "M = M' + (V - M' K)(K^T K + ridge I)^-1 K^T, K and V the `steps` pairs of a token, of a "
     "window the latest: rank >= steps - 1; nlms for steps: 1"},
    {"momentum_deltanet", "uniform | linear | sgd(momentum: true, weight_decay: decoupled)",
     "Momentum delta rule, Titans with a linear memory", "arXiv 2501.00663",
     "G = eta G' + b (v - M' k) k^T, eta = momentum; M = (1 - weight_decay) M' + G"},

    {"adagrad_lms", "uniform | network | sgd(eps: 1e-08, adapt: adagrad)",
     "LMS with Adagrad's step sizes", "Test-time regression 2025, Vignette 3; Duchi 2011",
     "G = -(v - M' k) k^T; V = V' + G (.) G; M = M' - b G / (sqrt(V) + eps), entry by entry: a "
     "network of one matrix is a linear memory"},
    {"adam_lms",
     "uniform | network | sgd(eps: 1e-08, momentum: true, adapt: adam, curvature_decay: 0.999)",
     "LMS with Adam's step sizes", "Test-time regression 2025, Vignette 3; arXiv 1412.6980",
     "G as in adagrad_lms; N = eta N' + (1 - eta) G, eta = momentum; V = c V' + (1 - c) G (.) G, c "
     "= curvature_decay; M = M' - b N / (sqrt(V) + eps); the correction of the first steps is left "
     "to b"},

    // Least squares by second-order and Krylov solvers. x solves (or approaches) A x = q, y = B x.
    {"rls", "uniform | linear | exact(ridge: 0.001)", "Recursive least squares",
     "Test-time regression 2025, Vignette 1; classic",
     "A = A' + k k^T, A_0 = ridge I; B = B' + v k^T; y = B A^-1 q, minimum norm for ridge 0"},
    {"weighted_rls", "decay(scalar) x importance(input) | linear | exact(ridge: 0.001)",
     "Weighted recursive least squares", "Test-time regression 2025, Vignette 2",
     "A = g A' + w k k^T, A_0 = ridge I; B = g B' + w v k^T; y = B A^-1 q"},
    {"mesa",
     "decay(scalar) x importance(input) | linear | exact(ridge: 0.25, ridge_kind: constant)",
     "MesaNet", "arXiv 2506.05233, 2309.05858",
     "H = g H' + w k k^T; B = g B' + w v k^T; y = B (H + ridge)^-1 q"},
    {"intention", "uniform | linear | exact(ridge: 0.001) | reading(causal: false)", "Intention",
     "arXiv 2305.10203", "y_t = B_T A_T^-1 q_t: rls of the whole sequence, for every query"},
    {"kalmanet", "decay(scalar) | linear | chebyshev(steps: 30, ridge: 0.02, ridge_kind: relative)",
     "Gated KalmaNet", "arXiv 2511.21016",
     "H = g H' + k k^T; B = g B' + v k^T; y = B x, x = iterate `steps` of Chebyshev on "
     "(H + ridge |H|_F I) x = q"},
    {"batch_gd", "uniform | linear | gradient(steps: 8, eta_kind: relative)",
     "Batch gradient descent", "Test-time regression 2025, Vignette 3",
     "H = H' + k k^T; B = B' + v k^T; x <- x + eta / |H|_F (q - H x), `steps` times from 0; y = B "
     "x"},
    {"quasi_newton",
     "uniform | linear | gradient(steps: 4, eta_kind: relative, preconditioner: diagonal, ridge: "
     "0.001)",
     "Quasi-Newton", "Test-time regression 2025, Vignette 3",
     "A as in rls; x <- x + eta / Dphi P (q - A x), `steps` times from 0, P = diag(A)^-1; y = B x"},

    // Nonparametric: the pairs are kept. s_i = s(k_i, q).
    {"softmax", "similarity(exponential) | constant | exact | reading(scale: rsqrt_dk)",
     "Softmax attention", "arXiv 1706.03762",
     "y = sum s_i v_i / sum s_i, s_i = exp(k_i . q / sqrt(Dk))"},
    {"kernel_smoother", "uniform | kernel(exponential) | gradient | reading(scale: rsqrt_dk)",
     "Unnormalised softmax, kernel smoother", "Test-time regression 2025, Vignette 4",
     "y = sum s_i v_i, s_i = exp(k_i . q / sqrt(Dk))"},
    {"nadaraya_watson", "similarity(gaussian, bandwidth: 1) | constant | exact", "Nadaraya-Watson",
     "Nadaraya 1964, Watson 1964",
     "y = sum s_i v_i / sum s_i, s_i = exp(-|k_i - q|^2 / bandwidth)"},
    {"kernel_ridge",
     "uniform | kernel(exponential) | exact(ridge: 0.001) | reading(scale: rsqrt_dk)",
     "Kernel ridge regression", "Test-time regression 2025, Vignette 4",
     "y = V^T (s(K, K) + ridge I)^-1 s(K, q)"},
    {"kernel_gd",
     "uniform | kernel(exponential) | gradient(steps: 8, eta_kind: relative, ridge: 0.001) | "
     "reading(scale: rsqrt_dk)",
     "Gradient descent in a kernel's space", "Test-time regression 2025, Vignettes 3 and 4",
     "a <- a + eta / (|s(K, K)|_F + ridge) (V - s(K, K) a - ridge a), `steps` times from 0; y = "
     "a^T "
     "s(K, q)"},
    {"window_rls", "window(64) | kernel(linear) | exact(ridge: 0.001)",
     "Least squares over a window", "classic; Test-time regression 2025, section 3.1",
     "rls of the latest `window` pairs: y = V^T (K K^T + ridge I)^-1 K q"},
    {"kernel_rls",
     "uniform | kernel(exponential) | exact(ridge: 0.001, budget: 64, tolerance: 0.001) | "
     "reading(scale: rsqrt_dk)",
     "Kernel recursive least squares", "Engel, Mannor, Meir 2004, IEEE TSP 52(8)",
     "kernel_ridge in the span of at most `budget` keys D: z(x) = L^-1 s(D, x), L L^T = s(D, D); "
     "A = A' + z z^T, A_0 = ridge I, B = B' + v z^T, z = z(k); y = B A^-1 z(q); k joins D where "
     "s(k, k) - |z|^2 > tolerance s(k, k)"},
    {"local_linear",
     "similarity(exponential) | polynomial(degree: 1) | exact(ridge: 0.01) | reading(scale: "
     "rsqrt_dk)",
     "Local linear attention", "Test-time regression 2025, Vignette 4; arXiv 2510.01450",
     "y = c of min over c, S of sum s_i |v_i - c - S (k_i - q)|^2 + ridge (sum s_i) |S|^2"},
    {"local_quadratic",
     "similarity(exponential) | polynomial(degree: 2) | exact(ridge: 0.01) | reading(scale: "
     "rsqrt_dk)",
     "Local quadratic attention", "Test-time regression 2025, Vignette 4",
     "as local_linear, with all monomials of k_i - q up to degree 2"},
    {"local_cubic",
     "similarity(exponential) | polynomial(degree: 3) | exact(ridge: 0.01) | reading(scale: "
     "rsqrt_dk)",
     "Local cubic attention", "Test-time regression 2025, Vignette 4",
     "as local_linear, with all monomials of k_i - q up to degree 3"},
    {"window_softmax",
     "window(64) x similarity(exponential) | constant | exact | reading(scale: rsqrt_dk)",
     "Sliding-window softmax attention", "common practice",
     "softmax over the latest `window` pairs"},
    {"decayed_softmax",
     "decay(scalar) x similarity(exponential) | constant | exact | reading(scale: rsqrt_dk)",
     "Softmax attention with a decay", "common practice",
     "y = sum w_i s_i v_i / sum w_i s_i, w_i = prod g_j over i < j <= t"},
    {"affine_rls", "uniform | affine | exact(ridge: 0.001)", "RLS with an intercept", "classic",
     "rls on the key [k; 1], no ridge on the 1"},
    {"feature_rls", "uniform | linear(features: elu1) | exact(ridge: 0.001)",
     "Optimal nonlinear memory", "Test-time regression 2025, Vignette 1",
     "rls on phi(k) and phi(q)"},

    // Networks that are trained while they read. L = 1/2 |f(k) - v|^2.
    {"ttt_linear",
     "uniform | network(norm: true, residual: true, bias: true) | sgd(mini_batch: 16, row_factor: "
     "inverse)",
     "TTT-Linear", "arXiv 2407.04620",
     "f(x) = x + LN(W x + b); W_t = W_s - c_i sum over j in s+1..t of step_j grad L_j(W_s), W_s "
     "the "
     "weights where the mini-batch began, i = t - s - 1, c_i = max(1/(i+1) + row_bias_i, 0)"},
    {"ttt_mlp",
     "uniform | network(depth: 2, activation: gelu, norm: true, residual: true, bias: true) | "
     "sgd(mini_batch: 16, row_factor: inverse)",
     "TTT-MLP", "arXiv 2407.04620",
     "f(x) = x + LN(W2 gelu(W1 x + b1) + b2), hidden width 4 Dk; trained as ttt_linear"},
    {"titans", "uniform | network(depth: 2) | sgd(momentum: true, weight_decay: decoupled)",
     "Titans", "arXiv 2501.00663",
     "f(x) = W2 silu(W1 x); S = momentum S' - step grad L(W'); W = (1 - weight_decay) W' + S"},
    {"lact",
     "uniform | network(depth: 2, expansion: 1, gated: true) | sgd(loss: dot_product, mini_batch: "
     "2048) | reading(read: batch_start)",
     "LaCT, plain steps", "arXiv 2505.23884",
     "f(x) = W2 (silu(W1 x) (.) W3 x), [W1; W3] one matrix; L = -v . f(k); every mini-batch reads "
     "W_s and leaves W_s - sum step_j grad L_j(W_s); its norm of the weights and Muon are not "
     "here"},
    {"in_place_ttt",
     "uniform | network | sgd(loss: dot_product, mini_batch: 1024) | reading(read: batch_start)",
     "In-Place TTT", "arXiv 2604.06169",
     "every mini-batch reads W_s, y = W_s q, and leaves W_s + sum step_j v_j k_j^T; W_0 is a "
     "trained projection, v a target that the model makes of the tokens that follow"},
};

}  // namespace

std::span<const ZooEntry> Zoo() { return kZoo; }

const ZooEntry* FindInZoo(std::string_view name) {
  for (const ZooEntry& entry : kZoo) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace ttr
