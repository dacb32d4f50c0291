/// A sequence layer as data: the three choices of test-time regression, plus how it is read.
///
/// At every token a layer *memorizes* the pairs (k_i, v_i) seen so far by minimising, at least
/// approximately,
///
///     1/2 sum_i gamma_i^(t) |v_i - m(k_i)|^2
///
/// and *retrieves* y_t = m_t(q_t). A recipe states the weights gamma, the function class of m, and
/// the optimizer that approaches the minimum; nothing else distinguishes one layer from another.
/// Source: Wang, Shi, Fox, "Test-time regression" (2025), section 3.
///
/// A recipe prints as one line and parses back to the same value:
///
///     decay(scalar) | linear | sgd(step: longhorn)
///     uniform | linear(features: elu1) | gradient | reading(normalise_sum: sum)
///     similarity(gaussian, bandwidth: 16) | polynomial(degree: 1) | exact(ridge: 0.01)
///
/// (weights | function class | optimizer [| reading]; what is not said has its default.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ttr {

/// How an association fades with age: gamma_i^(t) = prod_{i<j<=t} g_j.
enum class Decay : std::uint8_t {
  kNone,       ///< all ages weigh the same
  kConstant,   ///< g_t = decay_factor, from the recipe
  kRetention,  ///< g_h = 1 - 2^(-5-h) for memory h = 0, 1, ... (RetNet)
  kScalar,     ///< g_t = exp(log_decay[t]), one number a token and memory
  kChannel,    ///< such a number for each key channel (or channel, where the memory is a vector)
  kMatrix,     ///< per entry of the memory: exp(dt[t, c] a[c, n]) (Mamba)
};

/// The weight that an association carries from the moment it is written.
enum class Importance : std::uint8_t {
  kNone,
  kInput,           ///< `importance`, >= 0
  kLog,             ///< exp(`log_importance`), unbounded; kept finite by a running maximum (mLSTM)
  kComplement,      ///< 1 - g per channel, g the decay; takes the place of the key (HGRN, HGRN2)
  kRootComplement,  ///< sqrt(1 - |g|^2) per channel (LRU, RG-LRU)
};

/// What a query adds to the logarithms of the weights of pairs, so that they are any weights. t is
/// the place of the query in its sequence, s that of the pair, E the extent.
enum class PairBias : std::uint8_t {
  kNone,
  kInput,     ///< `pair_bias`: a number for every query and pair; -inf hides the pair
  kDistance,  ///< -|t - s| / E
  kPower,     ///< -exponent log(1 + |t - s| / E)
  kBlock,     ///< 0 where t and s are of one block of E tokens, else -inf
  kPrefix,    ///< 0 where s <= t or s < E, else -inf; not causal
};

struct Weights {
  Decay decay = Decay::kNone;
  double decay_factor = 1;  ///< of kConstant; in (0, 1]
  bool phase = false;       ///< decay is complex: g exp(i phase) (GateLoop, LRU)
  Importance importance = Importance::kNone;
  std::int64_t window = 0;  ///< only the latest `window` associations count; 0: all
  PairBias pair_bias = PairBias::kNone;
  double extent = 1;    ///< of the pair bias, in tokens; > 0
  double exponent = 1;  ///< of kPower; > 0
  bool operator==(const Weights&) const = default;
};

/// s(k, q). With d = |k - q|, B the bandwidth.
enum class Kernel : std::uint8_t {
  kNone,
  kExponential,      ///< exp(k . (scale q))
  kGaussian,         ///< exp(-d^2 / B)
  kLaplace,          ///< exp(-d / B)
  kEpanechnikov,     ///< (1 - (d/B)^2)_+
  kBiweight,         ///< (1 - (d/B)^2)_+^2
  kTriweight,        ///< (1 - (d/B)^2)_+^3
  kInverseDistance,  ///< 1 / d; at d = 0 the hit's value
  kLinear,           ///< k . (scale q): of a regression alone, as it weighs nothing
};

/// For a constant or polynomial function class the similarity weighs associations by their
/// closeness to the query; for the function class `kernel` it is the kernel of the regression.
struct Similarity {
  Kernel kernel = Kernel::kNone;
  double bandwidth = 0;  ///< B > 0; unused by the exponential, inverse-distance and linear kernels
  bool operator==(const Similarity&) const = default;
};

