/// A planned recipe, ready to run on tensors.
///
///     ttr::Layer layer(ttr::ParseRecipe("gated_deltanet"));
///     ttr::State state;                                    // empty: the recipe's start
///     layer.Forward({.q = q, .k = k, .v = v, .log_decay = g, .step = beta}, state, {.y = y});
///
/// Whole = split anywhere = token by token, to rounding: `state` carries everything
/// (ZooLayer.WholeIsSplitIsStep in tests/layer/zoo_test.cc).
///
/// When bits are the same, on one machine and SIMD target:
///
/// | whatever                               | forward   | Backward               | held by |
/// |----------------------------------------|-----------|------------------------|---------|
/// | the number of threads                  | yes       | yes                    | (d)     |
/// | the batch around a sequence            | yes       | yes (a)                | (e)     |
/// | packed beside others, or alone         | yes (b)   | yes (a)                | (f)     |
/// | cut into calls at multiples of 64 rows | Forward (b, c) | -                 | (g)     |
/// | CallOptions::saved given or not        | yes (b)   | of fast_weights, scan  | (h)     |
///
/// Forward: Forward, Memorize, Retrieve, Step, Decoder. (a) But for gradients that are sums over
/// sequences: of constants of the layer. (b) Of more than 3 rows (a token has `steps` rows): up to
/// 3 are decoded, another way through the same arithmetic. (c) Not least squares, budgets,
/// logarithmic weights and weights of pairs, whose sums are wider inside of a call than in its
/// state; nor mini-batches that are cut; nor products in bfloat16. The definition has all of it.
///
/// Held by tests of every recipe that an engine runs, in tests/layer/bits_test.cc: (d)
/// Bits.OfAnyThreads, (e) Bits.OfAnyBatchAround, both Bits.OfSingleTokens, Bits.OfWritesAndReads,
/// Bits.OfGradients; (f) Bits.PackedAndAlone, Bits.OfGradientsPackedAndAlone; (g)
/// Bits.CutAtMultiplesOf64Rows; (h) Bits.OfCallsThatSave, and in saved_gradient_test.cc
/// SavedGradient.HasTheBitsOfWhatIsComputedAnew.
///
/// And the bits of outputs before a token do not depend on what that token or any after it holds
/// (Causality.KeepsTheBitsOfOutputsBefore in tests/layer/causality_test.cc); of least squares and
/// kernel regression the numbers do not, to rounding.
///
/// A factor of exactly 0 (a step, an importance, a gate; log_importance -inf) takes nothing: a row
/// that it weighs and that is not finite counts as zeros, forwards and backwards, and a decay of 0
/// forgets NaN (Weightless in tests/layer/weightless_test.cc, ForgettingNan in forgetting_test.cc).
///
/// A call that is given its scratch allocates nothing, on one thread and after the first one of its
/// sizes (Allocations in tests/layer/allocations_test.cc). Exceptions: no engine runs the recipe,
/// or what is asked of it, so that the definition does; a state that keeps pairs is full, and
/// doubles; what is read has to be converted first (rows of float16, a state of bfloat16 or
/// float16, parameters of a network in several dtypes, a row of weight 0 that is not finite); a
/// system is singular; there are more than 128 tensors.
///
/// Cost: `ttr plan RECIPE`, EstimateCost(). Errors: ttr::Error before any work and before anything
/// is written; see CheckInputs(). Whatever views a call is given, no byte outside of them is read
/// or written (HostileCalls.AreRefusedOrRun in tests/layer/hostile_test.cc, in memory of exactly
/// their extents, for the address sanitizer).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "ttr/call.h"
#include "ttr/executor.h"
#include "ttr/inputs.h"
#include "ttr/plan.h"
#include "ttr/recipe.h"
#include "ttr/state.h"

namespace ttr {

class Engine;
class Prepared;

class Layer {
 public:
  /// Validates and plans. `engine` given ("definition" or the planned one): that engine or an
  /// Error (Layer.AnEngineThatCannotIsRefused).
  explicit Layer(const Recipe& recipe);
  /// The layer of a recipe's text: ParseRecipe(text).
  explicit Layer(std::string_view text);
  Layer(const Recipe& recipe, std::string_view engine);

  const Recipe& recipe() const { return requirements_.recipe; }
  const Requirements& requirements() const { return requirements_; }
  const Plan& plan() const { return plan_; }

  /// The start of the recipe's memory, as tensors: what an empty State means. `dtype` is float64
  /// where v is float64, else float32 (ZooLayer.WithoutTokensTheStateIsTheStart).
  State InitialState(const Inputs& inputs) const;

  /// Memorizes every token and answers every query. `state` is read, and left as after the last
  /// token; entries that it lacks are made (owned), those it has are updated in place
  /// (Layer.StateOfTheCallerIsUpdatedInPlace in tests/layer/layer_test.cc).
  void Forward(const Inputs& inputs, State& state, const Outputs& outputs,
               const CallOptions& options = {}) const;

  /// Forward() from `initial`, which stays as it is, into `final`: entries that `final` has are
  /// written, others are made (ZooLayer.GoesFromOneStateIntoAnother, KeptPairs in
  /// tests/layer/kept_pairs_test.cc).
  void Forward(const Inputs& inputs, const State& initial, State& final, const Outputs& outputs,
               const CallOptions& options = {}) const;

