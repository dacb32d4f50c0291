#include "tests/support/recipes.h"

#include <cctype>
#include <utility>

#include "ttr/plan.h"
#include "ttr/zoo.h"

namespace ttr::test {

namespace {

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const ZooEntry& entry : Zoo()) {
    names.emplace_back(entry.name);
    // Mini-batches of a model's length would not end within a test.
    const bool ends = ParseRecipe(entry.name).optimizer.mini_batch <= 16;
    if (!ends) names.back() += "{mini_batch: 4}";
  }
  // Feature maps are no layers of their own; each stands here on linear attention.
  for (const FeatureEntry& map : FeatureMaps()) {
    names.push_back("linear_attention{features: " + std::string(map.name) + "}");
  }
  // Options that no entry of the zoo has set, alone and together.
  for (const char* recipe : {
           "linear_attention{normalise_qk: true, scale: rsqrt_dk, output_norm: l2}",
           "linear_attention{decay: 0.9, eta: 0.5, read: before}",
           "gla{normalise_sum: sum, read: before}",
           "retnet{output_norm: rms}",
           "deltanet{read: before, normalise_qk: true}",
           "deltanet{decay: 0.99, step: longhorn, output_norm: rms, scale: 0.5}",
           "gated_deltanet{step: efla, read: before}",
           "nlms{eta: 0.5, eps: 0.1, decay: scalar}",
           "delta_product{steps: 3, step: nlms}",
           "kda{features: relu}",
           "kda{read: before, normalise_qk: true}",
           "gla{importance: input, eta: 0.5}",
           "hgrn2{normalise_sum: sum}",
           "hgrn2{importance: root_complement, read: before, scale: 2}",
           "gateloop{read: before, scale: 0.5}",
           "mlstm{decay: none, read: before}",
           "mlstm{normalise_sum: none, decay: 0.9}",
           "linear_attention{importance: input, normalise_sum: sum, read: before, bonus: false}",
           "linear_attention{function: affine, normalise_sum: sum, read: before}",
           "retnet{function: affine, features: taylor2, scale: 0.5}",
           "mlstm{function: affine}",
           "mamba2{function: affine, causal: false, features: cosformer}",
           "nlms{function: affine, eta: 0.5, eps: 0.1}",
           "gated_deltanet{function: affine, normalise_qk: true}",
           "deltanet{function: affine, features: hedgehog_exp, step: longhorn, read: before}",
           "delta_product{function: affine, steps: 3, step: nlms, features: elu1}",
           "momentum_deltanet{function: affine, normalise_qk: true}",
           "leaky_lms{function: affine, step: longhorn}",
           "preconditioned_deltanet{function: affine}",
           "linear_attention{causal: false, normalise_qk: true}",
           "linear_attention{features: cosformer, normalise_sum: sum, causal: false}",
           "linear_attention{features: taylor2, importance: input, causal: false}",
           "retnet{causal: false, output_norm: rms, scale: rsqrt_dk}",
           "mamba2{causal: false, eta: 0.5, normalise_sum: sum}",
           "gla{causal: false, importance: input, scale: 0.5}",
           "hgrn2{causal: false, normalise_sum: sum}",
           "gateloop{causal: false, importance: root_complement}",
           "mlstm{causal: false, output_norm: l2}",
           "mlstm{causal: false, normalise_sum: none, decay: none}",
           "rwkv6{decay: scalar}",
           "rwkv7{decay: scalar, read: before}",
           "rwkv7{decay: none}",
           "comba{decay: channel, read: before}",
           "gated_deltanet2{decay: 0.9, step: input}",
           "delta_product{steps: 4, decay: channel, read: before}",
           "leaky_lms{decay: scalar, step: efla}",
           "decoupled_lms{decay: 0.9, read: before}",
           "momentum_deltanet{decay: scalar, weight_decay: coupled, read: before}",
           "momentum_deltanet{weight_decay: none, step: longhorn, normalise_qk: true}",
           "preconditioned_deltanet{decay: channel, curvature_decay: 0.9, curvature_centre: 0.5}",
           "preconditioned_deltanet{decay: 0.9, step: one, read: before}",
           "low_rank_rls{rank: 2, step: input, decay: scalar, curvature_decay: 0.9}",
           "affine_projection{steps: 3, rank: 2, ridge: 0.1, decay: channel}",
           "rls{read: before, ridge: 0}",
           "weighted_rls{ridge_kind: constant, scale: 2}",
           "affine_rls{features: taylor2, decay: 0.9}",
           "affine_rls{read: before, ridge: 0}",
           "weighted_rls{features: hedgehog_exp, normalise_qk: true, read: before}",
           "weighted_rls{decay: retention, output_norm: rms, scale: rsqrt_dk}",
           "mesa{decay: none}",
           "mesa{decay: 0.99, read: before}",
           "mesa{ridge: 0}",
           "mesa{ridge_kind: relative, output_norm: rms}",
           "decay(scalar) | constant | gradient",
           "decay(0.9) x importance(input) | constant | gradient",
           "decay(channel) x importance(input) | constant | gradient",
           "hgrn{read: before, output_norm: rms}",
           "lru{read: before}",
           "decay(0.9) | affine | exact(ridge: 0.01, ridge_kind: constant)",
           "decay(scalar) | affine(features: taylor2) | exact(ridge: 0.1, ridge_kind: constant)",
           "uniform | linear | exact(ridge: 0.1, ridge_kind: relative) | reading(read: before)",
           "mesa{ridge_kind: relative, causal: false}",
           "intention{normalise_qk: true, output_norm: l2, importance: input}",
           "decay(scalar) x importance(input) | linear | conjugate_gradient(steps: 9, ridge: 0.1)",
           "batch_gd{eta_kind: constant, eta: 0.1, decay: scalar, importance: input, read: before, "
           "steps: 3}",
           "batch_gd{decay: retention, features: elu1, eta: 0.2, normalise_qk: true}",
           "batch_gd{causal: false, scale: 0.5, output_norm: rms}",
           "batch_gd{ridge: 0.1, ridge_kind: constant, decay: scalar, importance: input}",
           "batch_gd{ridge: 0.1, ridge_kind: relative, function: affine, eta: 1.5}",
           "batch_gd{eta_kind: input, steps: 3, decay: scalar, importance: input, read: before}",
           "batch_gd{momentum: true, steps: 5, decay: scalar, importance: input, read: before}",
           "quasi_newton{preconditioner: block_diagonal, block: 2, decay: scalar, read: before}",
           "quasi_newton{preconditioner: block_diagonal, block: 2, decay: 0.9, ridge: 0, eta: 0.1, "
           "eta_kind: constant}",
           "quasi_newton{decay: scalar, ridge_kind: constant, ridge: 0.1, function: affine}",
           "quasi_newton{ridge_kind: relative, importance: input, eta: 0.3}",
           "quasi_newton{preconditioner: low_rank, rank: 2}",
           "quasi_newton{preconditioner: low_rank, rank: 1, decay: scalar, ridge_kind: constant, "
           "ridge: 0.1, importance: input, read: before}",
           "quasi_newton{preconditioner: low_rank, rank: 99, decay: 0.9, ridge: 0, eta: 0.5}",
           "kalmanet{read: before, decay: retention, steps: 7}",
           "kalmanet{ridge_kind: constant, ridge: 0.5, importance: input, function: affine}",
           "kalmanet{ridge_kind: fading, decay: none, ridge: 0.5, steps: 12}",
           "kalmanet{ridge_kind: fading, steps: 5}",
           "uniform | linear | conjugate_gradient(steps: 2, ridge: 0.1)",
           "decay(scalar) | affine | conjugate_gradient(steps: 40, ridge: 0.05, ridge_kind: "
           "relative, preconditioner: low_rank, rank: 3, tolerance: 1e-6)",
           "decay(0.9) | linear | conjugate_gradient(steps: 30, ridge: 0.1, ridge_kind: constant, "
           "preconditioner: diagonal, tolerance: 1e-3)",
           "decay(scalar) | affine | conjugate_gradient(steps: 40, ridge: 0.05, ridge_kind: "
           "relative, preconditioner: block_diagonal, block: 3, tolerance: 1e-6) | reading(read: "
           "before)",
           "decay(scalar) | linear | conjugate_gradient(steps: 4, ridge: 0.5, ridge_kind: "
           "constant)",
           "importance(input) | linear(features: taylor2) | conjugate_gradient(steps: 3, ridge: 1, "
           "tolerance: 0.01) | reading(causal: false)",
           "decay(0.9) | linear | conjugate_gradient(steps: 30, ridge: 0.1, ridge_kind: constant, "
           "preconditioner: chunk_factor, tolerance: 1e-12)",
           "decay(scalar) x importance(input) | affine | conjugate_gradient(steps: 40, ridge: "
           "0.05, ridge_kind: relative, preconditioner: chunk_factor, tolerance: 1e-12) | "
           "reading(read: before)",
           "decay(0.99) | linear | conjugate_gradient(steps: 30, ridge: 0.5, preconditioner: "
           "chunk_factor, tolerance: 1e-9)",
           "uniform | linear(features: taylor2) | conjugate_gradient(steps: 9, ridge: 1, "
           "preconditioner: chunk_factor, tolerance: 0.01) | reading(causal: false)",
           "softmax{kernel: gaussian, bandwidth: 2, window: 4}",
           "nadaraya_watson{kernel: triweight, bandwidth: 3, decay: 0.9}",
           "kernel_ridge{kernel: laplace, bandwidth: 2}",
           "kernel_ridge{kernel: linear, ridge: 0.5, importance: input}",
           "kernel_ridge{kernel: gaussian, bandwidth: 2, ridge: 0.1, read: before}",
           "local_linear{kernel: gaussian, bandwidth: 4, window: 6}",
           "titans{depth: 1, mini_batch: 4}",
           "titans{depth: 3, bias: true, activation: tanh}",
           "ttt_mlp{bias: false, mini_batch: 3, row_factor: one}",
       }) {
    names.emplace_back(recipe);
  }
  return names;
}

