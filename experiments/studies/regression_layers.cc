// Which layers take part in online regression, and what is chosen for each.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "experiments/report/table.h"
#include "experiments/studies/online_regression.h"

namespace ttr::experiments {
namespace {

using report::ExactReal;

struct Line {
  const char* label;
  const char* recipe;  // {scale} and {ridge} are filled in
  int panel = 0;
  double step = 0;  // 0: the option's
};

// A memory that only adds (the Hebbian family) answers with vectors of any length: as the paper
// does for linear attention, its output is taken to unit length. Delta rules read unit keys, for
// which the step size has a scale.
constexpr Line kOthers[] = {
    {"linear attention, 1 + ELU", "linear_attention{features: elu1, normalise_sum: sum}"},
    {"RetNet", "retnet{output_norm: l2}"},
    {"Mamba-2, simple GLA", "mamba2{output_norm: l2}", 2},
    {"GLA", "gla{output_norm: l2}"},
    {"GateLoop", "gateloop{output_norm: l2}"},
    {"Mamba", "mamba{output_norm: l2}"},
    {"RWKV-6", "rwkv6{output_norm: l2}"},
    {"mLSTM", "mlstm"},
    {"LRU", "lru{output_norm: l2}"},
    {"HGRN (mean of the past)", "hgrn", 2},
    {"RG-LRU", "rg_lru{output_norm: l2}"},
    {"DeltaNet", "deltanet{normalise_qk: true}", 2},
    {"NLMS", "nlms"},
    {"Longhorn", "longhorn{normalise_qk: true}"},
    {"EFLA", "efla{normalise_qk: true}"},
    {"leaky LMS", "leaky_lms{normalise_qk: true}"},
    {"LMS, decoupled decay", "decoupled_lms{normalise_qk: true}"},
    {"Gated DeltaNet", "gated_deltanet{normalise_qk: true}", 2},
    {"KDA", "kda{normalise_qk: true}"},
    {"Comba", "comba{normalise_qk: true}"},
    {"Gated DeltaNet-2", "gated_deltanet2{normalise_qk: true}"},
    {"RWKV-7", "rwkv7{normalise_qk: true}"},
    {"preconditioned DeltaNet", "preconditioned_deltanet{normalise_qk: true}", 0, .1},
    {"preconditioned Gated DeltaNet", "preconditioned_gated_deltanet{normalise_qk: true}", 0, .1},
    {"preconditioned KDA", "preconditioned_kda{normalise_qk: true}", 0, .1},
    {"low-rank RLS", "low_rank_rls{normalise_qk: true}"},
    {"LMS by Adagrad", "adagrad_lms{normalise_qk: true}", 0, .1},
    {"LMS by Adam", "adam_lms{normalise_qk: true}", 0, .01},
    {"momentum DeltaNet", "momentum_deltanet{normalise_qk: true}", 0, .5},
    {"weighted RLS, fading ridge", "weighted_rls{ridge: {ridge}}"},
    {"MesaNet", "mesa"},
    {"Gated KalmaNet", "kalmanet"},
    {"gradient descent, 8 steps", "batch_gd"},
    {"quasi-Newton", "quasi_newton"},
    {"quasi-Newton, low rank", "quasi_newton{preconditioner: low_rank, ridge: {ridge}}"},
    {"unnormalised softmax",
     "kernel_smoother{scale: {scale}, normalise_qk: true, output_norm: l2}"},
    {"Nadaraya-Watson, Laplace",
     "nadaraya_watson{kernel: laplace, bandwidth: 0.1, normalise_qk: true}"},
    {"Nadaraya-Watson, compact",
     "nadaraya_watson{kernel: epanechnikov, bandwidth: 1, normalise_qk: true}"},
    {"the same, biweight", "nadaraya_watson{kernel: biweight, bandwidth: 1, normalise_qk: true}"},
    {"the same, triweight", "nadaraya_watson{kernel: triweight, bandwidth: 1, normalise_qk: true}"},
    {"inverse distance", "softmax{kernel: inverse_distance, normalise_qk: true}"},
    {"kernel ridge regression", "kernel_ridge{scale: {scale}, normalise_qk: true, ridge: {ridge}}"},
    {"RLS of 64 pairs", "window_rls{ridge: {ridge}}"},
    {"kernel RLS, 64 keys",
     "kernel_rls{scale: {scale}, normalise_qk: true, ridge: {ridge}, budget: 64}"},
    {"sliding-window softmax", "window_softmax{scale: {scale}, normalise_qk: true, window: 16}"},
    {"decayed softmax", "decayed_softmax{scale: {scale}, normalise_qk: true}", 2},
    {"affine RLS", "affine_rls{ridge: {ridge}}"},
    {"RLS on 1 + ELU", "feature_rls{ridge: {ridge}}"},
    {"TTT-Linear, no norm", "ttt_linear{norm: false, row_factor: one, normalise_qk: true}", 0, .05},
    {"TTT-MLP, no norm", "ttt_mlp{norm: false, row_factor: one, normalise_qk: true}", 0, .01},
    {"Titans", "titans{normalise_qk: true}", 0, .1},
};

std::string Filled(std::string text, const std::string& name, double value) {
  const std::string place = "{" + name + "}";
  if (const auto at = text.find(place); at != std::string::npos) {
    text.replace(at, place.size(), ExactReal(value));
  }
  return text;
}

// A kernel of the table of kernels and degrees, at some width.
struct LocalKernel {
  const char* label;
  const char* words;  // {scale} is filled in
};
constexpr LocalKernel kLocalKernels[] = {
    {"exponential", "scale: {scale}"},
    {"Gaussian, 0.1", "kernel: gaussian, bandwidth: 0.1"},
    {"Gaussian, 0.4", "kernel: gaussian, bandwidth: 0.4"},
    {"Gaussian, 1.6", "kernel: gaussian, bandwidth: 1.6"},
    {"Laplace, 0.1", "kernel: laplace, bandwidth: 0.1"},
    {"inverse distance", "kernel: inverse_distance"},
    {"Epanechnikov, 1", "kernel: epanechnikov, bandwidth: 1"},
    {"biweight, 1", "kernel: biweight, bandwidth: 1"},
    {"triweight, 1", "kernel: triweight, bandwidth: 1"},
};

}  // namespace

std::string RecipeText(const RegressionLayer& layer) {
  if (layer.recipe.empty()) return "y_t = v_t";
  if (layer.scales.empty()) return layer.recipe;
  const auto [least, most] = std::minmax_element(layer.scales.begin(), layer.scales.end());
  return fmt::format("{}, one of {} scales from {} to {}", layer.recipe, layer.scales.size(),
                     ExactReal(*least), ExactReal(*most));
}

std::vector<RegressionLayer> RegressionLayers(const OnlineRegressionOptions& o) {
  const ConstantGates gates{
      .decay = o.decay, .step = o.step, .momentum = .5, .weight_decay = 1 - o.decay};
  const std::string local =
      fmt::format("scale: {}, normalise_qk: {}", ExactReal(o.scale), o.unit_keys);
  std::vector<RegressionLayer> layers = {
      {"naive forecaster", "", gates, 1},
      {"linear attention", "linear_attention{output_norm: l2}", gates, 1},
      {"RLS, ridge " + ExactReal(o.large_ridge),
       fmt::format("rls{{ridge: {}}}", ExactReal(o.large_ridge)), gates, 1},
      {"RLS, ridge " + ExactReal(o.small_ridge),
       fmt::format("rls{{ridge: {}}}", ExactReal(o.small_ridge)), gates, 1},
      {"softmax, p = 0", "softmax{" + local + "}", gates, 1},
      {"local linear, p = 1",
       fmt::format("local_linear{{{}, ridge: {}}}", local, ExactReal(o.local_ridge)), gates, 1},
      // The ridge of weighted least squares fades with the associations: with .95 it is gone after
      // a hundred tokens, and twenty recent keys do not span 64 channels. A constant ridge stays.
      {"weighted RLS",
       fmt::format("weighted_rls{{ridge: {}, ridge_kind: constant}}", ExactReal(o.large_ridge)),
       gates, 2},
  };
  // Eq. 10, 51 and 53 as they stand: no ridge, unit keys, 1 / sqrt(Dk). Linear attention is so
  // above.
  layers[1].literal = true;
  for (const auto& [label, recipe] :
       {std::pair{"RLS, no ridge", "rls{ridge: 0}"},
        std::pair{"softmax, p = 0, 1/sqrt(d)", "softmax{normalise_qk: true}"},
        std::pair{"local linear, p = 1, 1/sqrt(d), no ridge",
                  "local_linear{normalise_qk: true, ridge: 0}"}}) {
    layers.push_back({.label = label, .recipe = recipe, .gates = gates, .literal = true});
  }
  if (o.others) {
    for (const char* norm : {"rms", "none"}) {
      layers.push_back({fmt::format("linear attention, output norm {}", norm),
                        fmt::format("linear_attention{{output_norm: {}}}", norm), gates});
    }
    const std::vector<double> scales = {16, 4, 64, 1};
    layers.push_back({"softmax, scale chosen", "softmax{normalise_qk: true}", gates, 2, scales});
    layers.push_back(
        {"local linear, scale chosen",
         fmt::format("local_linear{{normalise_qk: true, ridge: {}}}", ExactReal(o.local_ridge)),
         gates, 2, scales});
    for (const Line& line : kOthers) {
      std::string recipe = Filled(line.recipe, "scale", o.scale);
      recipe = Filled(recipe, "ridge", o.large_ridge);
      // Below 2 / lambda_max: unit keys have lambda_max <= T.
      ConstantGates own = gates;
      if (line.step != 0) own.step = line.step;
      layers.push_back({line.label, recipe, own, line.panel});
    }
  }
  for (const std::string& recipe : o.recipes) layers.push_back({recipe, recipe, gates, 2});
  return layers;
}

std::vector<RegressionLayer> LocalFits(const OnlineRegressionOptions& o) {
  constexpr const char* kNames[] = {"softmax", "local_linear", "local_quadratic", "local_cubic"};
  std::vector<RegressionLayer> layers;
  for (const LocalKernel& kernel : kLocalKernels) {
    // Degrees 2 and 3 take longest; one kernel shows what they do.
    const int most = &kernel == kLocalKernels ? 3 : 1;
    for (int degree = 0; degree <= most; ++degree) {
      const std::string ridge = degree > 0 ? ", ridge: " + ExactReal(o.local_ridge) : "";
      layers.push_back({fmt::format("{}, p = {}", kernel.label, degree),
                        fmt::format("{}{{normalise_qk: true, {}{}}}", kNames[degree],
                                    Filled(kernel.words, "scale", o.scale), ridge)});
    }
  }
  return layers;
}

std::vector<LeftOut> LeftOutOfRegression() {
  return {
      {"hgrn2", "its key is its gate, which would have to be learned"},
      {"delta_product", "takes several pairs a token"},
      {"erase_then_delta", "takes two pairs a token"},
      {"affine_projection", "takes a window of pairs a token"},
      {"kernel_gd", "a few steps towards kernel ridge regression, which no engine runs"},
      {"intention", "reads the whole sequence, the future included"},
      {"local_quadratic", "2145 monomials for 64 channels: in the table of kernels and degrees"},
      {"local_cubic", "47905 monomials for 64 channels: in the table of kernels and degrees"},
      {"lact", "reads what it began with until 2048 tokens are over"},
      {"in_place_ttt", "reads what it began with until 1024 tokens are over"},
  };
}

}  // namespace ttr::experiments
