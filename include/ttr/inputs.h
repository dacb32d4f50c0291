/// What a layer takes and carries: inputs, sizes, shapes. All of it follows from the recipe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ttr/recipe.h"
#include "ttr/tensor.h"

namespace ttr {

class State;

/// The sizes of one call. H memories; key, value and query heads divide it (memory h reads key head
/// h / (H/Hk)), or the query heads are a multiple of it (several queries read one memory).
struct Dims {
  std::int64_t batch = 1;        ///< B
  std::int64_t tokens = 0;       ///< T
  std::int64_t query_heads = 1;  ///< Hq
  std::int64_t key_heads = 1;    ///< Hk
  std::int64_t value_heads = 1;  ///< Hv
  std::int64_t heads = 1;        ///< H
  std::int64_t key_dim = 1;      ///< Dk
  std::int64_t value_dim = 1;    ///< Dv
  std::int64_t features = 0;     ///< F, rows of features.w; 0 where the recipe has none
  std::int64_t hidden = 0;       ///< hidden width of a network of depth >= 2
  std::int64_t sequences = 0;    ///< N packed sequences; 0: not packed

  std::int64_t output_heads() const { return heads > query_heads ? heads : query_heads; }
  /// Rows of the state: N where packed, else B.
  std::int64_t states() const { return sequences > 0 ? sequences : batch; }
  bool operator==(const Dims&) const = default;
};

/// The inputs by name; an absent one is a default view. Shapes and ranges: InputSpecs().
/// Per-token inputs are float32, float64, bfloat16 or float16 (gates may be wider than q, k, v),
/// with any strides but a contiguous last axis; a stride of 0 broadcasts.
struct Inputs {
  TensorView q{}, k{}, v{}, v_im{};
  TensorView log_decay{}, phase{}, dt{}, a{};
  TensorView step{}, importance{}, log_importance{}, pair_bias{};
  TensorView erase_key{}, erase_gate{}, bonus{}, momentum{}, weight_decay{}, ridge{};
  TensorView bandwidth{};
  TensorView features_w{}, features_b{}, ln_weight{}, ln_bias{}, row_bias{};
  TensorView cu_seqlens{};
};

/// The range that a range check enforces (NaN is data and passes).
enum class Range : std::uint8_t { kAny, kNonNegative, kNonPositive };

/// Typical numbers of an input, for tests, benchmarks and experiments.
enum class Typical : std::uint8_t {
  kNormal,   ///< standard normal
  kKeys,     ///< normal, of variance 1 / Dk
  kSmall,    ///< normal, of deviation 0.1
  kUnit,     ///< uniform between 0 and 1
  kHalf,     ///< between 0 and 1/2
  kOneUp,    ///< between 1 and 2
  kMinus,    ///< between -1 and 0
  kHalving,  ///< between -log 2 and 0: logarithms of decays of at least 1/2
};

/// Facts about an input, whichever recipe takes it.
struct InputField {
  std::string_view name;  ///< that of the member of Inputs ("features.w" for features_w)
  TensorView Inputs::* view;
  Range range = Range::kAny;
  Typical typical = Typical::kKeys;
  /// The value that leaves a layer as if it had no such input; absent where none does.
  std::optional<double> neutral{};
  /// Is it of one pair, so that nothing of it counts where the pair has no weight?
  bool of_pair = false;
};
std::span<const InputField> InputFields();

/// An axis of an input or a state.
enum class Axis : std::uint8_t {
  kBatch,
  kTokens,
  kRows /* tokens * steps per token */,
  kQueryHeads,
  kKeyHeads,
  kValueHeads,
  kHeads,
  kKeyDim,
  kValueDim,
  kPhiDim /* key dimension of the state: features, the affine 1 */,
  kFeatures,
  kOne,
  kMiniBatch,
  kHidden,
  kGatedHidden,  ///< twice as many
  kSequencesPlus1,
  kBudget,
  kRank,
  kSteps /* iterations */,
  kStates /* N or B */,
  kPairs /* S */,
};

/// "B", "T", "T n", "Hq", ...
std::string_view Name(Axis axis);

/// An input of a recipe.
struct InputSpec : InputField {
  std::vector<std::vector<Axis>> shapes;  ///< any of these
  bool required = true;
  std::string_view meaning;
  /// Does each query take it, so that a call which only reads needs it and one which only writes
  /// does not? (q; how gradient descent walks from 0 to an answer.)
  bool of_query = false;
  /// Inputs of which a row that is not finite counts as zeros where this one, all of its row, is
  /// exactly `weightless`.
  std::vector<TensorView Inputs::*> weighs{};
  double weightless = 0;
};

/// The inputs that a recipe takes, required ones first.
std::vector<InputSpec> InputSpecs(const Recipe& recipe);

/// What an entry of a state is to those who handle states of any recipe.
enum class EntryRole : std::uint8_t {
  kMemory,  ///< numbers that every token changes
  /// The matrix of a memory that rank-one steps write; may be bfloat16 or float16. A call works on
  /// a copy in float32 and rounds it at its end; a Decoder rounds every few tokens.
  kWrittenMatrix,
  kParameters,  ///< of a network, which all sequences may share
  kMiniBatch,   ///< of the mini-batch so far, which means nothing without kPosition
  kMaximum,     ///< a running maximum: minus infinity where nothing has been memorized
  kPairs,       ///< a row for every pair, as its token gave it; may be bfloat16 or float16
  kPairWeight,  ///< a number for every pair, which later tokens change
  // Whole numbers from here on.
  kPairCount,  ///< how many rows hold pairs
  kKeyCount,   ///< how many rows of a dictionary hold keys
  kPosition,   ///< tokens so far, of the mini-batch where there is one
};

struct StateSpec {
  std::string name;  ///< "state", "state.n", ...
  std::vector<Axis> shape;
  std::string_view meaning;
  EntryRole role = EntryRole::kMemory;