struct Known {
  std::string name;
  Recipe recipe;
  std::string_view engine;
};

// Parsed once: a dozen tables of tests ask for these before the first test runs.
const std::vector<Known>& AllKnown() {
  static const std::vector<Known> all = [] {
    std::vector<Known> known;
    for (std::string& name : Names()) {
      const Recipe recipe = ParseRecipe(name);
      known.push_back({std::move(name), recipe, MakePlan(recipe).engine});
    }
    return known;
  }();
  return all;
}

template <class Wanted>
std::vector<std::string> Those(const Wanted& wanted) {
  std::vector<std::string> names;
  for (const Known& known : AllKnown()) {
    if (wanted(known)) names.push_back(known.name);
  }
  return names;
}

}  // namespace

std::vector<std::string> LayerRecipes() {
  return Those([](const Known&) { return true; });
}

std::vector<std::string> EngineRecipes() {
  return Those([](const Known& known) {
    // Training makes more of a rounding than its size, and fits have a condition.
    return known.engine != kDefinition && known.engine != "least_squares" &&
           known.engine != "local_polynomial" && known.engine != "network";
  });
}

std::vector<std::string> LeastSquaresRecipes() {
  return Those([](const Known& known) {
    return known.engine == "least_squares" && known.recipe.optimizer.solver == Solver::kExact;
  });
}

std::vector<std::string> IterativeRecipes() {
  return Those([](const Known& known) {
    return known.engine == "least_squares" && known.recipe.optimizer.solver != Solver::kExact;
  });
}

std::string CaseName(const ::testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
}

}  // namespace ttr::test
