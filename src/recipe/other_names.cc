#include "src/recipe/other_names.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "ttr/zoo.h"

namespace ttr {
namespace {

constexpr std::size_t kMostMeant = 4;
constexpr std::size_t kLeastLetters = 2;
constexpr std::size_t kLeastLettersOfAWord = 3;  // "in" is no name, though In-Place TTT has it

// Names that no title has. One that says several layers is in several lines.
constexpr OtherName kOtherNames[] = {
    {"attention, self attention, transformer, flash attention", "softmax", "softmax attention"},
    {"modern hopfield, hopfield, dense associative memory", "softmax",
     "one read of a modern Hopfield network is softmax attention"},
    {"qk norm, query key normalisation, query key normalization", "softmax{normalise_qk: true}",
     "softmax attention of unit queries and keys"},
    {"sliding window, sliding window attention, swa, local attention", "window_softmax",
     "softmax over the latest pairs"},
    {"alibi", "softmax{pair_bias: distance}", "a slope of 1 / extent"},
    {"fox, forgetting transformer, forgetting attention", "decayed_softmax",
     "softmax attention with a decay"},
    {"skyformer, soft", "kernel_smoother{kernel: gaussian, bandwidth: 1}",
     "their kernel; not its approximation"},
    {"hopfield, hebb, hebbian, kohonen, correlation matrix memory, outer product memory",
     "linear_attention", "a sum of outer products"},
    {"fast weights, fast weight programmer, fast weight programmers, fwp", "deltanet",
     "what a key held is rewritten"},
    {"fast weights, fast weight programmer, fast weight programmers, fwp", "linear_attention",
     "outer products are added"},
    {"delta, delta rule, widrow hoff, adaline, sgd, least mean squares", "deltanet",
     "a step of gradient descent a pair"},
    {"normalized lms, normalised least mean squares, normalized least mean squares, "
     "projection method",
     "nlms", "Kaczmarz's step: the pair that is written is recalled"},
    {"linear transformer, linear transformers",
     "linear_attention{features: elu1, normalise_sum: sum}", "as its paper divides"},
    {"transnormer", "linear_attention{output_norm: rms}", "linear attention, normalised after it"},
    {"mamba 3", "mamba2", "of two rows a token; docs/layers.md has how"},
    {"log linear, log linear attention", "mamba2", "one of its log T memories"},
    {"oja, oja rule, gated oja, gated oja rule", "kda",
     "from v to k; ttr.torch.functional.chunk_gated_oja_rule is all of it"},
    {"sdm, sparse delta memory", "gated_deltanet", "of a sparse key"},
    {"ska, spectral koopman attention", "rls", "of each key on the key before it, read once"},
    {"deltaformer", "kernel_ridge", "where its steps would arrive"},
    {"memory caching", "linear_attention",
     "or any other: ttr.torch.regress_at keeps states, ttr.torch.retrieve reads them"},
    {"gsa, gated slot attention, abc", "gla",
     "its second pass; ttr.torch.functional.chunk_gsa is all of it"},
    {"path, path attention", "softmax", "without its reflections of keys"},
    {"palimpsa, kla, kalman linear attention", "mamba", "a decay an entry, without precisions"},
    {"kdn, kalman delta, kalman delta network, kalman delta networks", "preconditioned_kda",
     "a curvature a channel"},
    {"kdn, kalman delta, kalman delta network, kalman delta networks", "low_rank_rls",
     "the largest of the covariance"},
    {"eda", "erase_then_delta", "Erase-then-Delta attention"},
    {"apa, affine projection algorithm, block kaczmarz", "affine_projection",
     "all pairs of a window are recalled at once"},
    {"gated delta product", "delta_product", "DeltaProduct with a decay"},
    {"retentive network", "retnet", "retention"},
    {"lightning attention", "retnet", "a constant decay a head"},
    {"ssm, state space model, mamba 1", "mamba", "a decay an entry"},
    {"ssm, state space model", "mamba2", "a decay a head"},
    {"finch", "rwkv6", "RWKV-6"},
    {"eagle, rwkv 5", "rwkv6", "of a constant decay"},
    {"goose", "rwkv7", "RWKV-7"},
    {"hawk", "rg_lru", "the recurrence of Griffin without its attention"},
    {"kimi linear", "kda", "Kimi delta attention"},
    {"gdn", "gated_deltanet", "Gated DeltaNet"},
    {"gdn 2", "gated_deltanet2", "Gated DeltaNet-2"},
    {"adagrad", "adagrad_lms", "on a linear memory"},
    {"adagrad", "titans{adapt: adagrad, momentum: false, eps: 1e-8}", "on a network"},
    {"adam", "adam_lms", "on a linear memory"},
    {"adam", "titans{adapt: adam, eps: 1e-8}", "on a network"},
    {"ols, least squares, linear regression, optimal linear associative memory, pseudoinverse",
     "rls{ridge: 0}", "the minimum-norm solution"},
    {"ridge regression", "rls", "least squares with a ridge"},
    {"mesa layer", "rls", "without forgetting"},
    {"mesa layer", "mesa", "with decays and a ridge that stays"},
    {"quasi newton memory, limited memory, bfgs, l bfgs", "low_rank_rls",
     "steps a pair, divided by the longest directions of the keys"},
    {"newtons method", "quasi_newton", "steps with an approximate inverse"},
    {"newtons method", "rls{ridge: 0}", "one whole step arrives"},
    {"cg, conjugate gradient, conjugate gradients", "rls{optimizer: conjugate_gradient, steps: 8}",
     "of linear memories; kernel_gd takes that option, too"},
    {"kernel regression", "kernel_ridge{ridge: 0}", "least squares in a kernel's space"},
    {"kernel regression", "nadaraya_watson", "a weighted mean"},
    {"krr", "kernel_ridge", "kernel ridge regression"},
    {"krls", "kernel_rls", "with a budget of keys"},
    {"gaussian process, gp, kriging", "kernel_ridge{kernel: gaussian, bandwidth: 1}",
     "its posterior mean"},
    {"local linear regression, lla, loess, lowess", "local_linear", "a fit around every query"},
    {"power attention, symmetric power", "linear_attention{features: power2}", "(q . k)^2"},
    {"random feature attention, random fourier features, rff", "linear_attention{features: rfa}",
     "random sines and cosines"},
    {"hedgehog", "linear_attention{features: hedgehog_exp}", "exponentials"},
    {"hedgehog", "linear_attention{features: hedgehog_softmax}", "softmax"},
    {"test time training", "ttt_linear", "a matrix and a norm"},
    {"test time training", "ttt_mlp", "a hidden layer"},
};

bool IsCapital(char c) { return c >= 'A' && c <= 'Z'; }
bool IsLetterOrDigit(char c) {
  return IsCapital(c) || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

// Small letters and digits alone: "TTT-Linear" is "tttlinear", "delta net" is "DeltaNet".
std::string Plain(std::string_view text) {
  std::string plain;
  for (const char c : text) {
    if (IsLetterOrDigit(c)) plain += IsCapital(c) ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return plain;
}

// The parts of `text` between any of `separators`.
std::vector<std::string_view> Parts(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find_first_of(separators);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

// Does a list or a title, "RG-LRU (Griffin)", have this name?
bool Lists(std::string_view title, std::string_view plain) {
  for (const std::string_view part : Parts(title, ",;:()")) {
    if (Plain(part) == plain) return true;
  }
  return false;
}

// Is a word a proper name in a title, "TTT" of "TTT-Linear"? Other words say what a layer does.
bool Holds(std::string_view title, std::string_view plain) {
  for (const std::string_view word : Parts(title, " ,;:()-")) {
    if (!word.empty() && IsCapital(word.front()) && Plain(word) == plain) return true;
  }
  return false;
}

std::string WithReason(std::string recipe, std::string_view reason) {
  return std::move(recipe) + " (" + std::string(reason) + ")";
}

template <class Says>
std::vector<std::string> MeantByTitle(std::string_view plain, Says says) {
  std::vector<std::string> meant;
  for (const ZooEntry& entry : Zoo()) {
    if (!says(entry.title, plain)) continue;
    meant.push_back(WithReason(std::string(entry.name), entry.title));
  }
  for (const FeatureEntry& feature : FeatureMaps()) {
    if (!says(feature.source, plain) && Plain(feature.name) != plain) continue;
    meant.push_back(WithReason("linear_attention{features: " + std::string(feature.name) + "}",
                               feature.source));
  }
  return meant;
}

std::vector<std::string> Meant(std::string_view plain) {
  std::vector<std::string> meant;
  for (const OtherName& other : kOtherNames) {
    if (!Lists(other.names, plain)) continue;
    meant.push_back(WithReason(std::string(other.recipe), other.reason));
  }
  if (meant.empty()) meant = MeantByTitle(plain, Lists);
  if (meant.empty() && plain.size() >= kLeastLettersOfAWord) meant = MeantByTitle(plain, Holds);
  return meant;
}

}  // namespace

std::span<const OtherName> OtherNames() { return kOtherNames; }

std::string MeantBy(std::string_view name) {
  const std::string plain = Plain(name);
  if (plain.size() < kLeastLetters) return "";
  for (const ZooEntry& entry : Zoo()) {  // "GLA", "Gated-DeltaNet2"
    if (Plain(entry.name) == plain) return std::string(entry.name);
  }
  const std::vector<std::string> meant = Meant(plain);
  if (meant.size() > kMostMeant) return {};
  std::string text;
  for (const std::string& one : meant) text += (text.empty() ? "" : ", or ") + one;
  return text;
}

}  // namespace ttr