enum class FunctionClass : std::uint8_t {
  kConstant,  ///< m(k) = c: around the query under a similarity, else one vector (gated recurrence)
  kLinear,    ///< m(k) = M phi(k)
  kAffine,    ///< m(k) = M [phi(k); 1], no ridge on the intercept
  kPolynomial,  ///< a polynomial in k - q of degree 1, 2, ..., around every query
  kKernel,      ///< linear in the feature space of the kernel
  kNetwork,     ///< a small network, trained while it reads
};

/// phi, applied to keys and queries. Formulas: docs/layers.md.
enum class FeatureMap : std::uint8_t {
  kNone,
  kElu1,
  kRelu,
  kCosformer,
  kDpfp,
  kT2r,
  kHedgehogExp,
  kHedgehogSoftmax,
  kTaylor2,
  kRebased,
  kRfa,
  kFavor,
  kDijiang,
  kPower2,
};

enum class Activation : std::uint8_t { kSilu, kGelu, kRelu, kTanh };

struct Function {
  FunctionClass kind = FunctionClass::kLinear;

  FeatureMap features = FeatureMap::kNone;
  std::int64_t nu = 1;             ///< DPFP: number of rolls
  std::int64_t feature_dim = 64;   ///< random maps (rfa, favor, dijiang): number of directions
  std::int64_t max_length = 4096;  ///< cosFormer: m, the length at which its weight reaches zero
  std::int64_t seed = 0;           ///< random maps, and the start of networks of depth >= 2

  std::int64_t degree = 1;  ///< polynomial: 1 or more

  std::int64_t depth = 1;      ///< network: number of weight matrices
  std::int64_t expansion = 4;  ///< network: hidden width = expansion * Dk
  Activation activation = Activation::kSilu;
  bool gated = false;     ///< network: act(a) (.) g between its matrices, z = [a; g] twice as wide
  bool norm = false;      ///< network: layer norm of its output, learned scale and shift (TTT)
  bool residual = false;  ///< network: adds its input; Dk = Dv
  bool bias = false;      ///< network: a bias after every weight matrix
  bool operator==(const Function&) const = default;
};

enum class Solver : std::uint8_t {
  kGradient,           ///< full-batch gradient descent from 0, `steps` times; 1 step takes A as I
  kSgd,                ///< one pair at a time, from where the last token left the memory
  kExact,              ///< the minimiser
  kConjugateGradient,  ///< on A x = q, `steps` at most, until |A x - q| <= tolerance |q|
  kChebyshev,          ///< on A x = q, `steps` iterates
};

/// Step size of SGD; b stands for the input `step`.
enum class StepRule : std::uint8_t {
  kInput,     ///< b (LMS, DeltaNet)
  kNlms,      ///< eta / (|k|^2 + eps), 0 for a zero key; no input
  kLonghorn,  ///< b / (1 + b |k|^2): implicit
  kEfla,      ///< (1 - exp(-b |k|^2)) / |k|^2: the exact flow
  kOne,       ///< 1; no input
};

/// Along which key SGD erases, where that is not the key that it writes with.
enum class Erase : std::uint8_t {
  kKey,        ///< the key itself
  kEraseKey,   ///< along `erase_key` (Comba)
  kGatedKey,   ///< along `erase_gate` (.) k (Gated DeltaNet-2)
  kUndecayed,  ///< M (kappa)(gate (.) kappa)^T is taken from the undecayed memory, kappa =
               ///< `erase_key`, gate = `erase_gate` (RWKV-7)
};

enum class WeightDecay : std::uint8_t {
  kNone,
  kCoupled,    ///< memory shrinks by 1 - step * weight_decay; the error is of the undecayed memory
  kDecoupled,  ///< memory shrinks by 1 - weight_decay
};

/// What multiplies the gradient. For full-batch gradient descent and conjugate gradient: an
/// approximation of A^-1, with A the Gram matrix plus ridge. For SGD: `kDiagonal`, from a running
/// diagonal curvature, and `kLowRank`: the inverse of ridge I + U^T U, U the longest directions of
/// the keys so far, `rank` of them (a quasi-Newton memory: recursive least squares in O(rank Dk)
/// numbers of curvature). `kChunkFactor` is one Cholesky factor for all tokens that an engine takes
/// together (A^-1 itself for a token alone): conjugate gradient stopped by its tolerance.
enum class Preconditioner : std::uint8_t {
  kNone,
  kDiagonal,
  kBlockDiagonal,
  kLowRank,
  kChunkFactor,
};

