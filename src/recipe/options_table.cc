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
constexpr Words kPairBiases = {"none", "input", "distance", "power", "block", "prefix"};
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

// Where a recipe has a part.
constexpr auto PartOf(Weights*) { return &Recipe::weights; }
constexpr auto PartOf(Similarity*) { return &Recipe::similarity; }
constexpr auto PartOf(Function*) { return &Recipe::function; }
constexpr auto PartOf(Optimizer*) { return &Recipe::optimizer; }
constexpr auto PartOf(Reading*) { return &Recipe::reading; }

template <class Part, class Value>
constexpr auto& MemberOf(auto& recipe, Value Part::* member) {
  return recipe.*PartOf(static_cast<Part*>(nullptr)).*member;
}

template <auto kMember>
WordOption Word(std::span<const std::string_view> words) {
  using Enum = std::remove_reference_t<decltype(MemberOf(std::declval<Recipe&>(), kMember))>;
  return {words, [](const Recipe& r) { return static_cast<int>(MemberOf(r, kMember)); },
          [](Recipe& r, int place) { MemberOf(r, kMember) = static_cast<Enum>(place); }};
}

template <auto kMember>
FlagOption Flag() {
  return {[](const Recipe& r) -> bool { return MemberOf(r, kMember); },
          [](Recipe& r, bool value) { MemberOf(r, kMember) = value; }};
}

template <auto kMember>
IntegerOption Integer(std::int64_t least, std::int64_t most) {
  return {[](const Recipe& r) -> std::int64_t { return MemberOf(r, kMember); },
          [](Recipe& r, std::int64_t value) { MemberOf(r, kMember) = value; }, least, most};
}

template <auto kMember>
NumberOption Number(double least, double most, bool open = false) {
  return {[](const Recipe& r) -> double { return MemberOf(r, kMember); },
          [](Recipe& r, double value) { MemberOf(r, kMember) = value; }, least, most, open};
}