  /// Forward, which also leaves copies of the state at inner tokens: states[i] is that as after the
  /// first at[i] tokens (of what is packed: after token at[i] - 1, of its sequence alone). `at`
  /// rises, from 1 to T. One pass; where `at` are multiples of 64 behind the start of a sequence,
  /// whoever goes on from such a state has the bits of this call. A prefix cache keeps them.
  /// Errors: also places that do not rise, and packed sequences of memories that keep pairs
  /// (StatesAt in tests/layer/states_at_test.cc).
  void Forward(const Inputs& inputs, State& state, const Outputs& outputs,
               std::span<const std::int64_t> at, std::span<State> states,
               const CallOptions& options = {}) const;

  /// One token (T = 1): Forward without what long sequences need. In place, O(state); of least
  /// squares O(D^3), where a Decoder takes O(D^2) (ZooLayer.WholeIsSplitIsStep,
  /// Layer.StepTakesOneToken).
  void Step(const Inputs& inputs, State& state, const Outputs& outputs,
            const CallOptions& options = {}) const;

  /// Writes without reading (inputs without q), and reads without writing (inputs with q alone, and
  /// the constants of the recipe) (ZooLayer.MemorizeThenRetrieveIsForward).
  void Memorize(const Inputs& inputs, State& state, const CallOptions& options = {}) const;
  void Retrieve(const Inputs& inputs, const State& state, const Outputs& outputs,
                const CallOptions& options = {}) const;

  /// Gradients of a scalar loss. Given are the inputs and the state of the forward call at its
  /// start, `dy` = gradient of y, `dstate` = gradient of the final state (entries that are absent:
  /// zero); both may have any strides. Written are the views of `dinputs` that are defined, shaped
  /// as the inputs, and into `dinitial` the gradient of the initial state: entries that it has
  /// (shaped as the state, float32 or float64), others are made. Counts have no gradient. What is
  /// written is contiguous in its last axis and overlaps nothing
  /// (HostileCalls.OfStridesThatAreAllowedAnswerAsCopiesDo, HostileOverlap.IsRefused in
  /// tests/layer/hostile_test.cc).
  ///
  /// An engine with gradients takes its recurrence backwards; else (HasGradients() is false) the
  /// definition takes central differences in double precision, one pair of forward calls per
  /// number, for small inputs (by hand Backward.OfLinearAttentionIsTheClosedForm in
  /// tests/layer/layer_test.cc; engines beside the definition in tests/layer/*gradient_test.cc, and
  /// of recipes drawn at random AnyRecipe.HasTheGradientsOfTheDefinition).
  void Backward(const Inputs& inputs, const State& initial, const TensorView& dy,
                const State& dstate, const Inputs& dinputs, State& dinitial,
                const CallOptions& options = {}) const;

  /// Does Backward take the recurrence backwards, at some three times the cost of Forward?
  bool HasGradients() const;
  /// Does it for calls of these sizes? An engine may leave some to the definition.
  bool HasGradients(const Dims& dims) const;

  /// Are products in bfloat16 (CallOptions::bfloat16_products) there for this recipe, and faster on
  /// this processor? By what it is: AMD's AVX512-BF16 takes two thirds of the time of float32 (Zen
  /// 4); Intel's took 1.4 to 1.7 times as long and is not asked, but its matrix tiles are where the
  /// system grants them; Arm's BFDOT was counted, not timed. The first to ask requests the tiles of
  /// the system, for the process.
  bool HasBFloat16Products() const;

  /// Bytes of scratch that Forward, and Backward, need at these sizes with this many threads.
  /// Kernel regression factors the pairs of the state along with those of the call: where
  /// `dims.tokens` counts these alone, a call that finds pairs allocates what is missing
  /// (StatedSizes in tests/layer/stated_sizes_test.cc).
  std::size_t ScratchBytes(const Dims& dims, int threads) const;
  std::size_t BackwardScratchBytes(const Dims& dims, int threads) const;

  /// Bytes that Forward can save for Backward where the state is of this dtype, of several that of
  /// ArithmeticType(); 0: nothing. Fast weights: a state each 64 rows and, where something is
  /// erased, as many numbers as v has. Scans: a state each 32 tokens. Kernel smoothers: an answer
  /// and one number more of every query. Before them stand 64 bytes, which differ from one call to
  /// another (Saved.MustHoldItsBytes in tests/layer/saved_gradient_test.cc).
  std::size_t SavedBytes(const Dims& dims, DType state = DType::kFloat32) const;

 private:
  friend class Decoder;
  friend class StatePool;

  /// A state with all entries and a row of each for every sequence; its own where they are so.
  State Complete(const State& state, const Dims& dims, const Inputs& inputs) const;
  /// The initial state, completed, in the entries of `final` where their shapes are its own.
  State StartIn(const State& final, const State& initial, const Inputs& inputs) const;

  Requirements requirements_;
  Plan plan_;
  const Engine* engine_;
  std::size_t recipe_hash_;
  std::shared_ptr<const Prepared> prepared_;  // copies of a layer share it
};

}  // namespace ttr