/// The size of a step of full-batch gradient descent, which diverges where it is above 2 / l, l the
/// largest eigenvalue of P A.
enum class EtaKind : std::uint8_t {
  kConstant,  ///< eta
  /// eta over a bound of l, so that no eta below 2 diverges: |A|_F plus the largest ridge that is
  /// no part of A, without a preconditioner; the number of blocks, with one of blocks (of channels,
  /// with a diagonal); 1, with one of low rank
  kRelative,
  kInput,  ///< the input `step`, a number for every token and step
};

enum class RidgeKind : std::uint8_t {
  kFading,    ///< decays with the associations: A_0 = ridge I, A_t = g_t A_{t-1} + w k k^T
  kConstant,  ///< A_t = H_t + ridge, H_t decaying; scalar, or a diagonal per memory (input `ridge`)
  kRelative,  ///< A_t = H_t + ridge |H_t|_F I (Gated KalmaNet)
};

/// How exact least squares carry and solve A x = q, A = sum w k k^T.
enum class Factor : std::uint8_t {
  kCholesky,  ///< A itself, factored where it is read: half the digits, and chunks share a factor
  kQr,        ///< a triangle R, R^T R = A, into which every row is rotated: all digits of the rows
};

/// What a network's gradients are of.
enum class Loss : std::uint8_t {
  kSquared,     ///< 1/2 |v - m(k)|^2
  kDotProduct,  ///< -v . m(k) (LaCT, In-Place TTT)
};

/// Steps of a size of its own for every weight of a network, from its squared gradients V:
///
///     adagrad  V = V' + g^2,  W = W' - step g / (sqrt V + eps)
///     adam     V = c V' + (1 - c) g^2,  G = momentum G' + (1 - momentum) g,
///              W = W' - step G / (sqrt V + eps)
///
/// with c = curvature_decay, all element by element; what makes up for the start at zero is in the
/// step.
enum class Adapt : std::uint8_t { kNone, kAdagrad, kAdam };

/// TTT's factor of the reading position i inside a mini-batch.
enum class RowFactor : std::uint8_t { kOne, kInverse };  // 1, or max(1/(i+1) + row_bias_i, 0)

struct Optimizer {
  Solver solver = Solver::kGradient;
  std::int64_t steps = 1;  ///< iterations; for SGD: pairs per token (DeltaProduct)

  StepRule step = StepRule::kInput;
  double eta = 1;  ///< step size of full-batch gradient descent; numerator of NLMS
  EtaKind eta_kind = EtaKind::kConstant;
  double eps = 0;  ///< NLMS: added to |k|^2; adapted steps: to the root
  Erase erase = Erase::kKey;
  bool momentum = false;  ///< input `momentum`; that of full-batch gradient descent is of the query
  WeightDecay weight_decay = WeightDecay::kNone;
  Loss loss = Loss::kSquared;   ///< networks
  Adapt adapt = Adapt::kNone;   ///< networks
  std::int64_t mini_batch = 1;  ///< networks: gradients are taken at the weights where it started
  RowFactor row_factor = RowFactor::kOne;

  Preconditioner preconditioner = Preconditioner::kNone;
  std::int64_t block = 8;       ///< block-diagonal preconditioner
  std::int64_t rank = 8;        ///< low-rank preconditioner, low-rank curvature
  double curvature_decay = 1;   ///< SGD, D_t = g D_{t-1} + b k (.) k (b k k^T): g; adam: c
  double curvature_centre = 0;  ///< SGD, m(D) = 1.5^(-l/(1+|l|)), l = log(D + 1e-6) - c: c

  double ridge = 0;  ///< >= 0; 0 is the minimum-norm limit
  RidgeKind ridge_kind = RidgeKind::kFading;
  Factor factor = Factor::kCholesky;  ///< exact, on a linear memory
  /// Function class kernel: keys whose span it regresses in, at most (the dictionary of kernel
  /// recursive least squares); the pairs themselves are not kept. 0: all pairs
  std::int64_t budget = 0;
  /// Conjugate gradient: relative residual. Budget: a key joins the dictionary where the share of
  /// its squared length in the kernel's space that lies outside of the span is above this
  double tolerance = 0;
  bool operator==(const Optimizer&) const = default;
};

