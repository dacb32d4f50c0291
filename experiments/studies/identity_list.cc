// The identities of the catalogue, as pairs of recipes.
#include <fmt/core.h>

#include <cmath>

#include "experiments/report/table.h"
#include "experiments/studies/identities.h"

namespace ttr::experiments {

namespace {

constexpr double kDecay = .9, kStep = .4;
constexpr double kLarge = 1e9;  // outweighs keys
const ConstantGates kGated{.decay = kDecay, .step = kStep};
const ConstantGates kStill{.decay = 1, .step = kStep};
const ConstantGates kOne{.decay = 1, .step = 1};
const ConstantGates kNoMomentum{.decay = 1, .step = kStep, .momentum = 0, .weight_decay = 0};

std::string Exact(double x) { return report::ExactReal(x); }

// Decays: one recurrence under several names.
void AddDecays(std::vector<Identity>& list) {
  list.push_back(
      {"a decay per channel that is the same for all is scalar", "gla", "mamba2", kGated, kGated});
  list.push_back({"without a phase", "gateloop", "gla", kGated, kGated});
  list.push_back({"dt = 1, a = log decay", "mamba", "mamba2", kGated, kGated});
  list.push_back({"memory 0 has the decay 1 - 1/32",
                  "retnet",
                  "mamba2",
                  kGated,
                  {.decay = 1 - 1. / 32, .step = kStep}});
  list.push_back({"decay 1 forgets nothing", "mamba2", "linear_attention", kStill, kStill});
  list.push_back({"bonus 1 puts the current token back, without decay", "rwkv6", "linear_attention",
                  kStill, kStill});
  list.back().left_gates.bonus = 1;
  list.push_back({"a key that is its gate: k = 1 - decay", "hgrn2", "gla", kGated, kGated});
  list.back().right_reads_constant = true;
  list.push_back({"without a phase", "lru", "rg_lru", kGated, kGated});
}

// The delta family.
void AddDeltaRules(std::vector<Identity>& list) {
  list.push_back({"unit keys: eta / |k|^2 = 1", "nlms", "deltanet", kOne, kOne});
  list.push_back({"step b / (1 + b |k|^2), b -> infinity",
                  "longhorn",
                  "nlms",
                  {.decay = 1, .step = 1e12},
                  kOne,
                  1e-10});
  list.back().unit_keys = false;
  list.push_back({"step (1 - exp(-b |k|^2)) / |k|^2, b -> infinity",
                  "efla",
                  "nlms",
                  {.decay = 1, .step = 1e6},
                  kOne});
  list.back().unit_keys = false;
  const double lambda = .1;
  list.push_back({"(decay, step, v) = (1 - b l, b / (1 - b l), (1 - b l) v), l = weight decay",
                  "gated_deltanet",
                  "leaky_lms",
                  {.decay = 1 - kStep * lambda, .step = kStep / (1 - kStep * lambda)},
                  {.decay = 1, .step = kStep, .weight_decay = lambda}});
  list.back().left_values = 1 - kStep * lambda;
  list.push_back({"no weight decay", "leaky_lms", "deltanet", kNoMomentum, kNoMomentum});
  list.push_back({"no weight decay", "decoupled_lms", "deltanet", kNoMomentum, kNoMomentum});
  list.push_back(
      {"no momentum, no weight decay", "momentum_deltanet", "deltanet", kNoMomentum, kNoMomentum});
  list.push_back({"the same decay for all channels", "kda", "gated_deltanet", kGated, kGated});
  list.push_back({"the same decay for all channels", "preconditioned_kda",
                  "preconditioned_gated_deltanet", kGated, kGated});
  list.push_back({"erases along its own key, query not corrected", "comba{correction: 0}",
                  "gated_deltanet", kGated, kGated});
  list.push_back(
      {"erase gate 1, step 1", "gated_deltanet2", "kda", kGated, {.decay = kDecay, .step = 1}});
  list.push_back({"kappa = k, gate 1, no decay", "rwkv7", "deltanet", kOne, kOne});
}

// Least squares by its solvers.
void AddLeastSquares(std::vector<Identity>& list, const IdentitiesOptions& o) {
  list.push_back({"a curvature that keeps all directions",
                  fmt::format("low_rank_rls{{rank: {}, ridge: 0.01}}", o.dim), "rls{ridge: 0.01}",
                  kOne, kOne, 1e-10});
  list.push_back({"a window of one pair", "affine_projection{steps: 1, ridge: 0.01}",
                  "nlms{eps: 0.01}", kOne, kOne});
  list.push_back({"one step of size 1 from zero takes A for I",
                  "batch_gd{steps: 1, eta_kind: constant}", "linear_attention", kOne, kOne});
  list.push_back({"one step, preconditioned by A^-1",
                  fmt::format("quasi_newton{{steps: 1, preconditioner: block_diagonal, block: {}, "
                              "ridge: 0.01}}",
                              o.dim),
                  "rls{ridge: 0.01}", kOne, kOne, 1e-10});
  list.push_back({"one step, all eigenpairs in the preconditioner",
                  fmt::format("quasi_newton{{steps: 1, preconditioner: low_rank, rank: {}, "
                              "ridge: 0.01}}",
                              o.dim),
                  "rls{ridge: 0.01}", kOne, kOne, 1e-10});
  list.push_back({"many steps of gradient descent, on keys that span all channels",
                  "batch_gd{steps: 20000}", "rls{ridge: 0}", kOne, kOne, 1e-6});
  list.back().compared = Compared::kLast;
  list.push_back(
      {"conjugate gradients end after Dk steps",
       fmt::format("uniform | linear | conjugate_gradient(steps: {}, ridge: 0.1)", 2 * o.dim),
       "rls{ridge: 0.1}", kOne, kOne, 1e-10});
  list.push_back(
      {"Chebyshev's iteration converges",
       "decay(scalar) | linear | chebyshev(steps: 400, ridge: 0.1, ridge_kind: constant)",
       "mesa{ridge: 0.1}", kGated, kGated, 1e-10});
  list.push_back({"without decay a fading and a constant ridge are one", "mesa{ridge: 0.01}",
                  "rls{ridge: 0.01}", kStill, kStill});
  list.push_back({"decay 1 weighs all the same", "weighted_rls{ridge: 0.01}", "rls{ridge: 0.01}",
                  kStill, kStill});
  list.push_back({"at the last token nothing lies ahead", "intention{ridge: 0.01}",
                  "rls{ridge: 0.01}", kOne, kOne});
  list.back().compared = Compared::kLast;
  list.push_back({"a ridge that outweighs the keys, A = ridge I, on ridge v",
                  "rls{ridge: " + Exact(kLarge) + "}", "linear_attention", kOne, kOne, 1e-6});
  list.back().left_values = kLarge;
}

// Nonparametric.
void AddNonparametric(std::vector<Identity>& list, const IdentitiesOptions& o) {
  const auto dim = static_cast<double>(o.dim);
  list.push_back({"unit keys and queries: B = 2 sqrt(Dk)", "softmax",
                  fmt::format("nadaraya_watson{{bandwidth: {}}}", Exact(2 * std::sqrt(dim))), kOne,
                  kOne});
  const std::string unit =
      fmt::format("bandwidth: {}, normalise_qk: true", Exact(2 * std::sqrt(dim)));
  list.push_back({"QKNorm: B = 2 sqrt(Dk)", "softmax{normalise_qk: true}",
                  "nadaraya_watson{" + unit + "}", kOne, kOne});
  list.push_back({"the same of degree 1", "local_linear{normalise_qk: true, ridge: 0}",
                  "local_linear{kernel: gaussian, " + unit + ", ridge: 0}", kOne, kOne, 1e-10});
  list.back().compared = Compared::kDetermined;
  list.push_back({"an infinite ridge on the slope leaves the constant", "local_linear{ridge: 1e12}",
                  "softmax", kOne, kOne});
  list.push_back({"flat weights: one affine map for all queries",
                  "local_linear{scale: 0, ridge: 0}", "affine_rls{ridge: 0}", kOne, kOne, 1e-8});
  list.back().compared = Compared::kDetermined;
  list.push_back({"a ridge that outweighs the kernel, on ridge v",
                  "kernel_ridge{ridge: " + Exact(kLarge) + "}", "kernel_smoother", kOne, kOne,
                  1e-6});
  list.back().left_values = kLarge;
  list.push_back({"a linear kernel: the dual",
                  "kernel_ridge{kernel: linear, scale: 1, ridge: 0.01}", "rls{ridge: 0.01}", kOne,
                  kOne, 1e-10});
  list.push_back({"one step of size 1 in a kernel's space",
                  "kernel_gd{eta_kind: input, steps: 1, ridge: 0.1}", "kernel_smoother", kOne,
                  kOne});
  list.push_back({"many steps in a kernel's space", "kernel_gd{steps: 2000, eta: 1.5, ridge: 1}",
                  "kernel_ridge{ridge: 1}", kOne, kOne, 1e-10});
  list.push_back({"conjugate gradients in a kernel's space",
                  fmt::format("kernel_gd{{optimizer: conjugate_gradient, steps: {}, ridge: 0.1}}",
                              2 * o.tokens),
                  "kernel_ridge{ridge: 0.1}", kOne, kOne, 1e-10});
  list.push_back({"steps in a linear kernel's space are the dual's",
                  "kernel_gd{kernel: linear, scale: 1, ridge: 0}", "batch_gd", kOne, kOne});
  list.push_back({"a window as long as the sequence",
                  fmt::format("window_softmax{{window: {}}}", o.tokens), "softmax", kOne, kOne});
  list.push_back({"decay 1", "decayed_softmax", "softmax", kOne, kOne});
}

// Networks trained while they read.
void AddNetworks(std::vector<Identity>& list, const IdentitiesOptions& o) {
  const auto network = [](std::int64_t mini_batch) {
    return fmt::format("uniform | network | sgd(mini_batch: {})", mini_batch);
  };
  list.push_back({"one matrix, one token a step", network(1), "deltanet", kStill, kStill});
  list.push_back({"one matrix, all gradients at the start: the error is v",
                  network(o.tokens),
                  "linear_attention",
                  {.decay = 1, .step = 1},
                  kOne});
  list.push_back({"depth 1, no momentum, no weight decay", "titans{depth: 1}", "deltanet",
                  kNoMomentum, kNoMomentum});
}

}  // namespace

std::vector<Identity> Identities(const IdentitiesOptions& o) {
  std::vector<Identity> list;
  AddDecays(list);
  AddDeltaRules(list);
  AddLeastSquares(list, o);
  AddNonparametric(list, o);
  AddNetworks(list, o);
  return list;
}

}  // namespace ttr::experiments