// A constant factor belongs to its kind: any other kind takes it back to 1.
WordOrNumberOption DecayOption() {
  WordOrNumberOption option{Word<&Weights::decay>(kDecays),
                            Number<&Weights::decay_factor>(0, 1, true),
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
  return {word, Number<&Reading::scale>(-kInfinity, kInfinity), 0};
}

constexpr std::int64_t kManyTokens = std::int64_t{1} << 40;
constexpr std::int64_t kMany = std::int64_t{1} << 20;

std::vector<Option> WeightOptions() {
  return {
      {"decay", DecayOption(),
       "how an association fades with age: a constant factor, RetNet's constants, or an input"},
      {"phase", Flag<&Weights::phase>(), "the decay turns by an angle too: g exp(i phase)"},
      {"importance", Word<&Weights::importance>(kImportances),
       "the weight that an association carries from the start"},
      {"window", Integer<&Weights::window>(0, kManyTokens),
       "only so many latest associations count; 0: all"},
      {"pair_bias", Word<&Weights::pair_bias>(kPairBiases),
       "added to the logarithm of the weight that a pair has for a query: an input, or a function "
       "of their places"},
      {"extent", Number<&Weights::extent>(0, kInfinity, true),
       "pair_bias: tokens of a block or a prefix; the distance in tokens at which weights fall"},
      {"exponent", Number<&Weights::exponent>(0, kInfinity, true),
       "pair_bias: power: weights are (1 + |t - s| / extent)^-exponent"},
  };
}

std::vector<Option> SimilarityOptions() {
  return {
      {"kernel", Word<&Similarity::kernel>(kKernels), "closeness of key and query"},
      {"bandwidth", Number<&Similarity::bandwidth>(0, kInfinity),
       "the distance at which closeness ends, as the kernel's formula says"},
  };
}

std::vector<Option> FunctionOptions() {
  return {
      {"function", Word<&Function::kind>(kFunctions), "what maps keys to values"},
      {"features", Word<&Function::features>(kFeatures), "feature map of keys and queries"},
      {"nu", Integer<&Function::nu>(1, kMany), "DPFP: number of rolls"},
      {"feature_dim", Integer<&Function::feature_dim>(1, kMany),
       "random feature maps: number of directions"},
      {"max_length", Integer<&Function::max_length>(1, kManyTokens),
       "cosFormer: the length at which its weight reaches zero"},
      {"seed", Integer<&Function::seed>(0, kMaxInt),
       "of random directions, and of a network's start"},
      {"degree", Integer<&Function::degree>(1, 16), "degree of the polynomial"},
      {"depth", Integer<&Function::depth>(1, 64), "network: number of weight matrices"},
      {"expansion", Integer<&Function::expansion>(1, kMany),
       "network: hidden width in multiples of Dk"},
      {"activation", Word<&Function::activation>(kActivations),
       "network: between its weight matrices"},
      {"gated", Flag<&Function::gated>(),
       "network: half of what its hidden matrices give multiplies the other, activated half"},
      {"norm", Flag<&Function::norm>(), "network: layer norm of its output"},
      {"residual", Flag<&Function::residual>(), "network: adds its input"},
      {"bias", Flag<&Function::bias>(), "network: a bias after every matrix"},
  };
}

std::vector<Option> OptimizerOptions() {
  return {
      {"optimizer", Word<&Optimizer::solver>(kSolvers), "how the minimum is approached"},
      {"steps", Integer<&Optimizer::steps>(1, kMany), "iterations; sgd: pairs per token"},
      {"step", Word<&Optimizer::step>(kStepRules), "sgd: rule of the step size"},
      {"eta", Number<&Optimizer::eta>(0, kInfinity, true), "gradient: step size; nlms: numerator"},
      {"eta_kind", Word<&Optimizer::eta_kind>(kEtaKinds),
       "gradient: eta itself; over a bound of the largest eigenvalue, which cannot diverge; an "
       "input"},
      {"eps", Number<&Optimizer::eps>(0, kInfinity), "nlms: added to |k|^2; adapt: to the root"},
      {"erase", Word<&Optimizer::erase>(kErases), "sgd: the key along which it erases"},
      {"momentum", Flag<&Optimizer::momentum>(), "sgd, gradient: momentum, an input"},
      {"weight_decay", Word<&Optimizer::weight_decay>(kWeightDecays),
       "sgd: shrinking of the memory, an input; coupled: times the step size"},
      {"loss", Word<&Optimizer::loss>(kLosses),
       "network: what its gradients are of, 1/2 |v - m(k)|^2 or -v . m(k)"},
      {"adapt", Word<&Optimizer::adapt>(kAdapts),
       "network: steps divided, weight by weight, by the root of squared gradients"},
      {"mini_batch", Integer<&Optimizer::mini_batch>(1, kMany),
       "network: gradients are taken at the weights where so many tokens began"},
      {"row_factor", Word<&Optimizer::row_factor>(kRowFactors),
       "network: factor of reading position i in its mini-batch, 1 or 1/(i+1) + row_bias"},
      {"preconditioner", Word<&Optimizer::preconditioner>(kPreconditioners),
       "multiplies the gradient: an approximate inverse of the curvature"},
      {"block", Integer<&Optimizer::block>(1, kMany),
       "size of the blocks of the block-diagonal preconditioner"},
      {"rank", Integer<&Optimizer::rank>(1, kMany),
       "eigenpairs of the low-rank preconditioner, of sgd those of its curvature"},
      {"curvature_decay", Number<&Optimizer::curvature_decay>(0, 1),
       "sgd with preconditioner: forgetting of the curvature; adam: of squared gradients"},
      {"curvature_centre", Number<&Optimizer::curvature_centre>(-kInfinity, kInfinity),
       "sgd with preconditioner: log-curvature at which it multiplies by 1"},
      {"ridge", Number<&Optimizer::ridge>(0, kInfinity),
       "penalty on the squared size of the map; 0: minimum norm"},
      {"ridge_kind", Word<&Optimizer::ridge_kind>(kRidgeKinds),
       "the ridge fades with the associations, is constant, or grows with them"},
      {"factor", Word<&Optimizer::factor>(kFactors),
       "exact, linear: of the Gram matrix of the keys, or of the keys themselves, which has all "
       "their digits"},
      {"budget", Integer<&Optimizer::budget>(0, kMany),
       "kernel: keys whose span it regresses in, at most; 0: it keeps all pairs"},
      {"tolerance", Number<&Optimizer::tolerance>(0, kInfinity),
       "conjugate gradient: relative residual at which it stops; budget: share of a key outside of "
       "the span that is neglected"},
  };
}

std::vector<Option> ReadingOptions() {
  return {
      {"read", Word<&Reading::read>(kReads),
       "after or before the write; network: as its mini-batch begins or ends"},
      {"bonus", Flag<&Reading::bonus>(),
       "read before: adds the current token with its own weight, an input"},
      {"normalise_sum", Word<&Reading::normalise_sum>(kNormaliseSums),
       "divides by the sum of weights; stabilised: as mLSTM"},
      {"normalise_qk", Flag<&Reading::normalise_qk>(), "queries and keys to unit length"},
      {"output_norm", Word<&Reading::output_norm>(kOutputNorms),
       "output to unit length or unit mean square"},
      {"scale", ScaleOption(), "multiplies q; rsqrt_dk: Dk^-1/2"},
      {"correction", Number<&Reading::correction>(-kInfinity, kInfinity),
       "query read is q - correction * erase_key"},
      {"causal", Flag<&Reading::causal>(), "false: every query reads the whole sequence"},
  };
}

}  // namespace

std::span<const Option> Options() {
  static const std::vector<Option> table = [] {
    std::vector<Option> all;
    const auto add = [&](std::string_view part, const std::vector<Option>& options) {
      for (const Option& option : options) all.emplace_back(option).part = part;
    };
    add("weights", WeightOptions());
    add("similarity", SimilarityOptions());
    add("function", FunctionOptions());
    add("optimizer", OptimizerOptions());
    add("reading", ReadingOptions());
    return all;
  }();
  return table;
}

}  // namespace ttr