enum class Read : std::uint8_t {
  kAfter,
  kBefore,      ///< as token t-1 left the memory
  kBatchStart,  ///< networks: as it was where the mini-batch began (apply, then update)
  kBatchEnd,  ///< networks: as the last token of the mini-batch leaves it, or of the call, if that
              ///< ends sooner (update, then apply); calls that end with their mini-batches go on
              ///< as if they were one
};
enum class NormaliseSum : std::uint8_t {
  kNone,
  kSum,         ///< divide by z_t . q_t, z = the weighted sum of the keys
  kStabilised,  ///< divide by max(|n_t . q_t|, exp(-m_t)), m the running log-maximum (mLSTM)
};
enum class OutputNorm : std::uint8_t { kNone, kL2, kRms };

struct Reading {
  Read read = Read::kAfter;
  bool bonus = false;  ///< read before: adds v (bonus (.) k)^T q of the current token (RWKV-6)
  NormaliseSum normalise_sum = NormaliseSum::kNone;
  bool normalise_qk = false;  ///< q and k to unit length: x / sqrt(|x|^2 + 1e-6)
  OutputNorm output_norm = OutputNorm::kNone;
  double scale = 1;          ///< multiplies q (after normalise_qk)
  bool scale_rsqrt = false;  ///< scale is Dk^-1/2 instead ("scale: rsqrt_dk")
  double correction = 0;     ///< query read is q - correction * erase_key (Comba)
  bool causal = true;        ///< false: every query reads the memory of the whole sequence
  bool operator==(const Reading&) const = default;
};

struct Recipe {
  Weights weights;
  Similarity similarity;
  Function function;
  Optimizer optimizer;
  Reading reading;
  bool operator==(const Recipe&) const = default;
};

/// One line; parses back to the same value.
std::string ToString(const Recipe& recipe);

/// Everything that `ttr` takes for a recipe: a zoo name, a zoo name with changes in braces
/// ("gated_deltanet{step: longhorn, read: before}"), or a recipe line. Validated. What the changes
/// in braces leave without an effect, and do not say themselves, takes its default: without a
/// gaussian kernel no bandwidth. Error: names the unknown word, its place, and the nearest known
/// one. Cost: O(length); at most 4096 characters.
Recipe ParseRecipe(std::string_view text);

/// Changes one option by its name, as inside braces: Set(recipe, "ridge", "1e-3"). Not validated.
void SetOption(Recipe& recipe, std::string_view name, std::string_view value);

/// An option by its name, as text.
std::string GetOption(const Recipe& recipe, std::string_view name);

/// Every option: name, its part of the recipe, default, the values it takes, its meaning.
struct OptionInfo {
  std::string_view name;
  std::string_view part;  ///< "weights", "similarity", "function", "optimizer", "reading"
  std::string default_value;
  std::string values;
  std::string_view meaning;
};
std::vector<OptionInfo> RecipeOptions();

/// JSON for files: {"weights": {"decay": "scalar"}, "optimizer": {"optimizer": "exact", "ridge":
/// 1}}, every option by its name under its part. Defaults may be left out when read; unknown keys,
/// and keys said twice, are errors. Validated when read. Written are options that differ from
/// their default, or `every_option`.
std::string ToJson(const Recipe& recipe, bool every_option = false);
Recipe RecipeFromJson(std::string_view json);

/// Which kind of memory the choices make; it decides which inputs and states there are.
///
/// | name              | memory                                                              |
/// |-------------------|---------------------------------------------------------------------|
/// | hebbian           | linear, one full gradient step from 0: writes without reading       |
/// | gated_vector      | constant without similarity: h_t = g (.) h_{t-1} + v                |
/// | sgd               | linear, one pair at a time                                          |
/// | least_squares     | linear, A x = q solved by any other means                           |
/// | kernel_smoother   | sums over the pairs: a constant, or one step in a kernel's space    |
/// | kernel_regression | exact in a kernel's space                                           |
/// | kernel_descent    | approached there by gradient or conjugate gradient steps            |
/// | local_polynomial  | a fit around every query                                            |
/// | network           | a small network, trained while it reads                             |
std::string_view FamilyName(const Recipe& recipe);

/// Throws an Error with the reason, and the nearest recipe that has a meaning, when this one has
/// none: choices that contradict each other, numbers out of range, and options that would be
/// ignored.
void Validate(const Recipe& recipe);

}  // namespace ttr
