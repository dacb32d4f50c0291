// The table: every option of a recipe, where it lives, its values and its meaning.
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "src/recipe/options.h"

namespace ttr {
namespace {

using Words = std::string_view[];

// Each list in the order of its enumerators.
constexpr Words kDecays = {"none", "constant", "retention", "scalar", "channel", "matrix"};
constexpr Words kImportances = {"none", "input", "log", "complement", "root_complement"};
constexpr Words kKernels = {"none",      "exponential",      "gaussian",
                            "laplace",   "epanechnikov",     "biweight",
                            "triweight", "inverse_distance", "linear"};
constexpr Words kFunctions = {"constant", "linear", "affine", "polynomial", "kernel", "network"};
constexpr Words kFeatures = {"none",    "elu1",    "relu",         "cosformer",
                             "dpfp",    "t2r",     "hedgehog_exp", "hedgehog_softmax",
                             "taylor2", "rebased", "rfa",          "favor",
                             "dijiang", "power2"};
constexpr Words kActivations = {"silu", "gelu", "relu", "tanh"};
constexpr Words kSolvers = {"gradient", "sgd", "exact", "conjugate_gradient", "chebyshev"};
constexpr Words kStepRules = {"input", "nlms", "longhorn", "efla", "one"};
constexpr Words kEtaKinds = {"constant", "relative", "input"};
constexpr Words kErases = {"key", "erase_key", "gated_key", "undecayed"};
constexpr Words kWeightDecays = {"none", "coupled", "decoupled"};
constexpr Words kLosses = {"squared", "dot_product"};
constexpr Words kAdapts = {"none", "adagrad", "adam"};
constexpr Words kRowFactors = {"one", "inverse"};
constexpr Words kPreconditioners = {"none", "diagonal", "block_diagonal", "low_rank",
                                    "chunk_factor"};
constexpr Words kRidgeKinds = {"fading", "constant", "relative"};
constexpr Words kFactors = {"cholesky", "qr"};
constexpr Words kReads = {"after", "before", "batch_start", "batch_end"};
constexpr Words kNormaliseSums = {"none", "sum", "stabilised"};
constexpr Words kOutputNorms = {"none", "l2", "rms"};
constexpr Words kScales = {"number", "rsqrt_dk"};

template <auto kPart, auto kMember>
constexpr auto& Member(auto& recipe) {
  return (recipe.*kPart).*kMember;
}

template <auto kPart, auto kMember>
WordOption Word(std::span<const std::string_view> words) {
  using Enum = std::remove_reference_t<decltype(Member<kPart, kMember>(std::declval<Recipe&>()))>;
  return {words, [](const Recipe& r) { return static_cast<int>(Member<kPart, kMember>(r)); },
          [](Recipe& r, int place) { Member<kPart, kMember>(r) = static_cast<Enum>(place); }};
}

template <auto kPart, auto kMember>
FlagOption Flag() {
  return {[](const Recipe& r) -> bool { return Member<kPart, kMember>(r); },
          [](Recipe& r, bool value) { Member<kPart, kMember>(r) = value; }};
}

template <auto kPart, auto kMember>
IntegerOption Integer(std::int64_t least, std::int64_t most) {
  return {[](const Recipe& r) -> std::int64_t { return Member<kPart, kMember>(r); },
          [](Recipe& r, std::int64_t value) { Member<kPart, kMember>(r) = value; }, least, most};
}

template <auto kPart, auto kMember>
NumberOption Number(double least, double most, bool open = false) {
  return {[](const Recipe& r) -> double { return Member<kPart, kMember>(r); },
          [](Recipe& r, double value) { Member<kPart, kMember>(r) = value; }, least, most, open};
}

// A constant factor belongs to its kind: any other kind takes it back to 1.
WordOrNumberOption DecayOption() {
  WordOrNumberOption option{Word<&Recipe::weights, &Weights::decay>(kDecays),
                            Number<&Recipe::weights, &Weights::decay_factor>(0, 1, true),
                            static_cast<int>(Decay::kConstant)};
  option.word.set = [](Recipe& r, int place) {
    r.weights.decay = static_cast<Decay>(place);
    r.weights.decay_factor = 1;
  };
  return option;
}

WordOrNumberOption ScaleOption() {
  const WordOption word{kScales, [](const Recipe& r) { return r.reading.scale_rsqrt ? 1 : 0; },
                        [](Recipe& r, int place) {
                          r.reading.scale_rsqrt = place == 1;
                          r.reading.scale = 1;
                        }};
  return {word, Number<&Recipe::reading, &Reading::scale>(-kInfinity, kInfinity), 0};
}

constexpr std::int64_t kManyTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMany = std::int64_t{1} << 20;

}  // namespace

std::span<const Option> Options() {
  constexpr auto kW = &Recipe::weights;
  constexpr auto kS = &Recipe::similarity;
  constexpr auto kF = &Recipe::function;
  constexpr auto kO = &Recipe::optimizer;
  constexpr auto kR = &Recipe::reading;
  static const std::vector<Option> table = {
      {"decay", "weights", DecayOption(),
       "how an association fades with age: a constant factor, RetNet's constants, or an input"},
      {"phase", "weights", Flag<kW, &Weights::phase>(),
       "the decay turns by an angle too: g exp(i phase)"},
      {"importance", "weights", Word<kW, &Weights::importance>(kImportances),
       "the weight that an association carries from the start"},
      {"window", "weights", Integer<kW, &Weights::window>(0, kManyTokens),
       "only so many latest associations count; 0: all"},

      {"kernel", "similarity", Word<kS, &Similarity::kernel>(kKernels),
       "closeness of key and query"},
      {"bandwidth", "similarity", Number<kS, &Similarity::bandwidth>(0, kInfinity),
       "the distance at which closeness ends, as the kernel's formula says"},

      {"function", "function", Word<kF, &Function::kind>(kFunctions), "what maps keys to values"},
      {"features", "function", Word<kF, &Function::features>(kFeatures),
       "feature map of keys and queries"},
      {"nu", "function", Integer<kF, &Function::nu>(1, kMany), "DPFP: number of rolls"},
      {"feature_dim", "function", Integer<kF, &Function::feature_dim>(1, kMany),
       "random feature maps: number of directions"},
      {"max_length", "function", Integer<kF, &Function::max_length>(1, kManyTokens),
       "cosFormer: the length at which its weight reaches zero"},
      {"seed", "function", Integer<kF, &Function::seed>(0, kMaxInt),
       "of random directions, and of a network's start"},
      {"degree", "function", Integer<kF, &Function::degree>(1, 16), "degree of the polynomial"},
      {"depth", "function", Integer<kF, &Function::depth>(1, 64),
       "network: number of weight matrices"},
      {"expansion", "function", Integer<kF, &Function::expansion>(1, kMany),
       "network: hidden width in multiples of Dk"},
      {"activation", "function", Word<kF, &Function::activation>(kActivations),
       "network: between its weight matrices"},
      {"gated", "function", Flag<kF, &Function::gated>(),
       "network: half of what its hidden matrices give multiplies the other, activated half"},
      {"norm", "function", Flag<kF, &Function::norm>(), "network: layer norm of its output"},
      {"residual", "function", Flag<kF, &Function::residual>(), "network: adds its input"},
      {"bias", "function", Flag<kF, &Function::bias>(), "network: a bias after every matrix"},

      {"optimizer", "optimizer", Word<kO, &Optimizer::solver>(kSolvers),
       "how the minimum is approached"},
      {"steps", "optimizer", Integer<kO, &Optimizer::steps>(1, kMany),
       "iterations; sgd: pairs per token"},
      {"step", "optimizer", Word<kO, &Optimizer::step>(kStepRules), "sgd: rule of the step size"},
      {"eta", "optimizer", Number<kO, &Optimizer::eta>(0, kInfinity, true),
       "gradient: step size; nlms: numerator"},
      {"eta_kind", "optimizer", Word<kO, &Optimizer::eta_kind>(kEtaKinds),
       "gradient: eta itself; over a bound of the largest eigenvalue, which cannot diverge; an "
       "input"},
      {"eps", "optimizer", Number<kO, &Optimizer::eps>(0, kInfinity),
       "nlms: added to |k|^2; adapt: to the root"},
      {"erase", "optimizer", Word<kO, &Optimizer::erase>(kErases),
       "sgd: the key along which it erases"},
      {"momentum", "optimizer", Flag<kO, &Optimizer::momentum>(),
       "sgd, gradient: momentum, an input"},
      {"weight_decay", "optimizer", Word<kO, &Optimizer::weight_decay>(kWeightDecays),
       "sgd: shrinking of the memory, an input; coupled: times the step size"},
      {"loss", "optimizer", Word<kO, &Optimizer::loss>(kLosses),
       "network: what its gradients are of, 1/2 |v - m(k)|^2 or -v . m(k)"},
      {"adapt", "optimizer", Word<kO, &Optimizer::adapt>(kAdapts),
       "network: steps divided, weight by weight, by the root of squared gradients"},
      {"mini_batch", "optimizer", Integer<kO, &Optimizer::mini_batch>(1, kMany),
       "network: gradients are taken at the weights where so many tokens began"},
      {"row_factor", "optimizer", Word<kO, &Optimizer::row_factor>(kRowFactors),
       "network: factor of reading position i in its mini-batch, 1 or 1/(i+1) + row_bias"},
      {"preconditioner", "optimizer", Word<kO, &Optimizer::preconditioner>(kPreconditioners),
       "multiplies the gradient: an approximate inverse of the curvature"},
      {"block", "optimizer", Integer<kO, &Optimizer::block>(1, kMany),
       "size of the blocks of the block-diagonal preconditioner"},
      {"rank", "optimizer", Integer<kO, &Optimizer::rank>(1, kMany),
       "eigenpairs of the low-rank preconditioner"},
      {"curvature_decay", "optimizer", Number<kO, &Optimizer::curvature_decay>(0, 1),
       "sgd with preconditioner: forgetting of the curvature; adam: of squared gradients"},
      {"curvature_centre", "optimizer",
       Number<kO, &Optimizer::curvature_centre>(-kInfinity, kInfinity),
       "sgd with preconditioner: log-curvature at which it multiplies by 1"},
      {"ridge", "optimizer", Number<kO, &Optimizer::ridge>(0, kInfinity),
       "penalty on the squared size of the map; 0: minimum norm"},
      {"ridge_kind", "optimizer", Word<kO, &Optimizer::ridge_kind>(kRidgeKinds),
       "the ridge fades with the associations, is constant, or grows with them"},
      {"factor", "optimizer", Word<kO, &Optimizer::factor>(kFactors),
       "exact, linear: of the Gram matrix of the keys, or of the keys themselves, which has all "
       "their digits"},
      {"budget", "optimizer", Integer<kO, &Optimizer::budget>(0, kMany),
       "kernel: keys whose span it regresses in, at most; 0: it keeps all pairs"},
      {"tolerance", "optimizer", Number<kO, &Optimizer::tolerance>(0, kInfinity),
       "conjugate gradient: relative residual at which it stops; budget: share of a key outside of "
       "the span that is neglected"},

      {"read", "reading", Word<kR, &Reading::read>(kReads),
       "after or before the write; network: as its mini-batch begins or ends"},
      {"bonus", "reading", Flag<kR, &Reading::bonus>(),
       "read before: adds the current token with its own weight, an input"},
      {"normalise_sum", "reading", Word<kR, &Reading::normalise_sum>(kNormaliseSums),
       "divides by the sum of weights; stabilised: as mLSTM"},
      {"normalise_qk", "reading", Flag<kR, &Reading::normalise_qk>(),
       "queries and keys to unit length"},
      {"output_norm", "reading", Word<kR, &Reading::output_norm>(kOutputNorms),
       "output to unit length or unit mean square"},
      {"scale", "reading", ScaleOption(), "multiplies q; rsqrt_dk: Dk^-1/2"},
      {"correction", "reading", Number<kR, &Reading::correction>(-kInfinity, kInfinity),
       "query read is q - correction * erase_key"},
      {"causal", "reading", Flag<kR, &Reading::causal>(),
       "false: every query reads the whole sequence"},
  };
  return table;
}

}  // namespace ttr