  /// Whole numbers (state.length, state.position): int64?
  bool counts() const { return role >= EntryRole::kPairCount; }
};

/// What a recipe's memory consists of. Empty where nothing can be carried (not causal).
/// A memory that keeps its pairs has an axis kPairs, of S rows: `state.length` of them hold pairs,
/// oldest first, what follows is room for more. A window counts only the latest; it uses no more
/// than twice as many rows, and moves them to the front when these are full.
std::vector<StateSpec> StateSpecs(const Recipe& recipe);

/// The key dimension of the state: Dk, the dimension of the features, plus one where affine.
std::int64_t PhiDim(const Recipe& recipe, const Dims& dims);

/// What a recipe takes and carries, derived once: every call is checked against it.
struct Requirements {
  Requirements(const Recipe& from)  // NOLINT: a recipe is used where its requirements are asked
      : recipe(from), inputs(InputSpecs(from)), state(StateSpecs(from)) {}

  Recipe recipe;
  std::vector<InputSpec> inputs;
  std::vector<StateSpec> state;
};

/// What a call does with its inputs.
enum class Needs : std::uint8_t {
  kBoth,
  kWrite,  ///< memorizes: q may be absent, then Hq = H
  kRead,   ///< retrieves: q and the constants alone (and erase_key where q is corrected by it)
};

/// Sizes of a call, from the shapes of its inputs alone, checked against the recipe: presence,
/// dtypes, ranks, sizes, strides. No value is read and no memory need be there, so a caller may ask
/// before it has data (views of the right shapes over any aligned address). `op` names the operator
/// in errors. O(number of inputs).
///
/// Reading takes the sizes that q does not have (H, Dv) from `state`; without one H is that of the
/// constants or of q, and Dv is 1. Where there are no keys (gated vectors) Dk = Dv.
///
/// Errors: `[deltanet] k must be [B,T,Hk,Dk] = [2,64,4,128] but is [2,64,4,64]`.
Dims InferDims(std::string_view op, const Requirements& requirements, const Inputs& inputs,
               Needs needs = Needs::kBoth, const State* state = nullptr);

/// Sizes that a call can have: none below 0, at least one head, heads that divide one another.
void CheckDims(std::string_view op, const Dims& dims);

/// Throws where cu_seqlens does not run from 0 to T without falling. O(N).
void CheckSequences(std::string_view op, const Dims& dims, const Inputs& inputs);

/// Ranges of the values (log_decay <= 0, importance >= 0, ...); reads every gate once. NaN passes.
void CheckRanges(std::string_view op, const Requirements& requirements, const Inputs& inputs);

/// InferDims() and CheckSequences().
Dims CheckInputs(std::string_view op, const Requirements& requirements, const Inputs& inputs,
                 Needs needs = Needs::kBoth, const State* state = nullptr);

/// Names, shapes and dtypes of a given state, and the counts in it. Entries may be missing (they
/// then have the recipe's start), but pairs are whole: state.k with state.v. Weights of networks
/// may lack the first axis. The last axis is contiguous.
void CheckState(std::string_view op, const Requirements& requirements, const Dims& dims,
                const State& state);

/// The length of an axis at these sizes; `pairs` is that of kPairs, which is none of dims.
std::int64_t SizeOf(Axis axis, const Recipe& recipe, const Dims& dims, std::int64_t pairs = 0);

/// Shapes at these sizes: of an input (the first that its spec allows), of an entry of the state,
/// of y, and of status, iterations and residual.
Shape InputShape(const InputSpec& spec, const Recipe& recipe, const Dims& dims);
Shape StateShape(const StateSpec& spec, const Recipe& recipe, const Dims& dims,
                 std::int64_t pairs = 0);
Shape OutputShape(const Dims& dims);
Shape StatusShape(const Dims& dims);

}  // namespace ttr
